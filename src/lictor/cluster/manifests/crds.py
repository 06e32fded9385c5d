"""Kinds -> CustomResourceDefinitions."""

from collections.abc import Iterable

import msgspec

from lictor.cluster.manifests.kinds import GROUPS, KINDS, OPEN_REPORTS, Kind, Version
from lictor.cluster.manifests.schema import Writer, keep_defaults
from lictor.errors import UsageError
from lictor.load.kinds import absent_fields
from lictor.model.cleanup import CleanupPolicy
from lictor.model.exception import PolicyException
from lictor.model.policy import Policy
from lictor.raw import JsonObject

# Whose versions lack some fields that others have.
_OWNERS: dict[str, type[msgspec.Struct]] = {
    "policy.Spec": Policy,
    "exception.ExceptionSpec": PolicyException,
    "cleanup.CleanupSpec": CleanupPolicy,
}


def build_crds(groups: Iterable[str] = (), *, open_reports: bool = False) -> list[JsonObject]:
    """The definitions of all kinds, or of those of some groups."""
    wanted = set(groups)
    for group in wanted:
        if group not in GROUPS:
            raise UsageError(f"unknown group {group}: there are {', '.join(GROUPS)}")
    if not wanted:
        wanted = set(GROUPS) if open_reports else set(GROUPS) - {OPEN_REPORTS}
    elif open_reports:
        wanted.add(OPEN_REPORTS)
    return [build_crd(kind) for kind in KINDS if kind.group in wanted]


def build_crd(kind: Kind) -> JsonObject:
    """The definition of one kind."""
    names: JsonObject = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    if kind.short:
        names["shortNames"] = [kind.short]
    # As it is known: all kinds but the reports, and the exceptions that came last.
    if kind.short and kind.spec:
        names["categories"] = ["kyverno"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_build_version(kind, version) for version in kind.versions],
        },
    }


def _build_version(kind: Kind, version: Version) -> JsonObject:
    written: JsonObject = {
        "name": version.name,
        "served": version.served,
        "storage": version.storage,
        "schema": {"openAPIV3Schema": _build_schema(kind, version.name)},
    }
    if version.deprecated:
        written["deprecated"] = True
    columns = [_read_column(line) for line in kind.columns.splitlines() if line]
    if columns:
        written["additionalPrinterColumns"] = columns
    if kind.status:
        written["subresources"] = {"status": {}}
    return written


def _read_column(line: str) -> JsonObject:
    name, kind, path, *wide = (part.strip() for part in line.split(" | "))
    column: JsonObject = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": 1} if wide else column


def _build_schema(kind: Kind, version: str) -> JsonObject:
    properties: JsonObject = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    schema: JsonObject = {"type": "object", "description": kind.description}
    if kind.whole:
        shape = Writer(version).write_shape(kind.whole)
        return {**schema, "properties": {**properties, **shape["properties"]}}
    properties.update(_build_parts(kind, version))
    if not kind.spec.endswith("?"):
        schema["required"] = ["spec"]
    return {**schema, "properties": properties}


def _build_parts(kind: Kind, version: str) -> JsonObject:
    """The schemas of spec and status."""
    name = kind.spec.rstrip("?")
    owner = _OWNERS.get(name)
    absent = absent_fields(owner, version) if owner is not None else {}
    spec = Writer(version, absent).write_shape(name)
    if not kind.status:
        return {"spec": spec}
    rules = spec.get("properties", {}).get("rules")
    parts = {"SpecDefaults": keep_defaults(spec), "Rules": keep_defaults(rules or {})}
    return {"spec": spec, "status": Writer(version, parts=parts).write_shape(kind.status)}
