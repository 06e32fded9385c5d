"""The scale of built-in and custom kinds."""

import pytest
import yaml

from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.addons.apiserver.subresources import read_scale, write_scale
from lictor.core.errors import RefusedRequestError

CATALOGUE = build_catalogue()
CATALOGUE.define(
    yaml.safe_load("""
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
    subresources: {scale: {specReplicasPath: .spec.inner.size, statusReplicasPath: .status.size, labelSelectorPath: .status.labels}}
""")
)
DEPLOYMENT = CATALOGUE.find("apps", "v1", "deployments")
THING = CATALOGUE.find("example.com", "v1", "things")
METADATA = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "labels": {"x": "y"}}


def test_scale_of_a_deployment():
    document = {
        "metadata": METADATA,
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b", "c": "d"}}},
        "status": {"replicas": 1},
    }

    scale = read_scale(DEPLOYMENT, document)

    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "a=b,c=d"}
    assert scale["metadata"] == {key: METADATA[key] for key in METADATA if key != "labels"}


def test_scale_of_a_custom_kind():
    document = {
        "metadata": METADATA,
        "spec": {"inner": {"size": 2, "other": 1}},
        "status": {"labels": "a=b"},
    }

    scale = read_scale(THING, document)
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "a=b"})

    changed = write_scale(THING, document, {"spec": {"replicas": 5}})
    assert changed["spec"] == {"inner": {"size": 5, "other": 1}}
    assert document["spec"]["inner"]["size"] == 2


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            DEPLOYMENT,
            'Scale.autoscaling "a" is invalid: spec.replicas: Invalid value: -1: must be greater '
            "than or equal to 0",
        ),
        (
            THING,
            'Thing.example.com "a" is invalid: .spec.inner.size: Invalid value: -1: should be a '
            "non-negative integer",
        ),
    ],
)
def test_nobody_scales_below_zero(kind, message):
    with pytest.raises(RefusedRequestError) as caught:
        write_scale(kind, {"metadata": METADATA}, {"spec": {"replicas": -1}})

    assert (caught.value.code, caught.value.message) == (422, message)
