"""Answers about the server itself: discovery, OpenAPI, version and health.

They are encoded once, and again when kinds come or go.
"""

from collections.abc import Iterator

import msgspec
import orjson

from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.kinds.openapi import build_document, index_documents
from lictor.core.facts.facts import RELEASE, SubresourceFacts
from lictor.core.raw import JsonObject
from lictor.http.messages import JSON, TEXT

_AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# The only format of older clients; kubectl requests it for unknown kinds. The document contains
# its version and no definitions.
_OLD_OPENAPI = "com.github.proto-openapi.spec.v2"
_OLD_TYPE = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OLD_DOCUMENT = b"\x0a\x032.0\x12\x0c\x0a\x0aKubernetes"
_HEALTH = frozenset(("/healthz", "/livez", "/readyz"))
# Documents of many custom kinds are large; only the latest ones are cached.
_MOST_DOCUMENTS = 64


class EncodedDocument(msgspec.Struct, frozen=True):
    """A body, encoded."""

    body: bytes
    content_type: bytes = JSON


class Documents:
    """The documents at paths without objects."""

    def __init__(self, catalogue: KindCatalogue, address: str) -> None:
        self._catalogue = catalogue
        self._address = address
        self._kept: dict[tuple[str, bool], EncodedDocument | None] = {}
        catalogue.listen(self._kept.clear)

    def find(self, path: str, accept: str = "") -> EncodedDocument | None:
        """The document at a path; None where there is none. `accept` is the header."""
        path = path.rstrip("/") or "/"
        if path in _HEALTH:
            return EncodedDocument(b"ok", TEXT)
        if path == "/openapi/v2" and _OLD_OPENAPI in accept:
            return EncodedDocument(_OLD_DOCUMENT, _OLD_TYPE)
        key = (path, _wants_aggregated(path, accept))
        if key not in self._kept:
            if len(self._kept) >= _MOST_DOCUMENTS:
                self._kept.clear()
            self._kept[key] = self._build(*key)
        return self._kept[key]

    def _build(self, path: str, is_aggregated: bool) -> EncodedDocument | None:  # noqa: FBT001
        parts = path.strip("/").split("/")
        if is_aggregated:
            discover = discover_core if parts[0] == "api" else discover_groups
            return EncodedDocument(orjson.dumps(discover(self._catalogue)), _AGGREGATED)
        found = self._answer(parts)
        return None if found is None else EncodedDocument(orjson.dumps(found))

    def _answer(self, parts: list[str]) -> JsonObject | None:
        match parts[0]:
            case "api":
                return self._answer_core(parts)
            case "apis":
                return self._answer_group(parts)
            case "openapi":
                return self._answer_openapi(parts)
            case _ if len(parts) > 1:
                return None
            case "":
                return self._list_paths()
            case "version":
                return describe_version()
            case _:
                return None

    def _answer_core(self, parts: list[str]) -> JsonObject | None:
        if len(parts) == 1:
            return list_core_versions(self._address)
        return list_resources(self._catalogue, "", parts[1]) if len(parts) == 2 else None

    def _answer_group(self, parts: list[str]) -> JsonObject | None:
        match parts[1:]:
            case []:
                return list_groups(self._catalogue)
            case [group]:
                return describe_group(self._catalogue, group)
            case [group, version] if group:
                return list_resources(self._catalogue, group, version)
            case _:
                return None

    def _answer_openapi(self, parts: list[str]) -> JsonObject | None:
        match parts[1:]:
            case ["v2"]:
                info = {"title": "Kubernetes", "version": RELEASE}
                return {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}
            case ["v3"]:
                return index_documents(self._catalogue)
            case ["v3", "api", version]:
                return build_document(self._catalogue, "", version)
            case ["v3", "apis", group, version] if group:
                return build_document(self._catalogue, group, version)
            case _:
                return None

    def _list_paths(self) -> JsonObject:
        groups = [group for group in self._catalogue.groups() if group]
        versions = [
            f"/apis/{group}/{version}"
            for group in groups
            for version in self._catalogue.versions(group)
        ]
        paths = ["/api", "/api/v1", "/apis", *(f"/apis/{group}" for group in groups), *versions]
        paths += ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
        return {"paths": sorted(paths)}


