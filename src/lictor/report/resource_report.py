"""What policies say about one object of the cluster, as the report that belongs to it."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec
import orjson

from lictor.model.result import PolicyRef, Result, RuleType, Status
from lictor.raw import JsonObject
from lictor.report.summary import reported_status

MANAGED_BY = {"app.kubernetes.io/managed-by": "kyverno"}
_SEVERITIES = frozenset(("critical", "high", "medium", "low", "info"))
_BACKGROUND = "background scan"
_ADMISSION = "admission review"
# An object of etcd may hold 1.5 MiB; a report that would come near is cut, and says so.
_MAX_BYTES = 1_000_000
_LONGEST_MESSAGE = 4096


class Subject(msgspec.Struct, frozen=True):
    """The object that a report is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: JsonObject) -> "Subject":
        metadata = resource.get("metadata") or {}
        return cls(
            str(resource.get("apiVersion") or ""),
            str(resource.get("kind") or ""),
            str(metadata.get("namespace") or ""),
            str(metadata.get("name") or ""),
            str(metadata.get("uid") or ""),
        )


class ReportForm(msgspec.Struct, frozen=True):
    """Which kind of report the installation wants, and what it leaves out."""

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
    """One result as a report tells it."""
    policy = result.policy
    entry: JsonObject = {
        "source": policy.source,
        "policy": policy.key,
        "rule": result.rule,
        "message": _shorten(_read_message(result)),
        "result": str(reported_status(result)),
        "scored": policy.scored,
        "category": policy.category,
        "severity": policy.severity if policy.severity in _SEVERITIES else "",
        "properties": _read_properties(result, background=background),
        "timestamp": {"seconds": timestamp, "nanos": 0},
    }
    return {name: value for name, value in entry.items() if value != ""}


def _read_message(result: Result) -> str:
    properties = result.properties
    if not properties:
        return result.message
    own = properties.get(f"{result.status}Message")
    return properties.get("message") or own or result.message


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
    subject = Subject.of(resource)
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
    subject: Subject,
    entries: Iterable[JsonObject],
    *,
    openreports: bool = False,
    annotations: Mapping[str, str] | None = None,
) -> JsonObject:
    """The report of one object: named by its UID, owned by it."""
    listed, left_out = _cut(sort_entries(entries))
    notes = dict(annotations or {})
    if left_out:
        notes["lictor.io/results-left-out"] = str(left_out)
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


def _own(subject: Subject) -> JsonObject:
    return {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "name": subject.name,
        "uid": subject.uid,
    }


def _scope(subject: Subject) -> JsonObject:
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


def summarize(entries: Iterable[JsonObject]) -> JsonObject:
    """How many results there are of each kind."""
    summary = {"pass": 0, "fail": 0, "warn": 0, "error": 0, "skip": 0}
    for entry in entries:
        summary[entry["result"]] += 1
    return summary


def take_fingerprint(entries: Iterable[JsonObject]) -> str:
    """Equal for reports that say the same, whenever they were made."""
    digest = blake2b(digest_size=12)
    for entry in sort_entries(entries):
        told = {name: value for name, value in entry.items() if name != "timestamp"}
        digest.update(orjson.dumps(told, option=orjson.OPT_SORT_KEYS))
    return digest.hexdigest()


def is_about(entry: JsonObject, policy: PolicyRef) -> bool:
    """Did this policy make this entry?"""
    return bool(entry.get("policy") == policy.key and entry.get("source") == policy.source)
