"""Answers to questions about the server itself: discovery, OpenAPI, version and health.

They are encoded once, and again when kinds come or go.
"""

from collections.abc import Callable

import msgspec
import orjson

from lictor.embedded.catalogue import BuiltCatalogue
from lictor.embedded.discovery import (
    describe_group,
    describe_version,
    discover_core,
    discover_groups,
    list_core_versions,
    list_groups,
    list_resources,
)
from lictor.embedded.openapi import build_document, index_documents
from lictor.http import JSON, TEXT
from lictor.raw import JsonObject

_AGGREGATED = b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_HEALTH = frozenset(("/healthz", "/livez", "/readyz"))
# Documents of custom kinds are large where there are many; those asked for last are kept.
_MOST_DOCUMENTS = 64

_Build = Callable[[], JsonObject | None]


class Document(msgspec.Struct, frozen=True):
    """A body, encoded."""

    body: bytes
    content_type: bytes = JSON


class Documents:
    """Everything that can be asked without naming an object."""

    def __init__(self, catalogue: BuiltCatalogue, address: str) -> None:
        self._catalogue = catalogue
        self._address = address
        self._kept: dict[tuple[str, bool], Document | None] = {}
        catalogue.listen(self._kept.clear)

    def find(self, path: str, accept: str = "") -> Document | None:
        """The document at a path; None where there is none. `accept` is the header."""
        path = path.rstrip("/") or "/"
        if path in _HEALTH:
            return Document(b"ok", TEXT)
        key = (path, _wants_aggregated(path, accept))
        if key not in self._kept:
            if len(self._kept) >= _MOST_DOCUMENTS:
                self._kept.clear()
            self._kept[key] = self._build(*key)
        return self._kept[key]

    def _build(self, path: str, is_aggregated: bool) -> Document | None:  # noqa: FBT001
        parts = path.strip("/").split("/")
        if is_aggregated:
            discover = discover_core if parts[0] == "api" else discover_groups
            return Document(orjson.dumps(discover(self._catalogue)), _AGGREGATED)
        build = {
            "": self._list_paths,
            "version": describe_version,
            "api": lambda: self._answer_core(parts),
            "apis": lambda: self._answer_group(parts),
            "openapi": lambda: self._answer_openapi(parts),
        }.get(parts[0])
        found = build() if build is not None else None
        return None if found is None else Document(orjson.dumps(found))

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
        paths += ["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
        return {"paths": sorted(paths)}


def _wants_aggregated(path: str, accept: str) -> bool:
    """Does the client understand the newer form, and does it like it better?"""
    if path not in ("/api", "/apis"):
        return False
    first = accept.partition(",")[0].replace(" ", "")
    return "as=APIGroupDiscoveryList" in first and "v=v2beta1" not in first
