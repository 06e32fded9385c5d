"""Objects of built-in kinds as they are read: what is taken away, rewritten and refused."""

import pytest
import yaml

from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.core.errors import RefusedRequestError

CATALOGUE = build_catalogue()


def shape_of(document):
    return CATALOGUE.find_kind(document["apiVersion"], document["kind"]).schema


def read(text):
    return yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: y}}", []),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, foo: 1}, bar: 2}",
            ["metadata.foo", "bar"],
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers: [{name: a}, {b: 1}]}}",
            ["spec.containers[1].b"],
        ),
        ("{apiVersion: v1, kind: Pod, metadata: {labels: {anything: goes}}}", []),
    ],
)
def test_unknown_fields_are_told(text, unknown):
    document = read(text)

    assert shape_of(document).list_unknown(document) == unknown


@pytest.mark.parametrize(
    ("text", "pruned"),
    [
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, foo: 1}, data: {x: y}, z: 1}",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: y}}",
        ),
        # Nulls say nothing, and neither do empty lists and maps.
        (
            "{apiVersion: v1, kind: Pod, metadata: {labels: {}, finalizers: []},"
            " spec: {nodeName: null, tolerations: [], nodeSelector: {}}}",
            "{apiVersion: v1, kind: Pod, metadata: {}, spec: {}}",
        ),
        # But these do, and so does a list that must be there.
        (
            "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers: [],"
            " volumes: [{name: a, emptyDir: {}}], securityContext: {}}}",
            None,
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers:"
            " [{resources: {limits: {cpu: 0.5, memory: 1024Mi}, requests: {cpu: 1000m}}}]}}",
            "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers:"
            " [{resources: {limits: {cpu: 500m, memory: 1Gi}, requests: {cpu: '1'}}}]}}",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers: [null]}}",
            "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers: [{}]}}",
        ),
    ],
)
def test_pruning(text, pruned):
    document = read(text)
    before = read(text)

    assert shape_of(document).prune(document) == read(pruned or text)
    assert document == before


def test_pruning_gives_the_same_object_where_nothing_is_to_be_done():
    document = read("{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {x: eA==}}")

    assert shape_of(document).prune(document) is document


def deployment(**spec):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": spec}


def containers(*values):
    return deployment(template={"spec": {"containers": list(values)}})


FIELD = "json: cannot unmarshal {} into Go struct field {} of type {}"


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (deployment(replicas="x"), FIELD.format("string", "DeploymentSpec.spec.replicas", "int32")),
        (
            deployment(replicas=1.5),
            FIELD.format("number 1.5", "DeploymentSpec.spec.replicas", "int32"),
        ),
        (
            deployment(replicas=2**40),
            FIELD.format("number 1099511627776", "DeploymentSpec.spec.replicas", "int32"),
        ),
        (deployment(paused=1), FIELD.format("number", "DeploymentSpec.spec.paused", "bool")),
        (
            deployment(template=[]),
            FIELD.format("array", "DeploymentSpec.spec.template", "v1.PodTemplateSpec"),
        ),
        (
            containers({"name": 5}),
            FIELD.format("number", "Container.spec.template.spec.containers.name", "string"),
        ),
        (
            containers({"command": "x"}),
            FIELD.format("string", "Container.spec.template.spec.containers.command", "[]string"),
        ),
        (
            containers({"resources": {"limits": {"cpu": "abc"}}}),
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_wrong_types_are_refused(document, fault):
    with pytest.raises(RefusedRequestError) as caught:
        shape_of(document).prune(document)

    assert caught.value.code == 400
    told = 'Deployment in version "v1" cannot be handled as a Deployment: '
    assert caught.value.message == told + fault


def test_secrets_must_be_base64():
    document = read("{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {x: '???'}}")

    with pytest.raises(RefusedRequestError, match="illegal base64 data at input byte 0"):
        shape_of(document).prune(document)


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        ("{hostNetwork: false, hostname: ''}", "{}"),
        # Empty, and yet not the same as nothing.
        ("{automountServiceAccountToken: false, terminationGracePeriodSeconds: 0}", None),
        (
            "{containers: [{name: '', env: [{name: a, value: ''}]}]}",
            "{containers: [{name: '', env: [{name: a}]}]}",
        ),
    ],
)
def test_what_go_leaves_out(spec, written):
    document = read(f"{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {spec}}}")

    assert shape_of(document).prune(document)["spec"] == read(written or spec)
