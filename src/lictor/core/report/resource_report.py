"""The results of policies for one object of the cluster, as the report that belongs to it."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.model.result import PolicyRef, Result, RuleType, Status
from lictor.core.raw import Json, JsonObject
from lictor.core.report.summary import read_message, read_severity, reported_status

# How many entries did not fit.
LEFT_OUT = "lictor.io/results-left-out"
# Messages may name the object, so that there are as many as there are objects.
_MOST = 2048

SortKey: TypeAlias = tuple[str, str, str, str]
_Key: TypeAlias = tuple[int, str, str, str]


class ReportEntry(msgspec.Struct, frozen=True, eq=False):
    """An entry without its time, with what is needed to put it in order and to compare it."""

    policy: PolicyRef
    body: JsonObject
    key: SortKey
    digest: bytes


class EntryCache:
    """Finds the entry of a result. Safe to use from several threads."""

    def __init__(self, *, background: bool) -> None:
        self._background = background
        self._lines: dict[_Key, ReportEntry] = {}

    def find(self, result: Result) -> ReportEntry:
        """The entry of a result; a cached one if there is an equal result."""
        if result.properties or result.exceptions or result.generated or result.target is not None:
            return self._build(result)
        key = id(result.policy), result.rule, result.status, result.message
        line = self._lines.get(key)
        # The policy is compared too: an address is used again once an old policy is gone.
        if line is not None and line.policy is result.policy:
            return line
        if len(self._lines) >= _MOST:
            self._lines.clear()
        line = self._lines[key] = self._build(result)
        return line

    def _build(self, result: Result) -> ReportEntry:
        body = build_entry(result, background=self._background, timestamp=0)
        del body["timestamp"]
        key = (body["policy"], body.get("rule", ""), body["source"], body["result"])
        return ReportEntry(result.policy, body, key, _digest(body))


def _digest(body: JsonObject) -> bytes:
    text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return blake2b(text, digest_size=8).digest()


def sort_report_entries(lines: Iterable[ReportEntry]) -> list[ReportEntry]:
    """In the order in which a report shows them."""
    return sorted(lines, key=_read_key)


def _read_key(line: ReportEntry) -> SortKey:
    return line.key


def hash_entries(lines: Iterable[ReportEntry]) -> int:
    """Equal for reports with the same content, at any time; 64 bits, 0 for nothing.

    A sum, so that it follows from that of before where some entries are replaced by others.
    """
    return sum(int.from_bytes(line.digest, "big") for line in lines) & 0xFFFFFFFFFFFFFFFF


def hash_written(entries: Iterable[JsonObject]) -> int:
    """The same of entries as a report has them."""
    bodies = (
        {name: value for name, value in each.items() if name != "timestamp"} for each in entries
    )
    digests = (int.from_bytes(_digest(body), "big") for body in bodies)
    return sum(digests) & 0xFFFFFFFFFFFFFFFF


def stamp_entries(lines: Iterable[ReportEntry], timestamp: int) -> list[JsonObject]:
    """Entries for a report, all of the same time."""
    moment = {"seconds": timestamp, "nanos": 0}
    return [{**line.body, "timestamp": moment} for line in lines]


MANAGED_BY = {"app.kubernetes.io/managed-by": "kyverno"}
_BACKGROUND = "background scan"
_ADMISSION = "admission review"
# An object in etcd is limited to 1.5 MiB; a longer report is cut, and contains a note.
_MAX_BYTES = 1_000_000
_LONGEST_MESSAGE = 4096


class ReportSubject(msgspec.Struct, frozen=True):
    """The object that a report is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: JsonObject) -> "ReportSubject":
        metadata = resource.get("metadata") or {}
        return cls(
            str(resource.get("apiVersion") or ""),
            str(resource.get("kind") or ""),
            str(metadata.get("namespace") or ""),
            str(metadata.get("name") or ""),
            str(metadata.get("uid") or ""),
        )


