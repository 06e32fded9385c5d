"""OpenAPI v3 documents, one per group and version, as far as kubectl reads them: kinds, fields,
types and merge keys. Built when first asked for; there are no descriptions but those of CRDs."""

from collections.abc import Iterable
from hashlib import sha256

import orjson

from lictor.embedded.builtin_schemas import collect_schemas, name_reference
from lictor.embedded.catalogue import BuiltCatalogue
from lictor.embedded.custom_shapes import CustomShape
from lictor.embedded.discovery import VERSION, list_subresources
from lictor.embedded.kind import Kind
from lictor.raw import Json, JsonObject

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
    "application/strategic-merge-patch+json",
)


def index_documents(catalogue: BuiltCatalogue) -> JsonObject:
    """The answer of `/openapi/v3`: where the documents are, each with a hash of its content."""
    paths: JsonObject = {}
    for group in catalogue.groups():
        for version in catalogue.versions(group):
            kinds = _kinds_of(catalogue, group, version)
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            mark = _hash(kinds)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
    return {"paths": paths}


def _kinds_of(catalogue: BuiltCatalogue, group: str, version: str) -> list[Kind]:
    return [each for each in catalogue if (each.group, each.version) == (group, version)]


def _hash(kinds: Iterable[Kind]) -> str:
    """Built-in kinds change with the release only; it need not be built to be hashed."""
    digest = sha256(VERSION.encode())
    for kind in kinds:
        digest.update(kind.resource.encode())
        if isinstance(kind.shape, CustomShape):
            digest.update(orjson.dumps(kind.shape.schema, option=orjson.OPT_SORT_KEYS))
    return digest.hexdigest().upper()


def build_document(catalogue: BuiltCatalogue, group: str, version: str) -> JsonObject | None:
    """The answer of `/openapi/v3/api/v1` and `/openapi/v3/apis/GROUP/VERSION`."""
    if version not in catalogue.versions(group):
        return None
    kinds = _kinds_of(catalogue, group, version)
    paths: JsonObject = {}
    for kind in kinds:
        paths.update(_list_paths(kind))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "components": {"schemas": dict(sorted(collect_schemas(kinds).items()))},
    }


# --- paths


def _list_paths(kind: Kind) -> JsonObject:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    collection = f"{collection}/{kind.plural}"
    paths: JsonObject = {collection: _describe_path(kind, kind.verbs, _COLLECTION_METHODS)}
    if kind.namespaced and "list" in kind.verbs:
        paths[f"{root}/{kind.plural}"] = _describe_path(kind, ("list",), _COLLECTION_METHODS)
    if item := _describe_path(kind, kind.verbs, _METHODS):
        paths[f"{collection}/{{name}}"] = item
    for name, subresource in list_subresources(kind).items():
        api_version, own = subresource.kind or (kind.api_version, kind.kind)
        methods = {**_METHODS, "create": _COLLECTION_METHODS["create"]}
        paths[f"{collection}/{{name}}/{name}"] = {
            method: _describe_operation(_name_kind(api_version, own), verb, action)
            for verb, (method, action) in methods.items()
            if verb in subresource.verbs
        }
    return paths


def _describe_path(
    kind: Kind, verbs: Iterable[str], methods: dict[str, tuple[str, str]]
) -> JsonObject:
    named = {"group": kind.group, "kind": kind.kind, "version": kind.version}
    schema = {"$ref": name_reference(kind)}
    return {
        method: _describe_operation(named, verb, action, schema)
        for verb, (method, action) in methods.items()
        if verb in verbs
    }


def _name_kind(api_version: str, kind: str) -> JsonObject:
    group, _, version = api_version.rpartition("/")
    return {"group": group, "kind": kind, "version": version}


def _describe_operation(
    named: JsonObject, verb: str, action: str, schema: JsonObject | None = None
) -> JsonObject:
    operation: JsonObject = {
        "responses": {"200": _describe_content(schema, ("application/json",))},
        "x-kubernetes-action": action,
        _GROUP_VERSION_KIND: named,
    }
    if verb in ("create", "update", "patch"):
        force = [_FORCE] if verb == "patch" else []
        types = _PATCH_TYPES if verb == "patch" else ("application/json",)
        body = {"type": "object"} if verb == "patch" else schema
        operation["parameters"] = [*_WRITE_PARAMETERS, *force]
        operation["requestBody"] = _describe_content(body, types)
    return operation


def _describe_content(schema: JsonObject | None, types: Iterable[str]) -> JsonObject:
    inner: Json = {"schema": schema} if schema else {}
    return {"description": "OK", "content": {each: inner for each in types}}
