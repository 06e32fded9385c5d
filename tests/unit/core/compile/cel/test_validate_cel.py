"""CEL in classic policies."""

import pytest

from lictor.core.model.request import Caller, Request
from lictor.core.model.result import Action

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"hostPID": True},
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"template": {"spec": {"hostPID": True}}},
}


def policy(*expressions, message="", preconditions=(), rule=(), spec=(), **cel):
    body = {"expressions": [e if isinstance(e, dict) else {"expression": e} for e in expressions]}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "rules": [
                {
                    "name": "r",
                    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                    "celPreconditions": [
                        {"name": f"c{i}", "expression": text}
                        for i, text in enumerate(preconditions)
                    ],
                    "validate": {"message": message, "cel": {**body, **cel}},
                    **dict(rule),
                }
            ],
            **dict(spec),
        },
    }


PASSED = ("r", "pass", "Validation rule 'r' passed.")
UNDECIDED = "expression 'object.nope == 1' resulted in error: no such key: nope"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (policy("object.spec.hostPID"), ("r", "fail", "compilation error: must evaluate to bool but got dyn")),
        (policy("object.spec.hostPID == true"), PASSED),
        (policy("true", "false", message="m"), ("r", "fail", "m")),
        (policy({"expression": "false", "message": "own"}, message="m"), ("r", "fail", "own")),
        (policy("false"), ("r", "fail", "failed expression: false")),
        (policy("object.nope == 1"), ("r", "fail", UNDECIDED)),
        (policy("false", preconditions=["object.kind == 'Node'"]), ("r", "skip", "cel preconditions not met")),
        (policy("true", preconditions=["object.nope == 1"]), ("r", "fail", UNDECIDED)),
        (
            policy("variables.x", variables=[{"name": "x", "expression": "object.spec.hostPID == true"}]),
            PASSED,
        ),
        (policy("request.namespace == namespaceObject.metadata.name"), PASSED),
        (
            policy(
                "true",
                rule={"preconditions": {"all": [{"key": "a", "operator": "Equals", "value": "b"}]}},
            ),
            ("r", "skip", "preconditions not met"),
        ),
    ],
)  # fmt: skip
def test_answers(summarize, document, expected):
    assert summarize([document], POD) == [expected]


def test_rules_about_pods_cover_their_controllers(summarize):
    found = summarize([policy("object.spec.hostPID == false", message="m")], DEPLOYMENT)
    assert found == [("autogen-r", "fail", "m")]


def test_audit_annotations_and_report_properties_are_joined(judge):
    document = policy(
        "true",
        auditAnnotations=[{"key": "who", "valueExpression": "string(object.metadata.name)"}],
        rule={"reportProperties": {"team": "a"}},
    )
    (result,) = judge([document], POD)
    assert result.properties == {"team": "a", "who": "web"}


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("request.userInfo.username == 'ann'", 1),
        ("request.userInfo.username != 'ann'", 0),
        # Whoever cannot be asked is not concerned; an API server has decided errors before.
        ("object.nope == 1", 0),
    ],
)
def test_match_conditions_of_the_webhook(judge, expression, count):
    conditions = {"matchConditions": [{"name": "c", "expression": expression}]}
    document = policy("false", spec={"webhookConfiguration": conditions})
    request = Request.of(POD, caller=Caller("ann"))
    assert len(judge([document], request)) == count


def test_an_update_of_what_was_wrong_before_is_refused_all_the_same(judge):
    document = policy("false", spec={"validationFailureAction": "Enforce"})
    (result,) = judge([document], Request.of(POD, operation="UPDATE", old=POD))
    assert (str(result.status), result.action) == ("fail", Action.ENFORCE)


PARAMS = {
    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    "paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"},
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("shop", "web")], PASSED),
        ([("shop", "db")], ("r", "fail", "not web")),
        ([("other", "web")], ("r", "error", "no params found")),
        ([], ("r", "error", "no params found")),
    ],
)
def test_params(summarize, given, expected):
    params = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "limits", "namespace": namespace},
            "data": {"name": name},
        }
        for namespace, name in given
    ]
    check = {
        "expression": "params.data.name == object.metadata.name",
        "messageExpression": "'not ' + object.metadata.name",
    }
    assert summarize([policy(check, **PARAMS)], POD, params=params) == [expected]