def _wants_aggregated(path: str, accept: str) -> bool:
    """Does the client understand the newer form, and does it like it better?"""
    if path not in ("/api", "/apis"):
        return False
    first = accept.partition(",")[0].replace(" ", "")
    return "as=APIGroupDiscoveryList" in first and "v=v2beta1" not in first


_MAJOR, _MINOR = RELEASE.removeprefix("v").split(".")[:2]


def describe_version() -> JsonObject:
    """The answer of `/version`."""
    return {
        "major": _MAJOR,
        "minor": _MINOR,
        "gitVersion": f"{RELEASE}+lictor",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


# --- the older form: one document per group and version


def list_core_versions(address: str) -> JsonObject:
    """The answer of `/api`; `address` is host and port of the server."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def list_groups(catalogue: KindCatalogue) -> JsonObject:
    """The answer of `/apis`."""
    groups = [_describe_group(catalogue, group) for group in catalogue.groups() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def describe_group(catalogue: KindCatalogue, group: str) -> JsonObject | None:
    """The answer of `/apis/GROUP`."""
    if not group or not catalogue.versions(group):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_describe_group(catalogue, group)}


def _describe_group(catalogue: KindCatalogue, group: str) -> JsonObject:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in catalogue.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def list_resources(catalogue: KindCatalogue, group: str, version: str) -> JsonObject | None:
    """The answer of `/api/v1` and `/apis/GROUP/RELEASE`."""
    if version not in catalogue.versions(group):
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            entry for kind in catalogue.list_kinds(group, version) for entry in _list_entries(kind)
        ],
    }


def _list_entries(kind: ServedKind) -> Iterator[JsonObject]:
    entry: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    yield {**entry, **_names_of(kind)}
    for name, subresource in kind.subresources.items():
        other = _split_kind(subresource)
        yield {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **({} if other is None or other["group"] == kind.group else _without_kind(other)),
            "kind": kind.kind if other is None else other["kind"],
            "verbs": list(subresource.verbs),
        }


def _names_of(kind: ServedKind) -> JsonObject:
    names: JsonObject = {}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _split_kind(subresource: SubresourceFacts) -> dict[str, str] | None:
    if subresource.kind is None:
        return None
    group, _, version = subresource.kind[0].rpartition("/")
    return {"group": group, "version": version, "kind": subresource.kind[1]}


def _without_kind(other: dict[str, str]) -> dict[str, str]:
    return {"group": other["group"], "version": other["version"]}


# --- the aggregated form: everything in two documents


def discover_core(catalogue: KindCatalogue) -> JsonObject:
    """The aggregated answer of `/api`."""
    return _discover(catalogue, [""])


def discover_groups(catalogue: KindCatalogue) -> JsonObject:
    """The aggregated answer of `/apis`."""
    return _discover(catalogue, [group for group in catalogue.groups() if group])


def _discover(catalogue: KindCatalogue, groups: list[str]) -> JsonObject:
    resources: dict[tuple[str, str], list[JsonObject]] = {}
    for kind in catalogue:
        resources.setdefault((kind.group, kind.version), []).append(_discover_kind(kind))
    items = []
    for group in groups:
        versions = [
            {"version": each, "resources": resources.get((group, each), []), "freshness": "Current"}
            for each in catalogue.versions(group)
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    api_version = "apidiscovery.k8s.io/v2"
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": api_version,
        "metadata": {},
        "items": items,
    }


def _discover_kind(kind: ServedKind) -> JsonObject:
    own = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    entry: JsonObject = {
        "resource": kind.plural,
        "responseKind": own,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
        **_names_of(kind),
    }
    subresources = [
        {
            "subresource": name,
            "responseKind": _split_kind(subresource) or own,
            "verbs": list(subresource.verbs),
        }
        for name, subresource in kind.subresources.items()
    ]
    return {**entry, "subresources": subresources} if subresources else entry
