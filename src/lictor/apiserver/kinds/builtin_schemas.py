"""OpenAPI schemas of kinds: out of the tables of built-in types, and out of custom schemas."""

from collections.abc import Iterable

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.kinds.builtin_table import (
    NO_FACTS,
    TypeFacts,
    load_builtin_table,
    load_fields,
)
from lictor.apiserver.kinds.custom_shapes import CustomShape
from lictor.raw import Json, JsonObject

_PREFIX = "#/components/schemas/"
_META = "meta.v1.ObjectMeta"
_SCALE = "autoscaling.v1.Scale"
# Types that are no objects, as kubectl names them.
_SPECIAL: dict[str, JsonObject] = {
    "api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    "meta.v1.Time": {"format": "date-time", "type": "string"},
    "meta.v1.MicroTime": {"format": "date-time", "type": "string"},
    "meta.v1.FieldsV1": {"type": "object"},
    "runtime.RawExtension": {"type": "object"},
}
_GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"


def name_reference(kind: ServedKind) -> str:
    """The place of a kind's schema in its document."""
    return f"{_PREFIX}{_name_schema(kind)}"


def _name_schema(kind: ServedKind) -> str:
    if isinstance(kind.shape, CustomShape):
        parts = reversed(kind.group.split("."))
        return ".".join((*parts, kind.version, kind.kind))
    return _lengthen(_find_type(kind.api_version, kind.kind))


def _find_type(api_version: str, kind: str) -> str:
    found: str = load_fields()["kinds"].get(api_version, {}).get(kind, "")
    return found


def _lengthen(name: str) -> str:
    """The full name of a type of the tables."""
    first = name.partition(".")[0]
    if first == "meta":
        return f"io.k8s.apimachinery.pkg.apis.{name}"
    if first in ("api", "runtime", "util", "version"):
        return f"io.k8s.apimachinery.pkg.{name}"
    if first in ("apiextensions-apiserver", "kube-aggregator"):
        return f"io.k8s.{name}"
    return f"io.k8s.api.{name}"


def collect_schemas(kinds: Iterable[ServedKind]) -> JsonObject:
    """The schemas of these kinds, and of all that they lead to."""
    schemas: JsonObject = {}
    todo = [_META]
    for kind in kinds:
        named = {"group": kind.group, "kind": kind.kind, "version": kind.version}
        if isinstance(kind.shape, CustomShape):
            schemas[_name_schema(kind)] = _describe_custom(kind.shape.schema, named)
            todo.append(_SCALE)
        elif name := _find_type(kind.api_version, kind.kind):
            schemas[_lengthen(name)] = {**_describe_type(name, todo), _GROUP_VERSION_KIND: [named]}
    while todo:
        name = todo.pop()
        if _lengthen(name) not in schemas:
            schemas[_lengthen(name)] = _describe_type(name, todo)
    return schemas


def _describe_custom(schema: JsonObject, named: JsonObject) -> JsonObject:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": f"{_PREFIX}{_lengthen(_META)}"}]},
    }
    own = schema.get("properties") or {}
    described = {key: value for key, value in own.items() if key not in properties}
    return {
        **schema,
        "type": "object",
        "properties": {**properties, **described},
        _GROUP_VERSION_KIND: [named],
    }


# --- built-in types; each writes the types that it leads to into `todo`


def _describe_type(name: str, todo: list[str]) -> JsonObject:
    if name in _SPECIAL:
        return _SPECIAL[name]
    form = load_fields()["types"].get(name, "deduced")
    if isinstance(form, str) or "fields" not in form:
        return _describe_form(form, "", todo)
    facts = load_builtin_table().types.get(name, NO_FACTS)
    schema: JsonObject = {
        "type": "object",
        "properties": {
            field: _describe_field(field, inner, facts, todo)
            for field, inner in form["fields"].items()
        },
    }
    if facts.required:
        schema["required"] = list(facts.required)
    if form.get("atomic") is True:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _describe_field(field: str, form: Json, facts: TypeFacts, todo: list[str]) -> JsonObject:
    schema = _describe_form(form, facts.formats.get(field, ""), todo)
    values = facts.enums.get(field)
    if values:
        inner = schema.get("items") or schema.get("additionalProperties") or schema
        inner["enum"] = list(values)
    patch = facts.patches.get(field)
    if patch:
        schema["x-kubernetes-patch-strategy"] = patch[0]
        if len(patch) > 1:
            schema["x-kubernetes-patch-merge-key"] = patch[1]
    return schema


def _describe_form(form: Json, shape: str, todo: list[str]) -> JsonObject:
    if isinstance(form, str):
        return _describe_word(form, shape, todo)
    for word, kind in (("list", "atomic"), ("set", "set"), ("keyed", "map")):
        if word in form:
            inner = _describe_form(form[word], shape, todo)
            keys = {"x-kubernetes-list-map-keys": list(form["by"])} if word == "keyed" else {}
            return {"type": "array", "items": inner, "x-kubernetes-list-type": kind, **keys}
    if isinstance(form.get("atomic"), str):
        return {**_describe_word(form["atomic"], "", todo), "x-kubernetes-map-type": "atomic"}
    schema: JsonObject = {"type": "object"}
    if form.get("map", "deduced") != "deduced":
        schema["additionalProperties"] = _describe_form(form["map"], shape, todo)
    return schema


def _describe_word(word: str, shape: str, todo: list[str]) -> JsonObject:
    if word.startswith("="):
        todo.append(word[1:])
        return {"allOf": [{"$ref": f"{_PREFIX}{_lengthen(word[1:])}"}]}
    match word:
        case "boolean":
            return {"type": "boolean"}
        case "number":
            kind = "number" if shape == "double" else "integer"
            return {"type": kind, "format": shape or "int32"}
        case "string":
            return {"type": "string", **({"format": shape} if shape else {})}
        case _:
            return {"type": "object"} if word == "untyped" else {}
