"""Answers to questions about the server itself: discovery, OpenAPI, version and health.

They are encoded once, and again when kinds come or go.
"""

import msgspec
import orjson

from lictor.apiserver.kinds.catalogue import KindCatalogue
from lictor.apiserver.kinds.discovery import (
    describe_group,
    describe_version,
    discover_core,
    discover_groups,
    list_core_versions,
    list_groups,
    list_resources,
)
from lictor.apiserver.kinds.openapi import build_document, index_documents
from lictor.http.messages import JSON, TEXT
from lictor.kubernetes.facts import RELEASE
from lictor.raw import JsonObject

_AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
# Older clients read nothing but this format, and kubectl asks for it where a kind is unknown. The
# document says of which version it is, and that there is nothing in it.
_OLD_OPENAPI = "com.github.proto-openapi.spec.v2"
_OLD_TYPE = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OLD_DOCUMENT = b"\x0a\x032.0\x12\x0c\x0a\x0aKubernetes"
_HEALTH = frozenset(("/healthz", "/livez", "/readyz"))
# Documents of custom kinds are large where there are many; those asked for last are kept.
_MOST_DOCUMENTS = 64


class EncodedDocument(msgspec.Struct, frozen=True):
    """A body, encoded."""

    body: bytes
    content_type: bytes = JSON


class Documents:
    """Everything that can be asked without naming an object."""

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
