"""OpenAPI v3 documents, one per group and version, as far as kubectl reads them: kinds, fields,
types and merge keys. Built on first use; only CRDs have descriptions."""

from collections.abc import Iterable
from hashlib import sha256

import orjson

from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.kinds.custom_kind import CustomSchema
from lictor.core.facts.facts import (
    NO_FACTS,
    RELEASE,
    TypeFacts,
    find_type_name,
    load_section,
    load_type_facts,
)
from lictor.core.raw import Json, JsonObject

_REFERENCE_PREFIX = "#/components/schemas/"
_META = "meta.v1.ObjectMeta"
_SCALE = "autoscaling.v1.Scale"


def name_reference(kind: ServedKind) -> str:
    """The place of a kind's schema in its document."""
    return f"{_REFERENCE_PREFIX}{_name_kind_schema(kind)}"


def _name_kind_schema(kind: ServedKind) -> str:
    if isinstance(kind.schema, CustomSchema):
        parts = reversed(kind.group.split("."))
        return ".".join((*parts, kind.version, kind.kind))
    return _name_type_schema(find_type_name(kind.api_version, kind.kind) or "")


def collect_schemas(kinds: Iterable[ServedKind]) -> JsonObject:
    """The schemas of these kinds, and of all that they lead to."""
    schemas: JsonObject = {}
    todo = [_META]
    for kind in kinds:
        named = {"group": kind.group, "kind": kind.kind, "version": kind.version}
        if isinstance(kind.schema, CustomSchema):
            schemas[_name_kind_schema(kind)] = _describe_custom(kind.schema.openapi, named)
            todo.append(_SCALE)
        elif name := find_type_name(kind.api_version, kind.kind):
            schemas[_name_type_schema(name)] = {
                **_describe_type(name, todo),
                _GROUP_VERSION_KIND: [named],
            }
    while todo:
        name = todo.pop()
        if _name_type_schema(name) not in schemas:
            schemas[_name_type_schema(name)] = _describe_type(name, todo)
    return schemas


def _describe_custom(schema: JsonObject, named: JsonObject) -> JsonObject:
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": f"{_REFERENCE_PREFIX}{_name_type_schema(_META)}"}]},
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


_GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"
_METHODS = {
    "get": ("get", "get"),
    "update": ("put", "put"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
}
_COLLECTION_METHODS = {
    "list": ("get", "list"),
    "create": ("post", "post"),
    "deletecollection": ("delete", "deletecollection"),
}
_WRITE_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
_FORCE = {"name": "force", "in": "query", "schema": {"type": "boolean", "uniqueItems": True}}
_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
# kubectl looks here to learn how it may patch a kind.
_STRATEGIC = "application/strategic-merge-patch+json"


def index_documents(catalogue: KindCatalogue) -> JsonObject:
    """The answer of `/openapi/v3`: where the documents are, each with a hash of its content."""
    paths: JsonObject = {}
    for group in catalogue.groups():
        for version in catalogue.versions(group):
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            mark = _hash(catalogue.list_kinds(group, version))
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
    return {"paths": paths}


def _hash(kinds: Iterable[ServedKind]) -> str:
    """Built-in kinds change with the release only; it need not be built to be hashed."""
    digest = sha256(RELEASE.encode())
    for kind in kinds:
        digest.update(kind.resource.encode())
        if isinstance(kind.schema, CustomSchema):
            digest.update(orjson.dumps(kind.schema.openapi, option=orjson.OPT_SORT_KEYS))
    return digest.hexdigest().upper()


def build_document(catalogue: KindCatalogue, group: str, version: str) -> JsonObject | None:
    """The answer of `/openapi/v3/api/v1` and `/openapi/v3/apis/GROUP/RELEASE`."""
    if version not in catalogue.versions(group):
        return None
    kinds = catalogue.list_kinds(group, version)
    paths: JsonObject = {}
    for kind in kinds:
        paths.update(_list_paths(kind))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": RELEASE},
        "paths": paths,
        "components": {"schemas": dict(sorted(collect_schemas(kinds).items()))},
    }


# --- paths


def _list_paths(kind: ServedKind) -> JsonObject:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    collection = f"{collection}/{kind.plural}"
    paths: JsonObject = {collection: _describe_path(kind, kind.verbs, _COLLECTION_METHODS)}
    if kind.namespaced and "list" in kind.verbs:
        paths[f"{root}/{kind.plural}"] = _describe_path(kind, ("list",), _COLLECTION_METHODS)
    if item := _describe_path(kind, kind.verbs, _METHODS):
        paths[f"{collection}/{{name}}"] = item
    methods = {**_METHODS, "create": _COLLECTION_METHODS["create"]}
    for name, subresource in kind.subresources.items():
        paths[f"{collection}/{{name}}/{name}"] = _describe_path(
            kind, subresource.verbs, methods, subresource.kind
        )
    return paths


def _describe_path(
    kind: ServedKind,
    verbs: Iterable[str],
    methods: dict[str, tuple[str, str]],
    other: tuple[str, str] | None = None,
) -> JsonObject:
    """The operations of a path; `other` is the apiVersion and kind of what is sent there."""
    named: JsonObject = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    schema: JsonObject = {"$ref": name_reference(kind)}
    if other is not None:
        group, _, version = other[0].rpartition("/")
        named, schema = {"group": group, "kind": other[1], "version": version}, {}
    patches = _PATCH_TYPES if kind.is_custom else (*_PATCH_TYPES, _STRATEGIC)
    return {
        method: {
            **_describe_body(verb, schema, patches),
            "responses": {"200": _describe_content(schema, ("application/json",))},
            "x-kubernetes-action": action,
            _GROUP_VERSION_KIND: named,
        }
        for verb, (method, action) in methods.items()
        if verb in verbs
    }


def _describe_body(verb: str, schema: JsonObject, patches: Iterable[str]) -> JsonObject:
    if verb == "patch":
        content = _describe_content({"type": "object"}, patches)
        return {"parameters": [*_WRITE_PARAMETERS, _FORCE], "requestBody": content}
    if verb in ("create", "update"):
        content = _describe_content(schema, ("application/json",))
        return {"parameters": _WRITE_PARAMETERS, "requestBody": content}
    return {}


def _describe_content(schema: JsonObject, types: Iterable[str]) -> JsonObject:
    inner: Json = {"schema": schema} if schema else {}
    return {"description": "OK", "content": {each: inner for each in types}}


# --- types of Kubernetes itself

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


def _name_type_schema(name: str) -> str:
    """The full name of a type of the tables."""
    first = name.partition(".")[0]
    if first == "meta":
        return f"io.k8s.apimachinery.pkg.apis.{name}"
    if first in ("api", "runtime", "util", "version"):
        return f"io.k8s.apimachinery.pkg.{name}"
    if first in ("apiextensions-apiserver", "kube-aggregator"):
        return f"io.k8s.{name}"
    return f"io.k8s.api.{name}"


def _describe_type(name: str, todo: list[str]) -> JsonObject:
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
        return {"allOf": [{"$ref": f"{_REFERENCE_PREFIX}{_name_type_schema(word[1:])}"}]}
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