class ReportForm(msgspec.Struct, frozen=True):
    """Which reports an installation writes, and which results they leave out."""

    openreports: bool = False
    statuses: frozenset[str] = frozenset(str(status) for status in Status)
    # The kinds of rules: validate, mutate, mutateExisting, generate, imageVerify.
    rules: frozenset[str] = frozenset(
        ("validate", "mutate", "mutateExisting", "generate", "imageVerify")
    )

    def wants(self, result: Result) -> bool:
        return str(result.status) in self.statuses and _kind_of(result) in self.rules


def _kind_of(result: Result) -> str:
    if result.type is RuleType.MUTATION:
        return "mutateExisting" if result.target is not None else "mutate"
    kinds = {RuleType.GENERATION: "generate", RuleType.IMAGE_VERIFY: "imageVerify"}
    return kinds.get(result.type, "validate")


def build_entry(result: Result, *, background: bool, timestamp: int) -> JsonObject:
    """One result as an entry of a report."""
    policy = result.policy
    entry: JsonObject = {
        "source": policy.source,
        "policy": policy.reported_name,
        "rule": result.rule,
        "message": _shorten(read_message(result)),
        "result": str(reported_status(result)),
        "scored": policy.scored,
        "category": policy.category,
        "severity": read_severity(policy),
        "properties": _read_properties(result, background=background),
        "timestamp": {"seconds": timestamp, "nanos": 0},
    }
    return {name: value for name, value in entry.items() if value != ""}


def _read_properties(result: Result, *, background: bool) -> dict[str, str]:
    made = {str(name): str(value) for name, value in result.properties.items()}
    made["process"] = _BACKGROUND if background else _ADMISSION
    if result.exceptions:
        made["exceptions"] = ",".join(exception.name for exception in result.exceptions)
    if result.target is not None:
        made["patched-target"] = _describe(result.target)
    if result.generated:
        made["generated-resources"] = "; ".join(_describe(made) for made in result.generated)
    return made


def _describe(resource: JsonObject) -> str:
    """`apps/v1, Kind=Deployment Name=web Namespace=shop`: how reports name another object."""
    subject = ReportSubject.of(resource)
    group, _, version = subject.api_version.rpartition("/")
    place = f" Namespace={subject.namespace}" if subject.namespace else ""
    return f"{group}/{version}, Kind={subject.kind} Name={subject.name}{place}"


def _shorten(message: str) -> str:
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return message[:_LONGEST_MESSAGE] + " ... (cut)"


def sort_entries(entries: Iterable[JsonObject]) -> list[JsonObject]:
    """In the order of policy, rule and source, so that equal results make equal reports."""
    return sorted(
        entries,
        key=lambda e: (e["policy"], e.get("rule", ""), e.get("source", ""), e.get("result", "")),
    )


def build_report(
    subject: ReportSubject,
    entries: Iterable[JsonObject],
    *,
    openreports: bool = False,
    annotations: Mapping[str, str] | None = None,
) -> JsonObject:
    """The report of one object: named by its UID, owned by it."""
    listed, left_out = _cut(sort_entries(entries))
    notes = dict(annotations or {})
    if left_out:
        notes[LEFT_OUT] = str(left_out)
    group, kind = ("openreports.io/v1alpha1", "Report")
    if not openreports:
        group, kind = ("wgpolicyk8s.io/v1alpha2", "PolicyReport")
    metadata: JsonObject = {
        "name": subject.uid,
        "labels": dict(MANAGED_BY),
        "ownerReferences": [_own(subject)],
    }
    if notes:
        metadata["annotations"] = notes
    if subject.namespace:
        metadata["namespace"] = subject.namespace
    return {
        "apiVersion": group,
        "kind": kind if subject.namespace else f"Cluster{kind}",
        "metadata": metadata,
        "scope": _scope(subject),
        "results": listed,
        "summary": summarize(listed),
    }


def _own(subject: ReportSubject) -> JsonObject:
    return {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "name": subject.name,
        "uid": subject.uid,
    }


def _scope(subject: ReportSubject) -> JsonObject:
    place = {"namespace": subject.namespace} if subject.namespace else {}
    return {**_own(subject), **place}


