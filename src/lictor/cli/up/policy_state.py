"""Which policies are there in the embedded cluster, and which of them are in force?"""

from collections.abc import Iterator

import msgspec

from lictor.apiserver.server import Server
from lictor.cluster.stored_policy import is_ready
from lictor.families.registry import PolicyKind, Role, registry
from lictor.raw import JsonObject


class PolicySummary(msgspec.Struct, frozen=True):
    """A policy in the store."""

    kind: str
    namespace: str
    name: str
    is_in_force: bool


def list_policies(server: Server) -> list[PolicySummary]:
    """All policies of the cluster, each once."""
    return [
        PolicySummary(
            each["kind"],
            each["metadata"].get("namespace") or "",
            each["metadata"]["name"],
            _is_in_force(each),
        )
        for each in _iter_stored(server)
    ]


def is_policy(document: JsonObject) -> bool:
    """Is it an object that lictor judges by?"""
    group, _, _ = document["apiVersion"].partition("/")
    return _is_policy_kind(registry().find(group, document["kind"]))


def _is_policy_kind(kind: PolicyKind | None) -> bool:
    return kind is not None and not kind.is_native and kind.role in (Role.POLICY, Role.DELETION)


def is_waited_for(server: Server, document: JsonObject) -> bool:
    """Is the policy there, and not yet in force? One that was refused is none to wait for."""
    kind = server.catalogue.find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        return False
    metadata = document["metadata"]
    namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
    found = server.store.get(kind, namespace, metadata["name"])
    return found is not None and not _is_in_force(found)


def _iter_stored(server: Server) -> Iterator[JsonObject]:
    places = dict.fromkeys(
        (kind.group, kind.plural)
        for kind in server.catalogue
        if _is_policy_kind(registry().find(kind.group, kind.kind))
    )
    for place in places:
        yield from server.store.storage(*place).select()


def _is_in_force(document: JsonObject) -> bool:
    kind = registry().get(document["apiVersion"].partition("/")[0], document["kind"])
    if kind.role is Role.DELETION:
        return True  # nobody waits for these: they work by the clock
    return is_ready(document)
