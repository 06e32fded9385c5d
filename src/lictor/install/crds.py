"""Kinds -> CustomResourceDefinitions."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from lictor.core.errors import UsageError
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import CrdShape
from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject
from lictor.install.schema import SchemaWriter, keep_defaults

KYVERNO = "kyverno.io"
EPHEMERAL = "reports.kyverno.io"
REPORTS = "wgpolicyk8s.io"
OPEN_REPORTS = "openreports.io"


class CrdVersion(msgspec.Struct, frozen=True):
    """One version of a kind."""

    name: str
    served: bool = True
    storage: bool = False
    deprecated: bool = False


class CrdKind(msgspec.Struct, frozen=True):
    """A kind: its names, its versions, and which records or shapes its schema comes from."""

    group: str
    name: str
    short: str
    namespaced: bool
    versions: tuple[CrdVersion, ...]
    # Either a spec and perhaps a status, or one shape with all fields beside the metadata.
    spec: str
    status: str
    whole: str
    columns: str
    description: str
    plural: str
    category: str = "kyverno"
    # Version -> why it should not be used; clients of the API server get it as a warning.
    warnings: Mapping[str, str] = {}


# --- what kubectl shows: name, type, path, and a + where only `-o wide` shows it

_AGE = "AGE | date | .metadata.creationTimestamp"
_GLOBAL_CONTEXT_COLUMNS = f"""
{_AGE}
REFRESH INTERVAL | string | .spec.apiCall.refreshInterval
LAST REFRESH | date | .status.lastRefreshTime
"""
_UPDATE_REQUEST_COLUMNS = """
Policy | string | .spec.policy
RuleType | string | .spec.requestType
ResourceKind | string | .spec.resource.kind
ResourceName | string | .spec.resource.name
ResourceNamespace | string | .spec.resource.namespace
status | string | .status.state
Age | date | .metadata.creationTimestamp
"""
_REPORT_COLUMNS = """
Kind | string | .scope.kind
Name | string | .scope.name
Pass | integer | .summary.pass
Fail | integer | .summary.fail
Warn | integer | .summary.warn
Error | integer | .summary.error
Skip | integer | .summary.skip
Age | date | .metadata.creationTimestamp
"""
_OPEN_REPORT_COLUMNS = _REPORT_COLUMNS.replace("kind\n", "kind | +\n").replace(
    "scope.name\n", "scope.name | +\n"
)
_EPHEMERAL_COLUMNS = r"""
Source | string | .metadata.labels['audit\.kyverno\.io/source']
Group | string | .metadata.labels['audit\.kyverno\.io/resource\.group']
Kind | string | .metadata.labels['audit\.kyverno\.io/resource\.kind']
Owner | string | .metadata.annotations['audit\.kyverno\.io/resource\.name']
Pass | integer | .spec.summary.pass
Fail | integer | .spec.summary.fail
Warn | integer | .spec.summary.warn
Error | integer | .spec.summary.error
Skip | integer | .spec.summary.skip
Age | date | .metadata.creationTimestamp
Uid | string | .metadata.labels['audit\.kyverno\.io/resource\.uid'] | +
Hash | string | .metadata.labels['audit\.kyverno\.io/resource\.hash'] | +
"""


_COLUMNS = {
    "globalcontext": _GLOBAL_CONTEXT_COLUMNS,
    "updaterequest": _UPDATE_REQUEST_COLUMNS,
    "report": _REPORT_COLUMNS,
    "openreport": _OPEN_REPORT_COLUMNS,
    "ephemeral": _EPHEMERAL_COLUMNS,
    "-": "",
}

# --- the kinds: name, short name, scope, versions (`*` is stored, `!` deprecated, `-` not served),
# spec and status or the whole, columns, description

_OWN = """
GlobalContextEntry | gctxentry | Cluster | v2 v2beta1* v2alpha1! | GlobalContextSpec \
GlobalContextStatus | globalcontext | Data that policies use by name: objects of the cluster, or \
the answer of a call.
UpdateRequest | ur | Namespaced | v2* v1beta1-! | UpdateRequestSpec? UpdateRequestStatus \
| updaterequest | Work that waits: objects to make or to change because of a request.
"""
_EPHEMERAL = """
EphemeralReport | ephr | Namespaced | v1* | EphemeralReportSpec | ephemeral | Results on their way \
into a report; they come and go.
ClusterEphemeralReport | cephr | Cluster | v1* | EphemeralReportSpec | ephemeral | Results on \
their way into a report; they come and go.
"""
_REPORTS = """
PolicyReport | polr | Namespaced | v1alpha2* | =PolicyReport | report | Results of policies for a \
resource of this namespace.
ClusterPolicyReport | cpolr | Cluster | v1alpha2* | =PolicyReport | report | Results of policies \
for a resource that is in no namespace.
"""
_OPEN_REPORTS = """
Report | reps | Namespaced | v1alpha1* | =OpenReport | openreport | Results of policies for a \
resource of this namespace.
ClusterReport | creps | Cluster | v1alpha1* | =OpenReport | openreport | Results of policies for a \
resource that is in no namespace.
"""


def _read_kinds(group: str, table: str) -> list[CrdKind]:
    return [_read_kind(group, line) for line in table.splitlines() if line]


def _read_kind(group: str, line: str) -> CrdKind:
    name, short, scope, versions, shapes, columns, words = (w.strip() for w in line.split(" | "))
    spec, _, status = shapes.partition(" ")
    whole = spec.startswith("=")
    known = tuple(_read_version(word) for word in versions.split())
    text = "{0}/{1} {2} is deprecated; use {0}/{3} {2}"
    return CrdKind(
        group=group,
        name=name,
        short=short.strip("-"),
        namespaced=scope == "Namespaced",
        versions=known,
        spec="" if whole else spec,
        status=status,
        whole=spec[1:] if whole else "",
        columns=_COLUMNS[columns],
        description=words,
        plural=f"{name.lower()[:-1]}ies" if name.endswith("y") else f"{name.lower()}s",
        warnings={
            each.name: text.format(group, each.name, name, known[0].name)
            for each in known
            if each.deprecated
        },
    )


def _read_version(word: str) -> CrdVersion:
    return CrdVersion(word.rstrip("*!-"), "-" not in word, "*" in word, "!" in word)


_OTHER_KINDS: Final[tuple[CrdKind, ...]] = (
    *_read_kinds(KYVERNO, _OWN),
    *_read_kinds(EPHEMERAL, _EPHEMERAL),
    *_read_kinds(REPORTS, _REPORTS),
    *_read_kinds(OPEN_REPORTS, _OPEN_REPORTS),
)


def list_crd_kinds() -> tuple[CrdKind, ...]:
    """The kinds that an installation brings: those of policies, and those that we write to."""
    declared = [(kind, kind.crd) for kind in registry().kinds if kind.crd is not None]
    return (*(_describe_kind(kind, crd) for kind, crd in declared), *_OTHER_KINDS)


def _describe_kind(kind: PolicyKind, crd: CrdShape) -> CrdKind:
    record = kind.family.get_record(kind)
    spec = next(f.type for f in msgspec.structs.fields(record) if f.name == "spec")
    return CrdKind(
        group=kind.group,
        name=kind.kind,
        short=kind.short_name,
        namespaced=kind.namespaced,
        versions=tuple(_read_version(word) for word in crd.versions.split()),
        spec=spec.__name__,
        status=crd.status,
        whole="",
        columns=crd.columns,
        description=crd.description,
        plural=kind.plural,
        category=crd.category,
        warnings={
            version: kind.describe_deprecation(version)
            for version in kind.versions
            if kind.successors
        },
    )


def build_crds(
    groups: Iterable[str] = (), *, open_reports: bool = False, warns: bool = True
) -> list[JsonObject]:
    """The definitions of all kinds, or of those of some groups.

    `warns`: the API server warns clients that use kinds and versions which Kyverno deprecates.
    """
    wanted, known = set(groups), tuple(dict.fromkeys(kind.group for kind in list_crd_kinds()))
    for group in wanted:
        if group not in known:
            raise UsageError(f"unknown group {group}: there are {', '.join(known)}")
    if not wanted:
        wanted = set(known) if open_reports else set(known) - {OPEN_REPORTS}
    elif open_reports:
        wanted.add(OPEN_REPORTS)
    return [build_crd(kind, warns=warns) for kind in list_crd_kinds() if kind.group in wanted]


def build_crd(kind: CrdKind, *, warns: bool = True) -> JsonObject:
    """The definition of one kind."""
    if not warns:
        kind = msgspec.structs.replace(kind, warnings={})
    names: JsonObject = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    if kind.short:
        names["shortNames"] = [kind.short]
    # As it is known: all kinds but the reports, and the exceptions that came last.
    if kind.short and kind.spec and kind.category:
        names["categories"] = [kind.category]
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


def _build_version(kind: CrdKind, version: CrdVersion) -> JsonObject:
    written: JsonObject = {
        "name": version.name,
        "served": version.served,
        "storage": version.storage,
        "schema": {"openAPIV3Schema": _build_schema(kind, version.name)},
    }
    warning = kind.warnings.get(version.name)
    if version.deprecated or warning:
        written["deprecated"] = True
    if warning:
        written["deprecationWarning"] = warning
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


def _build_schema(kind: CrdKind, version: str) -> JsonObject:
    properties: JsonObject = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    schema: JsonObject = {"type": "object", "description": kind.description}
    if kind.whole:
        shape = SchemaWriter(version).write_shape(kind.whole)
        return {**schema, "properties": {**properties, **shape["properties"]}}
    properties.update(_build_parts(kind, version))
    if not kind.spec.endswith("?"):
        schema["required"] = ["spec"]
    return {**schema, "properties": properties}


def _build_parts(kind: CrdKind, version: str) -> JsonObject:
    """The schemas of spec and status."""
    name = kind.spec.rstrip("?")
    known = registry().find(kind.group, kind.name)
    absent = known.family.find_absent_fields(known, version) if known is not None else {}
    spec = SchemaWriter(version, absent).write_shape(name)
    if not kind.status:
        return {"spec": spec}
    rules = spec.get("properties", {}).get("rules")
    parts = {"SpecDefaults": keep_defaults(spec), "Rules": keep_defaults(rules or {})}
    return {"spec": spec, "status": SchemaWriter(version, parts=parts).write_shape(kind.status)}
