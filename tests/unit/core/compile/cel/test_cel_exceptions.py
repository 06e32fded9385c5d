"""Exceptions from CEL policies."""

import pytest

from lictor.core.model.result import ExceptionRef

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {}}
POLICY = {
    "apiVersion": "policies.kyverno.io/v1",
    "kind": "ValidatingPolicy",
    "metadata": {"name": "p"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ]
        },
        "validations": [
            {"expression": "object.metadata.name in exceptions.allowedValues", "message": "no"},
            {"expression": "size(exceptions.allowedImages) < 2", "message": "too many"},
        ],
    },
}


def exception(name, *expressions, kind="ValidatingPolicy", policy="p", priority="", **spec):
    labels = {"labels": {"polex.kyverno.io/priority": priority}} if priority else {}
    conditions = [{"name": f"c{i}", "expression": text} for i, text in enumerate(expressions)]
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": name, "namespace": "here", **labels},
        "spec": {
            "policyRefs": [{"name": policy, "kind": kind}],
            "matchConditions": conditions,
            **spec,
        },
    }


def exempted(status, names, word="skipped"):
    return ("exception", status, f"rule is {word} due to policy exception: {names}")


FAILED = ("", "fail", "no")


@pytest.mark.parametrize(
    ("exceptions", "expected"),
    [
        ([], FAILED),
        ([exception("e")], exempted("skip", "here/e")),
        ([exception("e", reportResult="pass")], exempted("pass", "here/e", "passed")),
        ([exception("e", "object.metadata.name == 'web'")], exempted("skip", "here/e")),
        ([exception("e", "object.metadata.name == 'x'")], FAILED),
        ([exception("e", policy="q")], FAILED),
        ([exception("e", kind="MutatingPolicy")], FAILED),
        ([exception("e"), exception("f")], exempted("skip", "here/e, here/f")),
        (
            [exception("e"), exception("f", priority="2", reportResult="pass")],
            exempted("pass", "here/e, here/f", "passed"),
        ),
        (
            [exception("e", priority="3"), exception("f", priority="2", reportResult="pass")],
            exempted("skip", "here/e, here/f"),
        ),
        (
            [exception("e"), exception("f", priority="high", reportResult="pass")],
            exempted("skip", "here/e, here/f"),
        ),
        # One that is expired, or whose time cannot be read, does not count.
        ([exception("e", expiresAt="2020-01-01T00:00:00Z")], FAILED),
        ([exception("e", expiresAt="tomorrow")], FAILED),
        ([exception("e", expiresAt="9020-01-01T00:00:00Z")], exempted("skip", "here/e")),
        # One that exempts from everything wins over partial ones, and over later errors.
        ([exception("e", allowedValues=["db"]), exception("f")], exempted("skip", "here/f")),
        ([exception("f"), exception("e", "object.nope == 1")], exempted("skip", "here/f")),
        ([exception("e", allowedValues=["web"])], ("", "pass", "success")),
        ([exception("e", allowedValues=["db"])], FAILED),
        ([exception("e", images=["a", "b"], allowedValues=["web"])], ("", "fail", "too many")),
        (
            [exception("e", "object.nope")],
            ("", "error", "exception e: matchConditions[0].expression: must evaluate to bool but got dyn"),
        ),
        (
            [exception("e", "object.nope == 1")],
            ("evaluation", "error", "failed to load context: no such key: nope"),
        ),
    ],
)  # fmt: skip
def test_exceptions(summarize, exceptions, expected):
    assert summarize([POLICY, *exceptions], POD) == [expected]


def test_the_result_names_the_exceptions(judge):
    (result,) = judge([POLICY, exception("e")], POD)
    assert result.exceptions == (ExceptionRef("e", "here"),)
