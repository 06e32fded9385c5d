"""Verdicts to report on."""

from types import SimpleNamespace

import pytest

from lictor.core.model.request import GroupVersionKind, Request
from lictor.core.model.result import Action, Failure, PolicyRef, Result, RuleType, Status, Verdict

TEAM = PolicyRef(
    name="require-team",
    annotations={
        "policies.kyverno.io/category": "Sample: one",
        "policies.kyverno.io/severity": "medium",
        "policies.kyverno.io/title": "Require a team",
        "policies.kyverno.io/description": "Someone must answer for it.",
    },
)
LOCAL = PolicyRef(name="local", namespace="shop", kind="Policy")
UNSCORED = PolicyRef(name="hint", annotations={"policies.kyverno.io/scored": "false"})


def make_request(name="web", namespace="shop", kind="Pod", **metadata):
    resource = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
    }
    return Request(GroupVersionKind("", "v1", kind), resource)


def make_result(policy=TEAM, rule="team", status=Status.PASS, message="", **more):
    return Result(policy, rule, more.pop("type", RuleType.VALIDATION), status, message, **more)


@pytest.fixture
def made():
    """The builders above, and verdicts that hold one of everything."""
    good = Verdict(make_request("good", uid="12"), (make_result(message="rule passed"),))
    bad = Verdict(
        make_request("bad"),
        (
            make_result(
                status=Status.FAIL,
                message="label team: wanted # now",
                failure=Failure("/metadata/labels/team", "?*"),
            ),
            make_result(
                rule="lines", status=Status.FAIL, message="one\ntwo\n", action=Action.ENFORCE
            ),
            make_result(LOCAL, "here", Status.FAIL, '<no> & "quotes"'),
            make_result(UNSCORED, "hint", Status.FAIL, "better not"),
            make_result(rule="broken", status=Status.ERROR, message="unknown key"),
            make_result(rule="spared", status=Status.SKIP, message="exempt"),
        ),
    )
    return SimpleNamespace(
        request=make_request, result=make_result, team=TEAM, local=LOCAL, verdicts=(good, bad)
    )
