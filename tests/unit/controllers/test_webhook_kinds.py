"""Which kinds and operations of a classic policy the API server must tell us of."""

import pytest
from webhook_samples import CHANGE, CHECK, make

from lictor.core.families.classic.webhooks import find_webhook_match

EVERY = {"CONNECT", "CREATE", "DELETE", "UPDATE"}
CHANGES = {"CREATE", "UPDATE"}
STORES = {"CREATE", "UPDATE", "DELETE"}


def collect(rule, *, mutating=False, annotations=None):
    spec = {"rules": [{"name": "r", **rule}]}
    policy = make("ClusterPolicy", "p", spec, annotations=annotations)
    return find_webhook_match(policy.record, mutating=mutating).kinds


def anyone(*resources):
    return {"any": [{"resources": each} for each in resources]}


CONFIG_MAPS = anyone({"kinds": ["ConfigMap"]})
OTHERS = {"mutate": {**CHANGE["mutate"], "targets": [{"apiVersion": "v1", "kind": "Secret"}]}}


def generate(**fields):
    return {"match": CONFIG_MAPS, "generate": {"name": "x", "data": {}, **fields}}


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        pytest.param({"match": CONFIG_MAPS, **CHECK}, {"ConfigMap": EVERY}, id="any-operation"),
        pytest.param(
            {"match": anyone({"kinds": ["ConfigMap"], "operations": ["DELETE"]}), **CHECK},
            {"ConfigMap": {"DELETE"}},
            id="named-operations",
        ),
        pytest.param(
            {
                "match": anyone(
                    {"kinds": ["Secret"], "operations": ["CREATE"]},
                    {"kinds": ["Secret", "ConfigMap"], "operations": ["UPDATE"]},
                ),
                **CHECK,
            },
            {"Secret": {"CREATE", "UPDATE"}, "ConfigMap": {"UPDATE"}},
            id="filters-together",
        ),
        pytest.param(
            {"match": {"resources": {"kinds": ["Secret"]}}, **CHECK},
            {"Secret": EVERY},
            id="older-form",
        ),
        pytest.param(
            {"match": CONFIG_MAPS, "exclude": anyone({"operations": ["DELETE"]}), **CHECK},
            {"ConfigMap": EVERY - {"DELETE"}},
            id="excluded-operation",
        ),
        pytest.param(
            {
                "match": anyone({"kinds": ["ConfigMap", "Secret"]}),
                "exclude": anyone({"kinds": ["Secret"]}),
                **CHECK,
            },
            {"ConfigMap": EVERY},
            id="excluded-kind",
        ),
        pytest.param(
            {
                "match": CONFIG_MAPS,
                "exclude": anyone({"operations": ["DELETE"], "namespaces": ["a"]}),
                **CHECK,
            },
            {"ConfigMap": EVERY},
            id="exclusion-of-some-objects",
        ),
        pytest.param(
            {
                "match": CONFIG_MAPS,
                "exclude": {
                    "any": [{"resources": {"operations": ["DELETE"]}, "clusterRoles": ["admin"]}]
                },
                **CHECK,
            },
            {"ConfigMap": EVERY},
            id="exclusion-of-some-callers",
        ),
        pytest.param(
            {
                "match": CONFIG_MAPS,
                "exclude": {"all": [{"resources": {"operations": ["DELETE"]}}]},
                **CHECK,
            },
            {"ConfigMap": EVERY},
            id="exclusion-of-all",
        ),
        pytest.param({"match": CONFIG_MAPS, **CHANGE}, {}, id="no-change-at-validation"),
        pytest.param({"match": CONFIG_MAPS, **OTHERS}, {"ConfigMap": EVERY}, id="change-others"),
        pytest.param(
            generate(apiVersion="v1", kind="Secret", synchronize=True),
            {"ConfigMap": EVERY, "v1/Secret": STORES},
            id="generate-in-step",
        ),
        pytest.param(
            generate(apiVersion="v1", kind="Secret"), {"ConfigMap": EVERY}, id="generate-once"
        ),
        pytest.param(
            generate(kind="{{ request.object.data.kind }}", synchronize=True),
            {"ConfigMap": EVERY},
            id="generate-what-the-request-says",
        ),
        pytest.param(
            generate(cloneList={"namespace": "a", "kinds": ["v1/Secret"]}, synchronize=True),
            {"ConfigMap": EVERY, "v1/Secret": STORES},
            id="generate-clones",
        ),
    ],
)
def test_validating(rule, kinds):
    assert collect(rule) == kinds


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        pytest.param({"match": CONFIG_MAPS, **CHANGE}, {"ConfigMap": CHANGES}, id="change"),
        pytest.param({"match": CONFIG_MAPS, **CHECK}, {}, id="check"),
        pytest.param({"match": CONFIG_MAPS, **OTHERS}, {}, id="change-others"),
        pytest.param(
            {
                "match": anyone({"kinds": ["Pod/exec"], "operations": ["CONNECT"]}),
                **CHANGE,
            },
            {"Pod/exec": {"CONNECT"}},
            id="named-operation",
        ),
    ],
)
def test_mutating(rule, kinds):
    assert collect(rule, mutating=True) == kinds


def test_pod_controllers():
    rule = {"match": anyone({"kinds": ["Pod"]}), **CHECK}
    assert {kind.rpartition("/")[2] for kind in collect(rule)} == {
        "Pod",
        "DaemonSet",
        "Deployment",
        "Job",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
        "CronJob",
    }
    chosen = {"pod-policies.kyverno.io/autogen-controllers": "Deployment"}
    few = collect(rule, annotations=chosen)
    assert {kind.rpartition("/")[2] for kind in few} == {"Pod", "Deployment"}
