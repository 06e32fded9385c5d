"""Policies as a policy server has them: the entries of `policies.yml`, and their states."""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec

from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record

# Where a server reports the state of each policy. Public: without settings.
POLICIES_PATH = "/policies"
_LONGEST_REASON = 1000
# Shorter ones occur in any sentence, and identify nothing.
_SHORTEST_SECRET = 3
_HIDDEN = "…"


class PolicyMode(StrEnum):
    """Does a policy deny, or only report?"""

    PROTECT = "protect"
    MONITOR = "monitor"


class ContextAwareResource(msgspec.Struct, frozen=True, rename="camel"):
    """A kind of objects that a policy may read."""

    api_version: str
    kind: str


class NamespacedName(msgspec.Struct, frozen=True, omit_defaults=True):
    """The policy that an entry was made of, as Kubewarden's controller writes it."""

    # Empty for policies of the whole cluster, and in files that people write.
    namespace: str = msgspec.field(default="", name="Namespace")
    name: str = msgspec.field(default="", name="Name")


class MemberEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A policy inside a group."""

    module: str
    settings: JsonObject = {}
    context_aware_resources: tuple[ContextAwareResource, ...] = ()
    timeout_eval_seconds: int | None = None
    # Patterns of its allowed host calls; empty: none.
    host_capabilities: tuple[str, ...] = ()


class PolicyEntry(MemberEntry, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A single policy."""

    policy_mode: PolicyMode = PolicyMode.PROTECT
    allowed_to_mutate: bool = False
    # Returned instead of the policy's message.
    message: str | None = None
    namespaced_name: NamespacedName = NamespacedName()


class GroupEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Policies that decide together."""

    expression: str
    message: str
    policies: dict[str, MemberEntry]
    policy_mode: PolicyMode = PolicyMode.PROTECT
    namespaced_name: NamespacedName = NamespacedName()


ServerEntry: TypeAlias = PolicyEntry | GroupEntry


class AdmissionStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request was denied, or another message."""

    message: str | None = None
    code: int | None = None
    details: JsonObject | None = None


class PolicyResponse(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a policy server answers; `auditAnnotations` and `warnings` are always written."""

    uid: str
    allowed: bool
    # Base64 of a JSON patch.
    patch: str | msgspec.UnsetType = msgspec.UNSET
    patch_type: Literal["JSONPatch"] | msgspec.UnsetType = msgspec.UNSET
    status: AdmissionStatus | msgspec.UnsetType = msgspec.UNSET
    audit_annotations: dict[str, str] | None = None
    warnings: tuple[str, ...] | None = None


class LoadStage(StrEnum):
    """Can a policy be evaluated?"""

    READY = "ready"
    # Its module is being fetched, or will be requested again.
    PENDING = "pending"
    # Not before its entry is changed.
    FAILED = "failed"


class PolicyLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """One policy on a server."""

    # Of the entry that is served; empty where there is no single one.
    digest: str
    state: LoadStage
    reason: str = ""


class LoadReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """All policies of a server, or of one of its processes."""

    policies: Mapping[str, PolicyLoad] = {}
    # Why the last change of the file was not taken over; empty where it was.
    refused: str = ""


_REPORT = msgspec.json.Decoder(LoadReport)


def digest_entry(entry: ServerEntry) -> str:
    """The same text for entries of the same meaning, in any file."""
    text = json.dumps(msgspec.to_builtins(entry), sort_keys=True)
    return sha256(text.encode()).hexdigest()


def digest_document(entry: JsonObject) -> str:
    """That of an entry as it stands in `policies.yml`."""
    if "policies" in entry:
        return digest_entry(convert_record(entry, GroupEntry))
    return digest_entry(convert_record(entry, PolicyEntry))


def describe_load(entry: ServerEntry, why: str, *, is_late: bool) -> PolicyLoad:
    """The state of this entry; `why`: why it cannot be evaluated, `is_late`: not yet."""
    digest = digest_entry(entry)
    if not why:
        return PolicyLoad(digest, LoadStage.READY)
    stage = LoadStage.PENDING if is_late else LoadStage.FAILED
    return PolicyLoad(digest, stage, _hide_settings(why, entry)[:_LONGEST_REASON])


def write_report(report: LoadReport) -> bytes:
    """The page."""
    return msgspec.json.encode(report, order="sorted")


def read_report(page: bytes) -> LoadReport:
    """From the page; msgspec.DecodeError where it is none."""
    return _REPORT.decode(page)


def merge_reports(reports: Sequence[LoadReport]) -> LoadReport:
    """What is true of all processes: a policy is ready once it is ready in each of them."""
    names = {name for report in reports for name in report.policies}
    policies = {
        name: _merge([report.policies.get(name) for report in reports]) for name in sorted(names)
    }
    refused = next((report.refused for report in reports if report.refused), "")
    return LoadReport(policies, refused)


def _merge(loads: Sequence[PolicyLoad | None]) -> PolicyLoad:
    found = [load for load in loads if load is not None]
    if len(found) < len(loads) or len({load.digest for load in found}) > 1:
        why = next((load.reason for load in found if load.reason), "not all processes have it yet")
        return PolicyLoad("", LoadStage.PENDING, why)
    for stage in (LoadStage.FAILED, LoadStage.PENDING):
        worse = [load for load in found if load.state is stage]
        if worse:
            return worse[0]
    return found[0]


def _hide_settings(text: str, entry: ServerEntry) -> str:
    """Modules may quote what they find wrong."""
    members = entry.policies.values() if isinstance(entry, GroupEntry) else (entry,)
    values = {value for member in members for value in _list_values(member.settings)}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    return text


def _list_values(settings: Json) -> Iterator[str]:
    if isinstance(settings, dict):
        for value in settings.values():
            yield from _list_values(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from _list_values(value)
    elif not isinstance(settings, bool) and settings is not None:
        value = str(settings)
        if len(value) >= _SHORTEST_SECRET:
            yield value
