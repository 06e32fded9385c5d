"""DeletingPolicy: what would be deleted, and when."""

from datetime import UTC, datetime

import pytest

from lictor.core.compile.context import CompileContext
from lictor.core.errors import CompileError, EvaluationError
from lictor.core.families.kyverno_cel.deleting import compile_deleting
from lictor.core.model.request import Request

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {},
}
SWITCH = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "switch", "namespace": "shop"},
    "data": {"on": "true"},
}
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def policy(*conditions, kind="DeletingPolicy", **spec):
    metadata = {"name": "p"}
    if kind.startswith("Namespaced"):
        metadata["namespace"] = "shop"
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "schedule": "*/5 * * * *",
            "matchConstraints": {"resourceRules": [RULE]},
            "conditions": [{"name": "c", "expression": text} for text in conditions],
            **spec,
        },
    }


@pytest.fixture
def sweep(load, cluster):
    def sweep(*documents):
        records = load(documents)
        return compile_deleting(records[0], CompileContext(cluster(SWITCH), records))

    return sweep


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (policy(), True),
        (policy('object.metadata.name == "web"'), True),
        (policy('object.metadata.name == "other"'), False),
        (policy("variables.yes", variables=[{"name": "yes", "expression": "true"}]), True),
        (policy('resource.Get("v1", "configmaps", "shop", "switch").data["on"] == "true"'), True),
        (policy(matchConstraints={"resourceRules": [{**RULE, "resources": ["jobs"]}]}), False),
        (policy(matchConstraints={"resourceRules": [{**RULE, "operations": ["DELETE"]}]}), True),
        (policy(kind="NamespacedDeletingPolicy"), True),
    ],
)
def test_what_is_deleted(sweep, document, expected):
    assert sweep(document).concerns(Request.of(POD)) is expected


def test_a_namespaced_policy_ends_at_its_namespace(sweep):
    elsewhere = {**POD, "metadata": {"name": "web", "namespace": "other"}}
    program = sweep(policy(kind="NamespacedDeletingPolicy"))
    assert not program.concerns(Request.of(elsewhere))


@pytest.mark.parametrize(("name", "expected"), [("web", False), ("other", True)])
def test_exceptions_spare_objects(sweep, name, expected):
    exception = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "e"},
        "spec": {
            "policyRefs": [{"name": "p", "kind": "DeletingPolicy"}],
            "matchConditions": [{"name": "c", "expression": f'object.metadata.name == "{name}"'}],
        },
    }
    assert sweep(policy(), exception).concerns(Request.of(POD)) is expected


def test_what_cannot_be_decided_is_not_deleted(sweep):
    with pytest.raises(EvaluationError, match="no such key: nope"):
        sweep(policy("object.nope == 1")).concerns(Request.of(POD))


@pytest.mark.parametrize(
    "document", [policy("object."), policy('"text"'), policy(schedule="never")]
)
def test_what_makes_no_sense_does_not_compile(sweep, document):
    with pytest.raises(CompileError):
        sweep(document)


def test_schedule_and_propagation(sweep):
    program = sweep(policy(deletionPropagationPolicy="Orphan"))
    now = datetime(2026, 1, 1, 10, 2, tzinfo=UTC)
    assert program.next_run(now) == datetime(2026, 1, 1, 10, 5, tzinfo=UTC)
    assert program.propagation == "Orphan"
