"""ValidatingAdmissionPolicy: decisions, bindings and parameters."""

import pytest

from lictor.core.model.request import Request
from lictor.core.model.result import Action
from lictor.core.ports import NoLookups

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {},
}
PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
GROUP = "admissionregistration.k8s.io/v1"


def policy(*validations, rule=PODS, **spec):
    checks = [v if isinstance(v, dict) else {"expression": v} for v in validations]
    body = {"matchConstraints": {"resourceRules": [rule]}, "validations": checks, **spec}
    kind = "ValidatingAdmissionPolicy"
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "p"}, "spec": body}


def binding(name="b", actions=("Deny",), **spec):
    body = {"policyName": "p", "validationActions": list(actions), **spec}
    kind = "ValidatingAdmissionPolicyBinding"
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": body}


def conditions(*expressions):
    return [{"name": f"c{i}", "expression": text} for i, text in enumerate(expressions)]


def failed(text):
    return f"expression '{text}' resulted in error: no such key: nope"


UNMET = ("skip", "match conditions aren't met")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (policy("true"), ("pass", "")),
        (policy(" false "), ("fail", "failed expression: false")),
        (policy({"expression": "false", "message": " never "}), ("fail", "never")),
        (
            policy({"expression": "false", "messageExpression": "' no ' + object.kind"}),
            ("fail", "no Pod"),
        ),
        (
            policy({"expression": "false", "message": "m", "messageExpression": "object.nope.x"}),
            ("fail", "m"),
        ),
        (
            policy({"expression": "false", "message": "m", "messageExpression": "'a\\nb'"}),
            ("fail", "m"),
        ),
        (
            policy({"expression": "false", "message": "m", "messageExpression": "'  '"}),
            ("fail", "m"),
        ),
        (policy("object.nope == 1"), ("error", failed("object.nope == 1"))),
        (policy("object.nope == 1", failurePolicy="Ignore"), ("error", failed("object.nope == 1"))),
        (policy("object.spec"), ("error", "compilation error: must evaluate to bool but got dyn")),
        (policy("false", matchConditions=conditions("false")), UNMET),
        (
            policy("true", matchConditions=conditions("object.nope == 1")),
            ("error", failed("object.nope == 1")),
        ),
        (
            policy("true", matchConditions=conditions("object.nope == 1"), failurePolicy="Ignore"),
            UNMET,
        ),
        (
            policy("variables.a == 'web'", variables=[{"name": "a", "expression": "object.metadata.name"}]),
            ("pass", ""),
        ),
        (
            policy("true", variables=[{"name": "a", "expression": "nope"}]),
            ("pass", ""),
        ),
        (policy("namespaceObject.metadata.name == 'shop'"), ("pass", "")),
        (
            policy("authorizer.group('').resource('pods').check('get').allowed()"),
            (
                "error",
                "expression 'authorizer.group('').resource('pods').check('get').allowed()' "
                "resulted in error: no authorizer available",
            ),
        ),
    ],
)  # fmt: skip
def test_decisions(summarize, document, expected):
    assert summarize([document], POD) == [("p", *expected)]


def test_a_variable_that_does_not_compile_is_blamed(summarize):
    document = policy("variables.a", variables=[{"name": "a", "expression": "nope"}])
    ((_, status, message),) = summarize([document], POD)
    assert status == "error"
    assert 'composited variable "a" fails to compile: undeclared reference to' in message


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ([], [({}, Action.ENFORCE)]),
        ([binding()], [({"binding": "b"}, Action.ENFORCE)]),
        ([binding(actions=["Audit"])], [({"binding": "b"}, Action.AUDIT)]),
        ([binding(actions=["Warn"])], [({"binding": "b"}, Action.AUDIT)]),
        (
            [binding(), binding("c", actions=["Audit"])],
            [({"binding": "b"}, Action.ENFORCE), ({"binding": "c"}, Action.AUDIT)],
        ),
        ([binding(policyName="q")], [({}, Action.ENFORCE)]),
        ([binding(matchResources={"objectSelector": {"matchLabels": {"app": "db"}}})], []),
        (
            [binding(matchResources={"objectSelector": {"matchLabels": {"app": "web"}}})],
            [({"binding": "b"}, Action.ENFORCE)],
        ),
    ],
)
def test_bindings(judge, bindings, expected):
    results = judge([policy("false"), *bindings], POD)
    assert [(r.properties, r.action) for r in results] == expected


