"""Targets of mutate rules that are a part of an object: read and written on their own."""

import orjson
import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.core.model.result import TargetPart
from lictor.core.ports import NoLookups

TRIGGER = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t", "namespace": "shop"}}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 1},
}
SCALE = {
    "apiVersion": "autoscaling/v1",
    "kind": "Scale",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 1},
}


class World(NoLookups):
    def __init__(self):
        self.asked = []

    def resources(self, api_version, kind, namespace):
        self.asked.append((api_version, kind))
        return [DEPLOYMENT]

    def call_api(self, call):
        self.asked.append(call.url_path)
        return SCALE


def mutate(kind, world):
    rule = {
        "name": "rule",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "mutate": {
            "targets": [{"apiVersion": "apps/v1", "kind": kind}],
            "patchStrategicMerge": {"spec": {"replicas": 3}},
        },
    }
    document = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "policy"},
        "spec": {"rules": [rule]},
    }
    records = [each.record for each in load_documents(orjson.dumps(document), "test").policies]
    verdict = Engine(compile_documents(records, lookups=world)).evaluate(TRIGGER)
    (result,) = verdict.results
    return result


@pytest.mark.parametrize(
    ("kind", "made", "part", "path"),
    [
        pytest.param("Deployment", "Deployment", None, [], id="whole"),
        pytest.param(
            "Deployment/status", "Deployment", TargetPart("apps/v1", "Deployment", "status"), [],
            id="status",
        ),
        pytest.param(
            "Deployment/scale", "Scale", TargetPart("apps/v1", "Deployment", "scale"),
            ["/apis/apps/v1/namespaces/shop/deployments/web/scale"],
            id="scale",
        ),
    ],
)  # fmt: skip
def test_parts(kind, made, part, path):
    world = World()
    result = mutate(kind, world)
    assert (result.target["kind"], result.target["spec"]["replicas"]) == (made, 3)
    assert result.part == part
    assert world.asked == [("apps/v1", "Deployment"), *path]
