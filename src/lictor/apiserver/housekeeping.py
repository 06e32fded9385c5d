"""Everything that the server does by itself, once it is open."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from lictor.apiserver.access.role_aggregation import AGGREGATOR, RoleAggregation
from lictor.apiserver.admission.native_policy_status import STATUS_KEEPER, PolicyStatus
from lictor.apiserver.attributes import ApiUser
from lictor.apiserver.controllers.garbage_collector import GarbageCollector
from lictor.apiserver.controllers.namespaces import NamespaceController
from lictor.apiserver.kinds.catalogue import KindCatalogue
from lictor.apiserver.loopback_client import LoopbackClient
from lictor.apiserver.reading import ObjectReader
from lictor.apiserver.store import Store
from lictor.raw import JsonObject

# Runs until it is cancelled.
Duty: TypeAlias = Callable[[], Awaitable[None]]


def list_duties(
    api: LoopbackClient, store: Store, catalogue: KindCatalogue, authority: str
) -> tuple[Duty, ...]:
    """All of them; `authority` is the certificate by which clients know the server."""
    reader = ObjectReader(store, catalogue)
    roles = _build_write(api, catalogue, AGGREGATOR, "")
    statuses = _build_write(api, catalogue, STATUS_KEEPER, "status")
    return (
        NamespaceController(api, store, catalogue, authority).run,
        GarbageCollector(api, store, catalogue).run,
        RoleAggregation(reader, roles).run,
        PolicyStatus(reader, statuses).run,
    )


def _build_write(
    api: LoopbackClient, catalogue: KindCatalogue, user: ApiUser, subresource: str
) -> Callable[[JsonObject], Awaitable[object]]:
    async def write(document: JsonObject) -> object:
        kind = catalogue.find_kind(document["apiVersion"], document["kind"])
        if kind is None:
            return None
        return await api.update(user, kind, document, subresource=subresource)

    return write
