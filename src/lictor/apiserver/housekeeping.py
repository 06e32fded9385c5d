"""Everything that the server does by itself, once it is open."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from lictor.apiserver.access.role_aggregation import AGGREGATOR, RoleAggregation
from lictor.apiserver.admission.native_policy_status import STATUS_KEEPER, PolicyStatus
from lictor.apiserver.attributes import User
from lictor.apiserver.garbage import Garbage
from lictor.apiserver.kinds.catalogue import BuiltCatalogue
from lictor.apiserver.namespaces import Namespaces
from lictor.apiserver.reading import Reader
from lictor.apiserver.store import Store
from lictor.apiserver.verbs import Api
from lictor.raw import JsonObject

# Runs until it is cancelled.
Duty: TypeAlias = Callable[[], Awaitable[None]]


def list_duties(
    api: Api, store: Store, catalogue: BuiltCatalogue, authority: str
) -> tuple[Duty, ...]:
    """All of them; `authority` is the certificate by which clients know the server."""
    reader = Reader(store, catalogue)
    roles = _build_write(api, catalogue, AGGREGATOR, "")
    statuses = _build_write(api, catalogue, STATUS_KEEPER, "status")
    return (
        Namespaces(api, store, catalogue, authority).run,
        Garbage(api, store, catalogue).run,
        RoleAggregation(reader, roles).run,
        PolicyStatus(reader, statuses).run,
    )


def _build_write(
    api: Api, catalogue: BuiltCatalogue, user: User, subresource: str
) -> Callable[[JsonObject], Awaitable[object]]:
    async def write(document: JsonObject) -> object:
        kind = catalogue.find_kind(document["apiVersion"], document["kind"])
        if kind is None:
            return None
        return await api.update(user, kind, document, subresource=subresource)

    return write
