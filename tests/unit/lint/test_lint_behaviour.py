"""What policies do in a cluster: what lint says of them is what the engine does, and no more is said."""

from pathlib import Path

import pytest
import yaml

import lictor
from lictor.cli.inputs.records import FILE_RECORDS
from lictor.core.facts.resource_names import builtin_names
from lictor.lint.documents_by_kind import check_behaviour, check_cel_behaviour
from lictor.lint.run import lint_texts

CASES = Path(__file__).parents[2] / "cases" / "lint"


def read(name):
    return yaml.safe_load((CASES / f"{name}.yaml").read_text())


def make(kind, spec, api_version="v1", **metadata):
    metadata = {"name": "x", "namespace": "shop", **metadata}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


POD = make(
    "Pod",
    {
        "securityContext": {},
        "tolerations": [],
        "containers": [{"name": "a", "image": "b", "resources": {}, "env": []}],
    },
)
JOB = make("Job", {"template": {"spec": {"containers": []}}}, "batch/v1")
SERVICE = make("Service", {"type": "ClusterIP"}, labels={"team": "shop"})
DEPLOYMENT = make("Deployment", {"replicas": 1, "selector": {"matchLabels": {}}}, "apps/v1")


def judge(name, resource, operation="CREATE", **fields):
    engine = lictor.Engine(lictor.parse_policies(read(name)))
    return engine.evaluate(lictor.Request.of(resource, operation=operation, **fields))


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("deny-also-asked-on-delete", JOB),
        ("images-are-empty-on-delete", POD),
        ("cel-without-object-on-delete", POD),
        ("assertion-asked-on-delete", SERVICE),
    ],
)
def test_what_blocks_deletion_does(name, resource):
    assert not judge(name, resource, "DELETE").allowed


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("security-context-is-never-added", POD),
        ("resources-are-never-added", POD),
        ("replicas-are-never-added", DEPLOYMENT),
    ],
)
def test_what_is_never_added_is_not(name, resource):
    assert judge(name, resource).patched == resource


@pytest.mark.parametrize(
    "name",
    ["toleration-added-again", "variable-added-again-to-each-container", "image-prefixed-again"],
)
def test_what_is_not_idempotent_is_not(name):
    once = judge(name, POD).patched
    assert once != POD
    assert judge(name, once).patched != once


@pytest.mark.parametrize(
    ("name", "resource"),
    [("pod-spec-changed-on-update", POD), ("selector-changed-on-update", DEPLOYMENT)],
)
def test_immutable_fields_are_changed_on_update(name, resource):
    assert judge(name, resource, "UPDATE", old=resource).patched != resource


@pytest.mark.parametrize("name", ["old-object-of-a-new-one", "old-object-on-create-in-cel"])
def test_without_an_old_object_nothing_can_be_decided(name):
    assert [result.status for result in judge(name, SERVICE).results] == ["error"]


# --- what is left alone


def rule(kinds="Pod", operations=(), exclude=None, **fields):
    resources = {"kinds": [kinds], **({"operations": list(operations)} if operations else {})}
    return {
        "name": "r",
        "match": {"any": [{"resources": resources}]},
        **({"exclude": {"any": [{"resources": exclude}]}} if exclude else {}),
        **fields,
    }


SYSTEM = {"namespaces": ["kube-*"]}
DENY = {"failureAction": "Enforce", "deny": {"conditions": {"all": []}}}
CREATING = {"all": [{"key": "{{ request.operation }}", "operator": "Equals", "value": "CREATE"}]}
HERE = {"all": [{"key": "{{ request.namespace }}", "operator": "Equals", "value": "shop"}]}
PATTERN = {"failureAction": "Enforce", "pattern": {"metadata": {"labels": {"a": "?*"}}}}
CEL = {"failureAction": "Enforce", "cel": {"expressions": [{"expression": "object.spec.x == 1"}]}}
GUARDED = {"cel": {"expressions": [{"expression": "object == null || object.spec.x == 1"}]}}
ADDING = '[{"op": "add", "path": "/spec/tolerations/-", "value": {}}]'
OLD = {"key": "{{ request.oldObject.spec.type }}", "operator": "Equals", "value": "x"}
OLD_OR_NONE = {**OLD, "key": "{{ request.oldObject.spec.type || '' }}"}


