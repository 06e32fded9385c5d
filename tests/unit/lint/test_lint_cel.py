"""What `lint` finds in policies in CEL, in their bindings and exceptions, and in classic rules."""

import pytest

from lictor.core.facts.resource_names import builtin_names
from lictor.lint.cel_policies import lint_cel_policy
from lictor.lint.exceptions import lint_binding, lint_cel_exception
from lictor.lint.policy import lint_policy
from lictor.lint.schema_kinds import KnownSchemas

NAMES = builtin_names()
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
KYVERNO = "policies.kyverno.io/v1"
KUBERNETES = "admissionregistration.k8s.io/v1"


def policy(kind="ValidatingPolicy", **spec):
    about = {"matchConstraints": {"resourceRules": [PODS]}}
    version = KUBERNETES if kind.endswith("AdmissionPolicy") else KYVERNO
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "p"},
        "spec": {**about, **spec},
    }


PRIORITY = {
    "mutations": [
        {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": "Object{spec: Object.spec{priority: 1}}"},
        }
    ]
}
WITH_VARIABLES = {
    "variables": [{"name": "a", "expression": "true"}],
    "matchConditions": [{"name": "c", "expression": "variables.a"}],
}


def checks(text):
    return {"validations": [{"expression": text}]}


def look(body):
    return [
        (fault.check, fault.message, fault.suggestion)
        for fault in lint_cel_policy(body, NAMES, KnownSchemas())
    ]


@pytest.mark.parametrize(
    "spec",
    [
        checks("object.spec.containers.all(c, c.image != '')"),
        checks("object.metadata.labels.app == request.userInfo.username"),
        {**checks("variables.a == 1"), "variables": [{"name": "a", "expression": "1"}]},
        {**checks("true"), "matchConditions": [{"name": "a", "expression": "true"}]},
        {"auditAnnotations": [{"key": "a", "valueExpression": "object.metadata.name + ''"}]},
        {**checks("object.whatever"), "evaluation": {"mode": "JSON"}, "matchConstraints": None}
        | checks("object.whatever == 1"),
        {"matchConstraints": None, "evaluation": {"mode": "HTTP"}} | checks("http.Allowed().Response()"),
        {"matchConstraints": None, "evaluation": {"mode": "Envoy"}}
        | checks("object.attributes.request.http.path == '/' ? envoy.Denied(403).Response() : null"),
    ],
)  # fmt: skip
def test_what_is_fine_is_left_alone(spec):
    assert look(policy(**spec)) == []


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("ValidatingAdmissionPolicy", ["newer-function"]),
        # Kyverno has its own libraries.
        ("ValidatingPolicy", ["bad-expression"]),
    ],
)
def test_functions_that_servers_refuse_in_new_expressions(kind, found):
    assert [check for check, _, _ in look(policy(kind, **checks("[1].includes(1)")))] == found
    assert look(policy(kind, **checks("'includes' == object.metadata.name"))) == []


