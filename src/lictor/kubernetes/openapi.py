"""OpenAPI schemas of built-in types, as far as kubectl reads them: without descriptions."""

from lictor.kubernetes.facts import NO_FACTS, TypeFacts, load_section, load_type_facts
from lictor.raw import Json, JsonObject

REFERENCE_PREFIX = "#/components/schemas/"


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


def name_schema(name: str) -> str:
    """The full name of a type of the tables."""
    first = name.partition(".")[0]
    if first == "meta":
        return f"io.k8s.apimachinery.pkg.apis.{name}"
    if first in ("api", "runtime", "util", "version"):
        return f"io.k8s.apimachinery.pkg.{name}"
    if first in ("apiextensions-apiserver", "kube-aggregator"):
        return f"io.k8s.{name}"
    return f"io.k8s.api.{name}"


def describe_type(name: str, todo: list[str]) -> JsonObject:
    """The schema of a type; the types that it leads to are added to `todo`."""
    if name in _SPECIAL:
        return _SPECIAL[name]
    form = load_section("types").get(name, "deduced")
    if isinstance(form, str) or "fields" not in form:
        return _describe_form(form, "", todo)
    facts = load_type_facts().get(name, NO_FACTS)
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
        return {"allOf": [{"$ref": f"{REFERENCE_PREFIX}{name_schema(word[1:])}"}]}
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
