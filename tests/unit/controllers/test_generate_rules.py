"""Which rules make objects, what sets them off, and what becomes of what they made."""

import orjson
import pytest

from lictor.controllers.generate.rules import list_generate_rules
from lictor.core.assembly import compile_documents
from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Operation
from lictor.kubernetes.resource import NAMESPACE, Resource, find_resource
from lictor.kubernetes.stored_policy import StoredPolicy

CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))
GENERATING_POLICY = find_resource(registry().get("policies.kyverno.io", "GeneratingPolicy"))

CONFIG_MAP = Resource("", "v1", "configmaps", "ConfigMap")


class Store:
    """Policies from documents, compiled as the cluster's are."""

    def __init__(self, *documents):
        self.policies = tuple(self._read(document) for document in documents)

    def _read(self, document):
        loaded = load_documents(orjson.dumps(document), "test")
        records = loaded.listed
        kind = CLUSTER_POLICY if document["kind"] == "ClusterPolicy" else GENERATING_POLICY
        return StoredPolicy(kind, document, records[0].record)

    def mark(self, policy):
        return "1"

    def programs(self, policy):
        return compile_documents([policy.record])


def classic(generate, *, operations=(), spec=None, **rule):
    resources = {"kinds": ["Namespace"]}
    if operations:
        resources["operations"] = list(operations)
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "policy"},
        "spec": {
            **(spec or {}),
            "rules": [
                {
                    "name": "rule",
                    "match": {"any": [{"resources": resources}]},
                    "generate": {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": "made",
                        "namespace": "{{request.object.metadata.name}}",
                        **generate,
                    },
                    **rule,
                }
            ],
        },
    }


def cel(**evaluation):
    return {
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": "GeneratingPolicy",
        "metadata": {"name": "policy"},
        "spec": {
            "evaluation": evaluation,
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["namespaces"],
                    }
                ]
            },
            "generate": [{"expression": "generator.Apply('x', [])"}],
        },
    }


DATA = {"data": {"data": {"a": "b"}}}
CLONE = {"clone": {"namespace": "vault", "name": "source"}}
FOREACH = {
    "foreach": [{"list": "request.object.x", "apiVersion": "v1", "kind": "ConfigMap", **DATA}]
}


@pytest.mark.parametrize(
    ("document", "synchronize", "orphan", "existing"),
    [
        pytest.param(classic(DATA), False, False, False, id="plain"),
        pytest.param(classic({**DATA, "synchronize": True}), True, False, False, id="synchronize"),
        pytest.param(classic(CLONE), False, True, False, id="copies-outlive-their-policy"),
        pytest.param(
            classic({**DATA, "orphanDownstreamOnPolicyDelete": True}), False, True, False,
            id="orphan",
        ),
        pytest.param(classic(DATA, spec={"generateExisting": True}), False, False, True, id="all"),
        pytest.param(
            classic({**DATA, "generateExisting": False}, spec={"generateExisting": True}),
            False, False, False, id="the-rule-knows-better",
        ),
        pytest.param(
            cel(synchronize={"enabled": True}, generateExisting={"enabled": True}),
            True, False, True, id="cel",
        ),
        pytest.param(
            cel(orphanDownstreamOnPolicyDelete={"enabled": True}), False, True, False,
            id="cel-orphan",
        ),
    ],
)  # fmt: skip
def test_what_a_rule_says(document, synchronize, orphan, existing):
    (rule,) = list_generate_rules(Store(document))
    assert (rule.synchronize, rule.orphan, rule.existing) == (synchronize, orphan, existing)


@pytest.mark.parametrize(
    ("operations", "alive", "gone"),
    [
        pytest.param((), True, False, id="unsaid-means-not-deletion"),
        pytest.param(("CREATE",), True, False, id="create"),
        pytest.param(("DELETE",), False, True, id="delete"),
        pytest.param(("UPDATE", "DELETE"), True, True, id="update-and-delete"),
    ],
)
def test_what_sets_it_off(operations, alive, gone):
    (rule,) = list_generate_rules(Store(classic(DATA, operations=operations)))
    assert rule.is_kept_by(NAMESPACE) is alive
    assert rule.is_triggered_by(NAMESPACE, (Operation.DELETE,)) is gone
    assert not rule.is_kept_by(CONFIG_MAP)


@pytest.mark.parametrize(
    ("document", "needs"),
    [
        pytest.param(classic(DATA), False, id="object-only"),
        pytest.param(
            classic({"data": {"data": {"who": "{{request.userInfo.username}}"}}}), True, id="user"
        ),
        pytest.param(
            classic(DATA, exclude={"any": [{"clusterRoles": ["cluster-admin"]}]}), True, id="roles"
        ),
        pytest.param(
            classic(DATA, preconditions={"all": [
                {"key": "{{request.operation}}", "operator": "Equals", "value": "CREATE"}
            ]}), True, id="operation",
        ),
    ],
)  # fmt: skip
def test_who_asks_is_not_known_later(document, needs):
    (rule,) = list_generate_rules(Store(document))
    assert rule.needs_request is needs