@pytest.mark.parametrize(
    ("rule", "bindings", "count"),
    [
        ({**PODS, "resources": ["services"]}, [], 0),
        ({**PODS, "resources": ["services"]}, [binding()], 0),
        # The API server refuses a rule without operations; Kyverno asks it where there is a binding.
        ({**PODS, "operations": []}, [], 0),
        ({**PODS, "operations": []}, [binding()], 1),
    ],
)
def test_constraints(judge, rule, bindings, count):
    assert len(judge([policy("false", rule=rule), *bindings], POD)) == count


def test_admission_policies_never_judge_their_like(judge):
    everything = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["*"],
    }
    assert judge([policy("false", rule=everything)], policy("true")) == ()


@pytest.mark.parametrize(
    ("failure_policy", "action"), [("Fail", Action.ENFORCE), ("Ignore", Action.AUDIT)]
)
def test_what_follows_from_an_error(judge, failure_policy, action):
    (result,) = judge([policy("object.nope == 1", failurePolicy=failure_policy)], POD)
    assert result.action is action


def test_audit_annotations_are_properties(judge):
    annotations = [
        {"key": "who", "valueExpression": "string(object.metadata.name)"},
        {"key": "empty", "valueExpression": "null"},
    ]
    (result,) = judge([policy("false", auditAnnotations=annotations), binding()], POD)
    assert result.properties == {"who": "web", "binding": "b"}


# --- parameters

KIND = {"apiVersion": "v1", "kind": "ConfigMap"}


def config_map(name, limit, namespace="shop", **labels):
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {**KIND, "metadata": metadata, "data": {"limit": limit}}


def bound(**ref):
    return [
        policy("object.metadata.name == params.data.limit", paramKind=KIND),
        binding(paramRef=ref),
    ]


GOOD, BAD = config_map("good", "web", set="a"), config_map("bad", "db", set="b")
MISSED = "failed expression: object.metadata.name == params.data.limit"


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ({"name": "good"}, [("p", "pass", "")]),
        ({"name": "bad"}, [("p", "fail", MISSED)]),
        ({"name": "good", "namespace": "shop"}, [("p", "pass", "")]),
        ({"selector": {"matchLabels": {"set": "a"}}}, [("p", "pass", "")]),
        ({"selector": {}}, [("p", "fail", MISSED)]),
        ({"name": "good", "namespace": "other"}, [("p", "error", "no params found")]),
        ({"name": "none", "parameterNotFoundAction": "Deny"}, [("p", "error", "no params found")]),
        (
            {"name": "none", "parameterNotFoundAction": "Allow"},
            [("p", "skip", "match conditions aren't met")],
        ),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_params(summarize, ref, expected, given):
    options = {"params": [GOOD, BAD]} if given else {"lookups": Cluster((GOOD, BAD))}
    assert summarize(bound(**ref), POD, **options) == expected


def test_params_of_a_namespace_need_one(summarize):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    documents = bound(name="good")
    documents[0]["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = ["*"]
    ((_, status, message),) = summarize(documents, node, params=[GOOD])
    assert (status, message) == (
        "error",
        "can't use namespaced paramRef to match cluster-scoped resources",
    )


def test_without_a_reference_params_are_null(summarize):
    assert summarize([policy("params == null", paramKind=KIND)], POD) == [("p", "pass", "")]


class Cluster(NoLookups):
    """A cluster with a few objects."""

    def __init__(self, objects):
        self.objects = objects

    def resource(self, api_version, kind, namespace, name):
        found = self.resources(api_version, kind, namespace)
        return next((each for each in found if each["metadata"]["name"] == name), None)

    def resources(self, api_version, kind, namespace):
        return [
            each
            for each in self.objects
            if (each["apiVersion"], each["kind"]) == (api_version, kind)
            if each["metadata"].get("namespace", "") == namespace
        ]


def test_the_namespace_is_asked_for(summarize):
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "7"}}
    document = policy("namespaceObject.metadata.uid == '7'")
    found = summarize([document], Request.of(POD), lookups=Cluster((shop,)))
    assert found == [("p", "pass", "")]
