"""Paths of policies that have one each: what is asked there, and what becomes of the answer."""

import pytest

from lictor.core.facts.resource_names import builtin_names
from lictor.core.model.request import GroupVersionKind, Operation, Request
from lictor.core.model.result import Action, PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.report.admission_response import AnswerOptions, AnswerStyle, build_answer
from lictor.kubernetes.flags import Flags
from lictor.webhook.counters import Counters
from lictor.webhook.policy_sets import PolicySets
from lictor.webhook.webhook_routes import WebhookRoute, read_path

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
REF = PolicyRef(name="a", namespace="", kind="ClusterAdmissionPolicy", api_version="x/v1")


@pytest.mark.parametrize(
    ("path", "is_audit"),
    [
        ("/validate/clusterwide-a", False),
        ("/audit/clusterwide-a", True),
        ("/validate/namespaced-group-red-a", False),
        ("/validate/namespaced.team-red.a", False),
        ("/validate/fail", None),
        ("/audit/fail", None),
        ("/mutate/clusterwide-a", None),
        ("/validate/clusterwide-a/b", None),
    ],
)
def test_paths_of_one_policy(path, is_audit):
    route = read_path(path)
    if is_audit is None:
        assert not isinstance(route, WebhookRoute) or not route.per_policy
    else:
        assert isinstance(route, WebhookRoute)
        assert route.per_policy
        assert route.is_audit is is_audit


@pytest.mark.parametrize(
    ("action", "status", "in_force", "audited"),
    [
        (Action.ENFORCE, Status.PASS, True, True),
        (Action.ENFORCE, Status.FAIL, False, False),
        # A policy that cannot be asked refuses, whatever its failure policy says.
        (Action.ENFORCE, Status.ERROR, False, False),
        (Action.AUDIT, Status.FAIL, True, False),
        (Action.AUDIT, Status.ERROR, True, False),
    ],
)
def test_answers(action, status, in_force, audited):
    request = Request(
        kind=GroupVersionKind("", "v1", "Pod"), operation=Operation.CREATE, object=POD
    )
    result = Result(REF, "", RuleType.VALIDATION, status, "no", action=action)
    verdict = Verdict(request, (result,), patched=POD)
    for style, allowed in ((AnswerStyle.OWN_PATH, in_force), (AnswerStyle.OWN_AUDIT, audited)):
        answer = build_answer(verdict, AnswerOptions(style, lambda _: False))
        assert answer.allowed is allowed
        assert answer.message == ("" if allowed else "no")


class NoPolicies:
    """A store that has not heard of any."""

    policies = ()
    names = builtin_names()
    revision = 0
    can_lag = False

    def programs(self, policy):
        return ()

    def listen(self, listener):
        pass


@pytest.mark.parametrize(
    ("path", "is_missing"), [("/validate/clusterwide-a", True), ("/validate/fail", False)]
)
def test_a_policy_that_is_not_there_lets_nothing_pass(path, is_missing):
    sets = PolicySets(NoPolicies(), Counters(), Flags())
    route = read_path(path)
    assert isinstance(route, WebhookRoute)
    assert sets.open(route).is_missing is is_missing
