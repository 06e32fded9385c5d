"""Parses `policies.yml` into entries by policy; errors name line and policy."""

import logging
from typing import Final, TypeVar

import msgspec
from yaml.nodes import MappingNode, Node

from lictor.addons.kubewarden.family.entries import (
    GroupEntry,
    MemberEntry,
    PolicyEntry,
    ServerEntry,
)
from lictor.addons.kubewarden.server.options import PolicyServerOptions
from lictor.core.errors import LictorError, LoadError
from lictor.core.lang.yaml.core_schema import build_core_yaml, compose_core_yaml
from lictor.core.lang.yaml.plain_json import YamlFault
from lictor.core.raw import Json, JsonObject

log = logging.getLogger(__name__)

Entry = TypeVar("Entry", PolicyEntry, MemberEntry, GroupEntry)

_POLICY_FIELDS: Final = frozenset(
    field.encode_name for field in msgspec.structs.fields(PolicyEntry)
)
_MEMBER_FIELDS: Final = frozenset(
    field.encode_name for field in msgspec.structs.fields(MemberEntry)
)
_GROUP_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(GroupEntry))


def load_policies_file(text: str, source: str) -> dict[str, ServerEntry]:
    """The policies and groups of a file, by their ids; none where it is empty."""
    try:
        root = compose_core_yaml(text)
        body = build_core_yaml(root)
    except YamlFault as fault:
        where = f"{source}:{fault.line + 1}:{fault.column + 1}"
        raise LoadError(fault.message, where=where) from fault
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise LoadError("expected a map of policies by name", where=source)
    lines = _find_lines(root)
    return {
        name: _read_entry(name, entry, f"{source}:{lines.get(name, 1)}: policy {name}")
        for name, entry in body.items()
    }


def _find_lines(root: Node | None) -> dict[str, int]:
    if not isinstance(root, MappingNode):
        return {}
    return {str(key.value): key.start_mark.line + 1 for key, _ in root.value}


def _read_entry(name: str, entry: Json, where: str) -> ServerEntry:
    if not name or "/" in name:
        # `group/member` is the address of a member.
        raise LoadError("a name must not be empty, nor have a '/' in it", where=where)
    if not isinstance(entry, dict):
        raise LoadError("expected a map with a module, or with policies", where=where)
    entry = _without_null_settings(entry)
    if "module" in entry or "policies" not in entry:
        _report_unknown(entry, _POLICY_FIELDS, where)
        policy = _convert(entry, PolicyEntry, where)
        _check_limit(policy, where)
        return policy
    _report_unknown(entry, _GROUP_FIELDS, where)
    return _read_group(entry, where)


def _read_group(entry: JsonObject, where: str) -> GroupEntry:
    policies = entry["policies"]
    if not isinstance(policies, dict):
        raise LoadError("expected a map at policies", where=where)
    members: JsonObject = {}
    for name, member in policies.items():
        inside = f"{where}, member {name}"
        if not name or "/" in name:
            raise LoadError("a name must not be empty, nor have a '/' in it", where=inside)
        if not isinstance(member, dict):
            raise LoadError("expected a map with a module", where=inside)
        unknown = sorted(member.keys() - _MEMBER_FIELDS)
        if unknown:
            raise LoadError(f"a member has no field {unknown[0]!r}", where=inside)
        members[name] = _without_null_settings(member)
        _check_limit(_convert(members[name], MemberEntry, inside), inside)
    return _convert({**entry, "policies": members}, GroupEntry, where)


def _without_null_settings(entry: JsonObject) -> JsonObject:
    if entry.get("settings", entry) is None:
        return {**entry, "settings": {}}
    return entry


def _convert(entry: JsonObject, into: type[Entry], where: str) -> Entry:
    try:
        return msgspec.convert(entry, into)
    except msgspec.ValidationError as error:
        raise LoadError(str(error), where=where) from error


def _check_limit(entry: MemberEntry, where: str) -> None:
    if entry.timeout_eval_seconds is not None and entry.timeout_eval_seconds < 1:
        raise LoadError("timeoutEvalSeconds must be at least 1", where=where)


def _report_unknown(entry: JsonObject, known: frozenset[str], where: str) -> None:
    for name in sorted(entry.keys() - known):
        log.warning("field not known, and ignored", extra={"where": where, "field": name})


def refuse_missing_cluster(options: PolicyServerOptions, why: str) -> None:
    """LoadError, unless no policy reads the cluster, or the operator starts all the same."""
    if not options.ignores_missing_cluster and _needs_cluster(options):
        raise LoadError(
            f"the cluster is not available ({why or 'no answer'}): policies that read it would "
            "fail; --ignore-kubernetes-connection-failure starts without it"
        )
    log.warning("cluster not available", extra={"why": why})


def _needs_cluster(options: PolicyServerOptions) -> bool:
    """Does a policy read objects of the cluster? An invalid file is reported elsewhere."""
    try:
        text = options.policies.read_text(encoding="utf-8")
        entries = load_policies_file(text, str(options.policies)).values()
    except (LictorError, OSError, UnicodeDecodeError):
        return True
    members = (
        member
        for each in entries
        for member in (each.policies.values() if isinstance(each, GroupEntry) else (each,))
    )
    return any(member.context_aware_resources for member in members)
