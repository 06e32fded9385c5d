"""Policies in CEL become records: Kubernetes' own, Kyverno's, bindings and exceptions."""

import json

import msgspec
import pytest

from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.load.policies import Loaded, load_documents
from lictor.core.model.finding import Severity

# Of policies, bindings, policies that delete and exceptions.
ROLES = (Role.POLICY, Role.BINDING, Role.DELETION, Role.EXCEPTION)
KYVERNO = ("Validating", "Mutating", "Generating", "Deleting", "ImageValidating")
SPECS = {
    "ValidatingPolicy": {},
    "MutatingPolicy": {},
    "GeneratingPolicy": {"generate": [{"expression": "generator.apply('ns', [])"}]},
    "DeletingPolicy": {"schedule": "0 * * * *"},
    "ImageValidatingPolicy": {"attestors": [], "validations": []},
    "PolicyException": {"policyRefs": [{"name": "p", "kind": "ValidatingPolicy"}]},
}


def write(kind, spec, *, group="policies.kyverno.io", version="v1", metadata=None):
    head = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": metadata or {"name": "v"}}
    return json.dumps({**head, "spec": spec})


def load_one(text):
    loaded = load_documents(text, "f.yaml")
    assert loaded.problems == ()
    (found,) = loaded.records
    return found


def count(loaded):
    return tuple(len(loaded.with_role(role)) for role in ROLES)


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("ValidatingAdmissionPolicy", (1, 0, 0, 0)),
        ("MutatingAdmissionPolicy", (1, 0, 0, 0)),
        ("ValidatingAdmissionPolicyBinding", (0, 1, 0, 0)),
        ("MutatingAdmissionPolicyBinding", (0, 1, 0, 0)),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_kubernetes_kinds(kind, version, counts):
    text = write(kind, {}, group="admissionregistration.k8s.io", version=version)
    loaded = load_documents(text, "f.yaml")
    assert count(loaded) == counts
    assert loaded.problems == ()


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_kyverno_kinds(kind, version):
    loaded = load_documents(write(kind, SPECS[kind], version=version), "f.yaml")
    counts = {"PolicyException": (0, 0, 0, 1), "DeletingPolicy": (0, 0, 1, 0)}
    assert count(loaded) == counts.get(kind, (1, 0, 0, 0))
    assert loaded.problems == ()


@pytest.mark.parametrize("kind", [f"{word}Policy" for word in KYVERNO])
@pytest.mark.parametrize(("version", "known"), [("v1", 1), ("v1beta1", 1), ("v1alpha1", 0)])
def test_namespaced_kinds_are_newer(kind, version, known):
    text = write(f"Namespaced{kind}", SPECS[kind], version=version)
    loaded = load_documents(text, "f.yaml")
    assert len(loaded.listed) == known
    assert len(loaded.problems) == 1 - known


def test_one_record_for_a_kind_and_its_namespaced_twin():
    plain = load_one(write("ValidatingPolicy", {}))
    metadata = {"name": "v", "namespace": "ns"}
    namespaced = load_one(write("NamespacedValidatingPolicy", {}, metadata=metadata))
    assert type(plain) is type(namespaced)
    assert (plain.kind, namespaced.kind) == ("ValidatingPolicy", "NamespacedValidatingPolicy")
    assert namespaced.metadata.namespace == "ns"


def test_files_add_up():
    kinds = ("ValidatingPolicy", "MutatingPolicy", "PolicyException")
    loaded = Loaded()
    for kind in kinds:
        loaded += load_documents(write(kind, SPECS[kind]), f"{kind}.yaml")
    assert count(loaded) == (2, 0, 0, 1)
    assert [sourced.source for sourced in loaded.policies] == [
        "ValidatingPolicy.yaml",
        "MutatingPolicy.yaml",
    ]


