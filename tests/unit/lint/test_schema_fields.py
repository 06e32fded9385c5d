"""What editors are told of fields: names, types, words and descriptions at a path of an object."""

import pytest
import yaml

from lictor.lint.field import Field
from lictor.lint.schema_fields import (
    find_expression_types,
    find_field_help,
    find_field_location,
    list_fields,
    list_kinds,
)
from lictor.lint.schema_kinds import KnownSchemas

CACHE = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: caches.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Cache, plural: caches}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {x-kubernetes-int-or-string: true, pattern: '^[0-9]+([KMGTPE]i)?$', description: Memory of one replica.}
              mode: {type: string, enum: [Fast, Safe]}
              port: {x-kubernetes-int-or-string: true}
              share: {type: number}
              owners: {type: array, items: {type: object, properties: {name: {type: string}}}}
              tags: {type: object, additionalProperties: {type: string, description: Free text.}}
              extra: {type: object, x-kubernetes-preserve-unknown-fields: true}
""")
SCHEMAS = KnownSchemas([CACHE])
POLICY = yaml.safe_load("""
spec:
  rules:
  - match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      foreach:
      - list: request.object.spec.containers
        pattern: {image: "?*"}
  - match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate:
      targets: [{apiVersion: apps/v1, kind: Deployment}]
      patchStrategicMerge: {spec: {replicas: 1}}
  - match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: example.com/v1, kind: Cache, data: {spec: {mode: Fast}}}
""")


@pytest.mark.parametrize(
    ("name", "kind", "values", "required", "description"),
    [
        ("size", "quantity", (), True, "Memory of one replica."),
        ("mode", "string", ("Fast", "Safe"), False, ""),
        ("port", "integer or string", (), False, ""),
        ("share", "number", (), False, ""),
        ("owners", "list of object", (), False, ""),
        ("tags", "map of string", (), False, ""),
        ("extra", "object", (), False, ""),
    ],
)
def test_field_of_a_custom_kind(name, kind, values, required, description):
    help_ = find_field_help((SCHEMAS.of_kind("example.com/v1", "Cache"),), ("spec", name))
    assert help_ is not None
    assert (help_.name, help_.type, help_.values) == (name, kind, values)
    assert (help_.is_required, help_.description) == (required, description)


def test_fields_of_built_in_kinds():
    types = SCHEMAS.of_selector("Deployment")
    names = {
        each.name: each
        for each in list_fields(types, ("spec", "template", "=(spec)", "^(containers)", 3))
    }
    assert names["ports"].type == "list of object"
    assert names["imagePullPolicy"].values == ("Always", "IfNotPresent", "Never")
    assert names["name"].is_required
    assert find_field_help(types, ("metadata", "labels", "team")).type == "string"
    assert find_field_help(types, ("spec", "container")) is None
    assert find_field_help(types, ("spec", "template", "spec", "containers", 0)) is None
    assert list_fields(types, ("spec", "replicas")) == ()


def test_free_keys_tell_what_their_values_are():
    types = SCHEMAS.of_selector("example.com/v1/Cache")
    assert find_field_help(types, ("spec", "tags", "any")).description == "Free text."
    assert [each.name for each in list_fields(types)] == ["apiVersion", "kind", "spec", "metadata"]


def test_fields_of_several_kinds_are_listed_once():
    rule = Field({"match": {"any": [{"resources": {"kinds": ["Pod", "Cache"]}}]}})
    names = [each.name for each in list_fields(SCHEMAS.of_match(rule).types, ("spec",))]
    assert {"containers", "size"} <= set(names)
    assert len(names) == len(set(names))


def test_kinds():
    kinds = list_kinds(SCHEMAS)
    assert ("Deployment", "apps/v1") in kinds
    assert kinds[-1] == ("Cache", "example.com/v1")


@pytest.mark.parametrize(
    ("path", "inner", "field"),
    [
        ((0, "validate", "foreach", 0, "pattern", "image"), ("image",), "imagePullPolicy"),
        ((1, "mutate", "patchStrategicMerge", "spec"), ("spec",), "replicas"),
        ((2, "generate", "data", "spec"), ("spec",), "mode"),
    ],
)
def test_places_of_a_policy_in_which_objects_stand(path, inner, field):
    location = find_field_location(POLICY, ("spec", "rules", *path), SCHEMAS)
    assert location is not None
    assert location.path == inner
    below = inner if inner == ("spec",) else ()
    assert field in {each.name for each in list_fields(location.types, below)}


@pytest.mark.parametrize(
    "path",
    [
        ("metadata",),
        ("spec", "rules", 1, "mutate", "targets", 0),
        ("spec", "rules", 9, "validate", "pattern"),
    ],
)
def test_other_places_hold_no_objects(path):
    assert find_field_location(POLICY, path, SCHEMAS) is None


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("request.object.spec", "containers"),
        ("element", "image"),
        ("request.object.spec.containers[0].ports[]", None),
        ("element.ports[0]", "containerPort"),
        ("nothing.known", None),
    ],
)
def test_fields_of_what_an_expression_answers(expression, field):
    path = ("spec", "rules", 0, "validate", "foreach", 0, "deny")
    types = find_expression_types(POLICY, path, expression, SCHEMAS)
    names = {each.name for each in list_fields(types)}
    assert (field in names) if field else not names


def test_a_schema_without_end_is_not_read():
    inner = {"type": "object"}
    for _ in range(2000):
        inner = {"type": "object", "properties": {"a": inner}}
    deep = {
        **CACHE,
        "spec": {
            **CACHE["spec"],
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": inner}}],
        },
    }
    schemas = KnownSchemas([deep])
    assert list_fields(schemas.of_selector("Cache")) == list_fields(schemas.of_selector("Unheard"))
    assert schemas.find_form("example.com/v1", "Cache") is None