@pytest.mark.parametrize(
    ("spec", "check", "message", "suggestion"),
    [
        (checks("object.spec.contaners.size() > 0"), "unknown-property", "undefined field 'contaners'", "containers"),
        (checks("object.spec.containers.all(c, c.imge != '')"), "unknown-property", "undefined field 'imge'", "image"),
        (checks("objct.spec == 1"), "bad-expression", "undeclared reference to 'objct', did you mean 'object'?", ""),
        (checks("object.metadata.name"), "bad-expression", "must answer bool, not dyn", ""),
        (checks("'a'"), "bad-expression", "must answer bool, not string", ""),
        (checks("1 +"), "bad-expression", None, ""),
        (checks("  "), "bad-expression", "the expression is empty", ""),
        (checks("[1, 'a'].size() > 0"), "bad-expression", "expected type 'int' but found 'string'", ""),
        (checks("'x'.matches('(')"), "bad-expression", "invalid matches argument", ""),
        (checks("request.operaton == ''"), "bad-expression", "undefined field 'operaton'", "operation"),
        (checks("variables.a == 1"), "bad-expression", 'there is no variable "a" (nor any other here)', ""),
        (
            {**checks("variables.nmes == [] && variables.names == []"), "variables": [{"name": "names", "expression": "[]"}]},
            "bad-expression", 'there is no variable "nmes"', "names",
        ),
        (
            {**checks("true"), "variables": [{"name": "a", "expression": "1"}]},
            "unused-variable", 'nothing uses the variable "a"', "",
        ),
        (
            {**checks("variables.a == 1"), "variables": [{"name": "a", "expression": "2"}, {"name": "a", "expression": "1"}]},
            "duplicate-name", 'there are two variables "a"', "",
        ),
        (
            {**checks("variables.a == 1 || variables.b"), "variables": [{"name": "a", "expression": "1 +"}, {"name": "b", "expression": "variables.a == 2"}]},
            "bad-expression", None, "",
        ),
        (
            {**checks("true"), "matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]},
            "duplicate-name", 'there are two conditions "a"', "",
        ),
        (
            {**checks("variables.a"), "variables": [{"name": "a", "expression": "true"}], "matchConditions": [{"name": "m", "expression": "variables.a"}]},
            "bad-expression", 'there is no variable "a" (nor any other here)', "",
        ),
        ({"matchConstraints": None} | checks("true"), "bad-match", "the policy matches no requests: matchConstraints is missing", ""),
        ({"matchConstraints": {"resourceRules": []}} | checks("true"), "bad-match", "matchConstraints needs resourceRules", ""),
        ({"matchConstraints": {"resourceRules": [{**PODS, "operations": []}]}} | checks("true"), "bad-match", "a rule needs operations", ""),
        ({}, "bad-validate", "the policy checks nothing: give validations or auditAnnotations", ""),
        ({"matchConstraints": {"resourceRules": [PODS], "objectSelector": {"matchLabels": {"a b": "c"}}}} | checks("true"), "bad-selector", '"a b: c" is not a label that an object can have', ""),
    ],
)  # fmt: skip
def test_mistakes_are_found(spec, check, message, suggestion):
    ((found, told, meant),) = look(policy(**spec))
    assert (found, meant) == (check, suggestion)
    assert message is None or told == message


@pytest.mark.parametrize(
    ("rule", "message", "suggestion"),
    [
        ({"resources": ["pod"]}, 'there is no resource "pod" in the group ""', "pods"),
        ({"resources": ["Pod"]}, 'there is no resource "Pod" in the group ""', "pods"),
        ({"resources": ["confgmaps"]}, 'there is no resource "confgmaps" in the group ""', "configmaps"),
        ({"resources": ["deployments"]}, 'there is no resource "deployments" in the group ""; "apps" has one', ""),
        ({"apiVersions": ["v2"]}, '"pods" has no version "v2"', "v1"),
    ],
)  # fmt: skip
def test_resources_that_do_not_exist(rule, message, suggestion):
    body = policy(
        matchConstraints={"resourceRules": [{**PODS, **rule}]}, validations=[{"expression": "true"}]
    )
    assert look(body) == [("unknown-resource", message, suggestion)]


@pytest.mark.parametrize(
    "rule",
    [
        {"resources": ["*"]},
        {"resources": ["pods/exec", "*/scale"]},
        {"apiGroups": ["*"], "resources": ["anything"]},
        {"apiGroups": ["zoo.example"], "resources": ["lions"]},
        {"apiVersions": ["*"]},
    ],
)
def test_other_resources_are_left_alone(rule):
    body = policy(
        matchConstraints={"resourceRules": [{**PODS, **rule}]},
        validations=[{"expression": "object.spec.whatever == 1"}],
    )
    assert [found for found in look(body) if found[0] == "unknown-resource"] == []


def test_a_field_that_one_of_the_kinds_has_is_enough():
    deployments = {**PODS, "apiGroups": ["apps"], "resources": ["deployments"]}
    both = {"resourceRules": [PODS, deployments]}
    fine = "has(object.spec.template) ? object.spec.template.spec != null : object.spec.containers != []"
    assert look(policy(matchConstraints=both, **checks(fine))) == []
    (found,) = look(policy(matchConstraints=both, **checks("object.spec.templte != null")))
    assert found[1] == "undefined field 'templte'"


@pytest.mark.parametrize(
    ("kind", "spec", "check"),
    [
        ("MutatingPolicy", {"mutations": []}, "bad-mutate"),
        ("MutatingPolicy", {**PRIORITY, "evaluation": {"admission": {"enabled": False}}}, "bad-settings"),
        ("MutatingPolicy", {**PRIORITY, **WITH_VARIABLES, "autogen": {"mutatingAdmissionPolicy": {"enabled": True}}}, "bad-settings"),
        ("MutatingPolicy", {"mutations": [{"patchType": "JSONPatch"}]}, "bad-mutate"),
        ("MutatingPolicy", {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}, "bad-expression"),
        ("MutatingPolicy", {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "{}"}}]}, "bad-expression"),
        ("MutatingAdmissionPolicy", {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'x', path: 1 +}]"}}]}, "bad-expression"),
        ("GeneratingPolicy", {"generate": [{"expression": "1"}]}, "bad-expression"),
        ("DeletingPolicy", {"schedule": "often", "conditions": []}, "bad-schedule"),
        ("DeletingPolicy", {"schedule": "* * * * *", "conditions": [{"name": "a", "expression": "1"}]}, "bad-expression"),
        ("ValidatingAdmissionPolicy", checks("params.x == 1"), "bad-expression"),
        ("ValidatingAdmissionPolicy", checks("hash.sha256('a') == ''"), "bad-expression"),
        ("ImageValidatingPolicy", {**checks("true"), "matchImageReferences": [{"expression": "reff == ''"}]}, "bad-expression"),
        ("ImageValidatingPolicy", {**checks("true"), "attestors": [{"name": "a"}]}, "bad-images"),
        ("ImageValidatingPolicy", {**checks("true"), "attestors": [{"name": "a", "cosign": {"ctlog": {"url": "u"}}}]}, "bad-images"),
        ("ImageValidatingPolicy", {**checks("true"), "attestors": [{"name": "a", "cosign": {"key": {"hashAlgorithm": "sha256"}}}]}, "bad-images"),
        ("ImageValidatingPolicy", {**checks("true"), "attestors": [{"name": "a", "cosign": {"keyless": {"identities": [{"issuer": ""}]}}}]}, "bad-images"),
        ("ImageValidatingPolicy", {**checks("true"), "attestors": [{"name": "a", "notary": {"tsaCerts": {"value": "v"}}}]}, "bad-images"),
        ("ImageValidatingPolicy", {**checks("true"), "attestors": [{"name": "a", "cosign": {"key": {"data": "k"}, "tuf": {"root": {"path": "/r"}}}}]}, "bad-images"),
        ("ImageValidatingPolicy", {**checks("true"), "attestations": [{"name": "a"}]}, "bad-images"),
        ("NamespacedValidatingPolicy", checks("resource.Get('v1', 'pods', 'other', 'x') != null"), "bad-expression"),
    ],
)  # fmt: skip
def test_each_kind_has_its_own_rules(kind, spec, check):
    assert [found[0] for found in look(policy(kind, **spec))] == [check]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("MutatingPolicy", {**PRIORITY, **WITH_VARIABLES}),
        ("MutatingPolicy", {**PRIORITY, "evaluation": {"admission": {"enabled": False}, "mutateExisting": {"enabled": True}}}),
        ("MutatingPolicy", {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a': '1'}}]"}}]}),
        ("MutatingPolicy", {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{spec: Object.spec{priority: 1, hostname: 'x'}}"}}]}),
        ("GeneratingPolicy", {"generate": [{"expression": "generator.Apply('a', [])"}]}),
        ("DeletingPolicy", {"schedule": "* * * * *", "conditions": [{"name": "a", "expression": "object.metadata.name == ''"}]}),
        ("ValidatingAdmissionPolicy", {**checks("params.data.x == '1'"), "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}),
        ("ValidatingAdmissionPolicy", checks("authorizer.group('').resource('pods').check('get').allowed()")),
        ("ImageValidatingPolicy", {**checks("images.containers.all(i, i != '')"), "matchImageReferences": [{"expression": "ref == ''"}]}),
        ("ImageValidatingPolicy", {**checks("true"), "attestors": [{"name": "a", "cosign": {"keyless": {"identities": [{"issuer": ""}], "roots": "r"}}}]}),
    ],
)  # fmt: skip
def test_each_kind_has_its_own_words(kind, spec):
    assert look(policy(kind, **spec)) == []


@pytest.mark.parametrize("body", [None, [], 1, {}, {"spec": []}, {"spec": {"validations": 1}}, {"kind": 1, "spec": {"variables": [1, {}], "matchConstraints": "x"}}])  # fmt: skip
def test_odd_documents_do_no_harm(body):
    lint_cel_policy(body, NAMES, KnownSchemas())
    lint_binding(body, (), NAMES)
    lint_cel_exception(body, ())


KNOWN = (("ValidatingAdmissionPolicy", "limits"), ("ValidatingPolicy", "labels"))


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"policyName": "limits", "validationActions": ["Deny"]}, []),
        ({"policyName": "limts", "validationActions": ["Deny"]}, ["unknown-reference"]),
        ({"policyName": "limits"}, ["bad-settings"]),
        ({"policyName": "limits", "validationActions": ["Deny", "Warn"]}, ["bad-settings"]),
        ({"policyName": "limits", "validationActions": ["Warn"], "paramRef": {"name": "a"}}, ["bad-settings"]),
        ({"policyName": "limits", "validationActions": ["Warn"], "paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}}, ["bad-settings"]),
        ({"policyName": "limits", "validationActions": ["Warn"], "matchResources": {"resourceRules": [{**PODS, "resources": ["pod"]}]}}, ["unknown-resource"]),
    ],
)  # fmt: skip
def test_bindings(spec, found):
    body = {
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": spec,
    }
    assert [fault.check for fault in lint_binding(body, KNOWN, NAMES)] == found


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"policyRefs": [{"name": "labels", "kind": "ValidatingPolicy"}]}, []),
        ({"policyRefs": [{"name": "label", "kind": "ValidatingPolicy"}]}, ["unknown-reference"]),
        ({"policyRefs": [{"name": "labels", "kind": "MutatingPolicy"}]}, []),
        ({"policyRefs": [{"name": "labels", "kind": "ClusterPolicy"}]}, ["bad-field"]),
        ({"policyRefs": []}, ["bad-settings"]),
        ({"policyRefs": [{"name": "labels", "kind": "ValidatingPolicy"}], "matchConditions": [{"name": "a", "expression": "objct == 1"}]}, ["bad-expression"]),
    ],
)  # fmt: skip
def test_exceptions(spec, found):
    body = {"kind": "PolicyException", "metadata": {"name": "e"}, "spec": spec}
    assert [fault.check for fault in lint_cel_exception(body, KNOWN)] == found


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"validate": {"cel": {"expressions": [{"expression": "object.spec.containers != []"}]}}}, []),
        ({"validate": {"cel": {"expressions": [{"expression": "object.spec.contaners != []"}]}}}, ["unknown-property"]),
        ({"validate": {"cel": {"expressions": [{"expression": "objct != []"}]}}}, ["bad-expression"]),
        ({"validate": {"cel": {"expressions": [{"expression": "true", "messageExpression": "1"}]}}}, ["bad-expression"]),
        ({"validate": {"cel": {"expressions": [{"expression": "true"}], "variables": [{"name": "a", "expression": "1"}]}}}, ["unused-variable"]),
        ({"validate": {"cel": {"expressions": [{"expression": "true"}], "auditAnnotations": [{"key": "a", "valueExpression": "1"}]}}}, ["bad-expression"]),
        ({"celPreconditions": [{"name": "a", "expression": "1"}], "validate": {"cel": {"expressions": [{"expression": "true"}]}}}, ["bad-expression"]),
    ],
)  # fmt: skip
def test_classic_rules(rule, found):
    match = {"any": [{"resources": {"kinds": ["Pod"], "operations": ["CREATE"]}}]}
    rules = [{"name": "r", "match": match, **rule}]
    body = {"kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"rules": rules}}
    assert [fault.check for fault in lint_policy(body, KnownSchemas())] == found


def test_conditions_of_the_webhook():
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    rule = {"name": "r", "match": match, "validate": {"deny": {}}}
    spec = {
        "rules": [rule],
        "webhookConfiguration": {"matchConditions": [{"name": "a", "expression": "requst == 1"}]},
    }
    body = {"kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": spec}
    (fault,) = lint_policy(body, KnownSchemas())
    assert (fault.check, fault.path[-1]) == ("bad-expression", "expression")