@pytest.mark.parametrize(
    ("kind", "spec", "path", "message", "suggestion", "severity"),
    [
        (
            "ValidatingPolicy",
            {"validation": []},
            "spec.validation",
            'unknown field "validation"',
            "validations",
            Severity.WARNING,
        ),
        (
            "ValidatingPolicy",
            {"matchConstraints": {"resourceRules": [{"apigroups": [""]}]}},
            "spec.matchConstraints.resourceRules[0].apigroups",
            'unknown field "apigroups"',
            "apiGroups",
            Severity.WARNING,
        ),
        (
            "ValidatingPolicy",
            {"validations": [{"message": "no"}]},
            "spec.validations[0]",
            'required field "expression" is missing',
            "",
            Severity.ERROR,
        ),
        (
            "ValidatingPolicy",
            {"validationActions": ["deny"]},
            "spec.validationActions[0]",
            'expected one of Audit, Deny, Warn, found the string "deny"',
            "Deny",
            Severity.ERROR,
        ),
        (
            "ValidatingPolicy",
            {"matchConstraints": {"resourceRules": [{"operations": ["create"]}]}},
            "spec.matchConstraints.resourceRules[0].operations[0]",
            'expected one of *, CONNECT, CREATE, DELETE, UPDATE, found the string "create"',
            "CREATE",
            Severity.ERROR,
        ),
        (
            "MutatingPolicy",
            {"mutations": [{"jsonPatch": {"expression": "[]"}}]},
            "spec.mutations[0]",
            'required field "patchType" is missing',
            "",
            Severity.ERROR,
        ),
        (
            "GeneratingPolicy",
            {},
            "spec",
            'required field "generate" is missing',
            "",
            Severity.ERROR,
        ),
        (
            "DeletingPolicy",
            {},
            "spec",
            'required field "schedule" is missing',
            "",
            Severity.ERROR,
        ),
        (
            "PolicyException",
            {"policyRefs": [{"name": "p"}]},
            "spec.policyRefs[0]",
            'required field "kind" is missing',
            "",
            Severity.ERROR,
        ),
    ],
)
def test_problems(kind, spec, path, message, suggestion, severity):
    loaded = load_documents(write(kind, spec), "f.yaml")
    (problem,) = loaded.problems
    assert (problem.field, problem.message, problem.suggestion) == (path, message, suggestion)
    assert (problem.severity, problem.kind, problem.name) == (severity, kind, "v")
    assert sum(count(loaded)) == (severity is Severity.WARNING)
    assert not loaded.raw


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nspec: {}\n",
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: 1}\nspec: {}\n",
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: []\nspec: []\n",
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: v}\n",
        "apiVersion: policies.kyverno.io/v7\nkind: ValidatingPolicy\nmetadata: {name: v}\nspec: {}\n",
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: v}\n"
        "spec: {}\nspec: {}\n",
    ],
)
def test_broken_documents(text):
    loaded = load_documents(text, "f.yaml")
    assert sum(count(loaded)) == 0
    assert any(problem.severity is Severity.ERROR for problem in loaded.problems)


def test_defaults_are_those_of_the_api_server():
    spec = load_one(write("ValidatingPolicy", {})).spec
    assert (spec.failure_policy, spec.validation_actions) == ("Fail", ())
    assert (spec.evaluation.mode, spec.evaluation.admission.enabled) == ("Kubernetes", True)
    assert spec.evaluation.background.enabled
    assert spec.match_constraints is None
    assert not spec.autogen.validating_admission_policy.enabled
    rules = {"matchConstraints": {"resourceRules": [{}]}}
    constraints = load_one(write("MutatingPolicy", rules)).spec.match_constraints
    assert (constraints.match_policy, constraints.resource_rules[0].scope) == ("Equivalent", "*")
    exception = load_one(write("PolicyException", SPECS["PolicyException"])).spec
    assert exception.report_result == "skip"


@pytest.mark.parametrize(
    ("autogen", "controllers"),
    [
        ({}, None),
        ({"podControllers": {}}, None),
        ({"podControllers": {"controllers": []}}, ()),
        ({"podControllers": {"controllers": ["jobs"]}}, ("jobs",)),
    ],
)
def test_no_controllers_are_not_all_controllers(autogen, controllers):
    found = load_one(write("ValidatingPolicy", {"autogen": autogen})).spec.autogen.pod_controllers
    assert (None if found is None else found.controllers) == controllers