def merge(patch, **fields):
    return rule(mutate={"patchStrategicMerge": patch}, operations=["CREATE"], **fields)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (rule(validate=DENY), ["blocks-deletion", "system-namespaces"]),
        (rule(validate=DENY, exclude=SYSTEM), ["blocks-deletion"]),
        (rule(validate={**DENY, "failureAction": "Audit"}), []),
        (rule(validate=DENY, exclude=SYSTEM, operations=["CREATE"]), []),
        (rule(validate=DENY, exclude=SYSTEM, operations=["DELETE"]), []),
        (rule(validate=DENY, exclude=SYSTEM, preconditions=CREATING), []),
        (rule(validate=PATTERN, exclude=SYSTEM), []),
        (rule(validate=PATTERN), ["system-namespaces"]),
        (rule(validate=PATTERN, kinds="Namespace"), []),
        (rule(validate=PATTERN, kinds="Pod/exec"), []),
        (rule(validate=PATTERN, kinds="*"), ["system-namespaces"]),
        (rule(validate=PATTERN, preconditions=HERE), []),
        (rule(validate=PATTERN, operations=["DELETE"]), []),
        (rule(validate=CEL, exclude=SYSTEM), ["blocks-deletion"]),
        (rule(validate={**CEL, **GUARDED}, exclude=SYSTEM), []),
        (merge({"spec": {"+(securityContext)": {"runAsUser": 1}}}), ["never-added"]),
        (merge({"spec": {"securityContext": {"+(runAsUser)": 1}}}), []),
        (merge({"spec": {"template": {"spec": {"+(dnsPolicy)": "x"}}}}, kinds="Job"), ["never-added"]),
        (merge({"spec": {"template": {"spec": {"+(serviceAccountName)": "x"}}}}, kinds="Job"), []),
        (merge({"spec": {"+(securityContext)": {}}}, kinds="Deployment"), []),
        (merge({"metadata": {"labels": {"a": "{{ request.object.metadata.labels.a }}-b"}}}), ["not-idempotent"]),
        (merge({"metadata": {"labels": {"a": "{{ request.object.metadata.labels.a }}"}}}), []),
        (merge({"metadata": {"labels": {"a": "{{ request.object.metadata.name }}-b"}}}), []),
        (rule(mutate={"patchesJson6902": ADDING}, operations=["CREATE"]), ["not-idempotent"]),
        (rule(mutate={"patchesJson6902": ADDING}, preconditions=CREATING), []),
        (rule(mutate={"patchStrategicMerge": {"spec": {"hostPID": False}}}), ["immutable-field"]),
        (rule(mutate={"patchStrategicMerge": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}), []),
        (rule(mutate={"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}), []),
        (rule(mutate={"patchStrategicMerge": {"spec": {"hostPID": False}}, "targets": [{}]}), []),
        (rule(validate={"deny": {"conditions": {"all": [OLD]}}}), ["no-old-object"]),
        (rule(validate={"deny": {"conditions": {"all": [OLD_OR_NONE]}}}), []),
        (rule(validate={"deny": {"conditions": {"all": [OLD]}}}, preconditions=CREATING), []),
    ],
)  # fmt: skip
def test_what_is_told_and_what_is_left_alone(given, found):
    policy = {"kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"rules": [given]}}
    assert [each.check for each in check_behaviour(policy, (), builtin_names())] == found


@pytest.mark.parametrize(
    ("operations", "expression", "found"),
    [
        (["DELETE"], "object.spec.x == 1", ["blocks-deletion"]),
        (["DELETE"], "oldObject.spec.x == 1", []),
        (["CREATE", "UPDATE"], "object.spec.x == 1", []),
        (["*"], "object.spec.x == oldObject.spec.x", ["blocks-deletion", "no-old-object"]),
        (["*"], "request.operation == 'DELETE' || object.spec.x == 1", []),
        (["CREATE"], "oldObject == null || oldObject.spec.x == 1", []),
        (["CREATE"], "oldObject.?spec.x.orValue(1) == 1", []),
    ],
)
def test_policies_in_cel(operations, expression, found):
    match = {"resourceRules": [{"operations": operations}]}
    spec = {"matchConstraints": match, "validations": [{"expression": expression}]}
    assert [each.check for each in check_cel_behaviour({"spec": spec})] == found


@pytest.mark.parametrize(
    "body", [None, 7, {"spec": {"rules": [None, {"mutate": [1], "match": 3}]}}]
)
def test_nothing_crashes(body):
    assert not [*check_behaviour(body, (), builtin_names()), *check_cel_behaviour(body)]


# --- rights


def test_the_printed_role_is_what_is_needed():
    policy = read("rights-for-a-generated-object")
    (finding,) = check_behaviour(policy, (), builtin_names())
    role = yaml.safe_load(finding.message.partition("apply this one: ")[2])
    assert role["metadata"]["labels"] == {
        "rbac.kyverno.io/aggregate-to-background-controller": "true"
    }
    assert role["rules"] == [
        {
            "apiGroups": ["networking.k8s.io"],
            "resources": ["networkpolicies"],
            "verbs": ["create", "delete", "get", "list", "update", "watch"],
        }
    ]
    assert not list(check_behaviour(policy, (role,), builtin_names()))
    del role["metadata"]["labels"]
    assert list(check_behaviour(policy, (role,), builtin_names()))


def test_all_rules_of_a_policy_have_one_role():
    policy = read("rights-for-a-generated-object")
    second = read("rights-for-changed-targets")["spec"]["rules"]
    policy["spec"]["rules"] += second
    (finding,) = check_behaviour(policy, (), builtin_names())
    role = yaml.safe_load(finding.message.partition("apply this one: ")[2])
    assert [each["resources"] for each in role["rules"]] == [["networkpolicies"], ["secrets"]]


CLEANUP = "rbac.kyverno.io/aggregate-to-cleanup-controller"
BACKGROUND = "rbac.kyverno.io/aggregate-to-background-controller"


@pytest.mark.parametrize(
    ("name", "label", "resources"),
    [
        ("rights-for-an-object-made-in-cel", BACKGROUND, ["poddisruptionbudgets", "secrets"]),
        ("rights-for-existing-objects-in-cel", BACKGROUND, ["deployments"]),
        ("rights-to-delete-in-cel", CLEANUP, ["jobs"]),
        ("rights-to-clean-up", CLEANUP, ["pods"]),
    ],
)
def test_the_printed_role_lets_a_policy_work(name, label, resources):
    policy = (CASES / f"{name}.yaml").read_bytes()
    (finding,) = lint_texts([("a.yaml", policy)], FILE_RECORDS).findings
    text = finding.message.partition("apply this one: ")[2]
    role = yaml.safe_load(text)
    assert role["metadata"]["labels"] == {label: "true"}
    assert [each["resources"][0] for each in role["rules"]] == resources
    assert not lint_texts([("a.yaml", policy), ("b.yaml", text.encode())], FILE_RECORDS).findings
    other = text.replace(label, BACKGROUND if label == CLEANUP else CLEANUP)
    assert lint_texts([("a.yaml", policy), ("b.yaml", other.encode())], FILE_RECORDS).findings


def test_what_changes_only_what_is_asked_about_needs_no_rights():
    policy = read("rights-for-existing-objects-in-cel")
    del policy["spec"]["evaluation"], policy["spec"]["targetMatchConstraints"]
    assert not list(check_cel_behaviour(policy))


def test_what_is_only_read_is_not_made():
    policy = read("rights-for-an-object-made-in-cel")
    policy["spec"]["variables"] = [
        {"name": "token", "expression": 'resource.Get("v1", "secrets", "a", "b").metadata.name'}
    ]
    call = 'generator.Apply(variables.token, [{"kind": "ConfigMap", "apiVersion": "v1"}])'
    policy["spec"]["generate"] = [{"expression": call}]
    (finding,) = check_cel_behaviour(policy)
    role = yaml.safe_load(finding.message.partition("apply this one: ")[2])
    assert [each["resources"] for each in role["rules"]] == [["configmaps"]]