def _cut(entries: list[JsonObject]) -> tuple[list[JsonObject], int]:
    """As many entries as fit, those that matter first; how many were left out."""
    if len(entries) < 100 or len(orjson.dumps(entries)) <= _MAX_BYTES:
        return entries, 0
    order = {"fail": 0, "error": 1, "warn": 2, "skip": 3, "pass": 4}
    kept: list[JsonObject] = []
    size = 0
    for entry in sorted(entries, key=lambda e: order.get(e["result"], 5)):
        size += len(orjson.dumps(entry)) + 1
        if size > _MAX_BYTES:
            break
        kept.append(entry)
    return sort_entries(kept), len(entries) - len(kept)


_STATUSES = frozenset(("pass", "fail", "warn", "error", "skip"))


def read_entries(report: JsonObject | None) -> list[JsonObject]:
    """The entries of a report. Others may have written to it: what makes no sense is left out."""
    found = (report or {}).get("results")
    return [each for each in found if _is_entry(each)] if isinstance(found, list) else []


def _is_entry(entry: Json) -> bool:
    if not isinstance(entry, dict) or entry.get("result") not in _STATUSES:
        return False
    named = (entry.get(name, "") for name in ("source", "policy", "rule"))
    return all(isinstance(each, str) for each in named) and bool(entry.get("policy"))


def summarize(entries: Iterable[JsonObject]) -> JsonObject:
    """How many results there are of each kind."""
    summary = {"pass": 0, "fail": 0, "warn": 0, "error": 0, "skip": 0}
    for entry in entries:
        summary[entry["result"]] += 1
    return summary


UID_LABEL = "audit.kyverno.io/resource.uid"
_LONGEST_LABEL = 63


def build_ephemeral(
    subject: ReportSubject,
    entries: Iterable[JsonObject],
    *,
    plural: str = "",
    source: str = "admission",
) -> JsonObject:
    """An EphemeralReport, or a ClusterEphemeralReport for an object without a namespace."""
    listed = sort_entries(entries)
    metadata: JsonObject = {
        "generateName": f"{subject.uid or 'new'}-",
        "labels": _build_labels(subject, plural, source),
        "annotations": {
            "audit.kyverno.io/resource.namespace": subject.namespace,
            "audit.kyverno.io/resource.name": subject.name,
        },
    }
    if subject.namespace:
        metadata["namespace"] = subject.namespace
    kind = "EphemeralReport" if subject.namespace else "ClusterEphemeralReport"
    return {
        "apiVersion": "reports.kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "owner": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "name": subject.name,
                "uid": subject.uid,
            },
            "results": listed,
            "summary": summarize(listed),
        },
    }


def _build_labels(subject: ReportSubject, plural: str, source: str) -> dict[str, str]:
    group, _, version = subject.api_version.rpartition("/")
    labels = {
        **MANAGED_BY,
        UID_LABEL: subject.uid,
        "audit.kyverno.io/resource.group": group,
        "audit.kyverno.io/resource.version": version,
        "audit.kyverno.io/resource.kind": subject.kind,
        "audit.kyverno.io/source": source,
    }
    if plural:
        labels["audit.kyverno.io/resource.gvr"] = f"{plural}.{version}.{group}".rstrip(".")
    return {name: text[:_LONGEST_LABEL] for name, text in labels.items()}


def read_ephemeral(report: JsonObject) -> tuple[ReportSubject, list[JsonObject]]:
    """The subject and the entries of an ephemeral report; other values are left out."""
    spec = report.get("spec") or {}
    owner = spec.get("owner") or {}
    namespace = str(report["metadata"].get("namespace") or "")
    subject = ReportSubject(
        str(owner.get("apiVersion") or ""),
        str(owner.get("kind") or ""),
        namespace,
        str(owner.get("name") or ""),
        str(owner.get("uid") or ""),
    )
    entries = [e for e in spec.get("results") or () if isinstance(e, dict) and e.get("policy")]
    return subject, entries