IMAGES = {
    "attestors": [
        {
            "name": "a",
            "cosign": {
                "keyless": {"identities": [{"issuerRegExp": "i", "subject": "s"}], "roots": "r"},
                "ctlog": {"insecureIgnoreSCT": True, "insecureIgnoreTlog": True, "url": "u"},
                "source": {"PullSecrets": [{"name": "s"}], "tagPrefix": "t"},
                "tuf": {"root": {"path": "p"}, "mirror": "m"},
                "certificate": {"cert": {"value": "c"}, "certChain": {"expression": "e"}},
            },
        },
        {"name": "b", "notary": {"certs": {"value": "c"}, "tsaCerts": {"value": "t"}}},
    ],
    "attestations": [{"name": "sbom", "intoto": {"type": "t"}, "referrer": {"type": "t"}}],
    "validations": [{"expression": "true", "message": "m"}],
    "images": [{"name": "i", "expression": "[]"}],
    "matchImageReferences": [{"glob": "*"}],
    "credentials": {"providers": ["amazon"], "secrets": ["s"]},
    "validationConfigurations": {"mutateDigest": False},
}
TARGETS = {
    "matchConstraints": {
        "namespaceSelector": {"matchLabels": {"a": "b"}},
        "resourceRules": [{"apiGroups": ["apps"], "resources": ["deployments"]}],
        "excludeResourceRules": [{"resourceNames": ["x"], "operations": ["*"]}],
        "matchPolicy": "Exact",
    },
    "targetMatchConstraints": {
        "expression": "resource.List('v1', 'pods', 'ns').items",
        "objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    },
    "mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}},
    ],
    "evaluation": {"mode": "JSON", "mutateExisting": {"enabled": True}},
    "reinvocationPolicy": "IfNeeded",
    "webhookConfiguration": {"timeoutSeconds": 5},
}
CHECKS = {
    "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    "validations": [{"expression": "true", "messageExpression": "'m'", "reason": "Invalid"}],
    "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}],
    "matchConditions": [{"name": "c", "expression": "true"}],
    "variables": [{"name": "v", "expression": "1"}],
    "failurePolicy": "Ignore",
}
BOUND = {
    "policyName": "p",
    "paramRef": {"name": "c", "namespace": "n", "parameterNotFoundAction": "Deny"},
    "matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}},
    "validationActions": ["Deny", "Audit"],
}
GENERATION = {
    "generate": [{"expression": "e"}],
    "evaluation": {
        "synchronize": {"enabled": True},
        "generateExisting": {"enabled": True},
        "orphanDownstreamOnPolicyDelete": {"enabled": True},
        "admission": {"enabled": False},
    },
}
DELETION = {
    "schedule": "* * * * *",
    "conditions": [{"name": "c", "expression": "true"}],
    "deletionPropagationPolicy": "Orphan",
}
EXCEPTION = {
    "policyRefs": [{"name": "p", "kind": "ValidatingPolicy"}],
    "matchConditions": [{"name": "c", "expression": "true"}],
    "images": ["ghcr.io/*"],
    "allowedValues": ["x"],
    "reportResult": "pass",
}


@pytest.mark.parametrize(
    ("group", "kind", "spec"),
    [
        ("policies.kyverno.io", "ImageValidatingPolicy", IMAGES),
        ("policies.kyverno.io", "MutatingPolicy", TARGETS),
        ("policies.kyverno.io", "GeneratingPolicy", GENERATION),
        ("policies.kyverno.io", "DeletingPolicy", DELETION),
        ("policies.kyverno.io", "PolicyException", EXCEPTION),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", CHECKS),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", BOUND),
    ],
)
def test_nothing_that_was_written_is_lost(group, kind, spec):
    record = load_one(write(kind, spec, group=group))
    assert json.loads(msgspec.json.encode(record))["spec"] == spec


def test_every_record_is_frozen():
    for kind in registry().kinds:
        assert kind.family.get_record(kind).__struct_config__.frozen
