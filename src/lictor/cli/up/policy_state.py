"""Which policies are there in the embedded cluster, and which of them are in force?"""

from collections.abc import Iterator

import msgspec

from lictor.apiserver.server import Server
from lictor.raw import JsonObject

_GROUPS = ("kyverno.io", "policies.kyverno.io")
_READY = frozenset(("Ready", "WebhookConfigured"))
# Nobody waits for these: they work by the clock.
_BY_THE_CLOCK = ("Cleanup", "Deleting")


class StoredPolicy(msgspec.Struct, frozen=True):
    """A policy in the store."""

    kind: str
    namespace: str
    name: str
    is_in_force: bool


def list_policies(server: Server) -> list[StoredPolicy]:
    """All policies of the cluster, each once."""
    return [
        StoredPolicy(
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
    return group in _GROUPS and document["kind"].endswith("Policy")


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
        if kind.group in _GROUPS and kind.kind.endswith("Policy")
    )
    for place in places:
        yield from server.store.storage(*place).select()


def _is_in_force(document: JsonObject) -> bool:
    if any(word in document["kind"] for word in _BY_THE_CLOCK):
        return True
    status = document.get("status") or {}
    conditions = (status.get("conditionStatus") or status).get("conditions") or ()
    return any(each["type"] in _READY and each["status"] == "True" for each in conditions)
