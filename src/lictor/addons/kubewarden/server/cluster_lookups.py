"""Lookups of a policy server in its cluster. Imported only if there is a cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lictor.addons.kubewarden.server.options import PolicyServerOptions
from lictor.addons.kubewarden.server.policies_file import refuse_missing_cluster
from lictor.core.errors import LictorError
from lictor.core.ports import DEFAULT_ACCESS, Lookups, Registries, RegistryAccess
from lictor.core.raw import JsonObject
from lictor.images.image_data import describe_image
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.flags import Flags
from lictor.lookups.lookups import ClusterLookups, begin_request

_CONNECT_SECONDS = 5.0


def begin_lookups(deadline: float) -> None:
    """Set the deadline of the lookups that this thread makes from now on."""
    begin_request(deadline)


@asynccontextmanager
async def open_cluster(
    config: ClusterConfig, options: PolicyServerOptions, registries: Registries
) -> AsyncIterator[Lookups | None]:
    """Lookups of this event loop; None if no cluster answers and none is needed."""
    client = Client(config)
    try:
        why = await _find_connection_fault(client)
        if why is not None:
            refuse_missing_cluster(options, why)
            yield None
            return
        # Only resources that policies list are watched.
        flags = Flags(enable_config_map_caching=False)
        lookups = _ServerLookups(client, asyncio.get_running_loop(), flags)
        lookups.use(registries)
        try:
            yield lookups
        finally:
            await lookups.close()
    finally:
        await client.close()


async def _find_connection_fault(client: Client) -> str | None:
    """Why the cluster does not answer; None if it does."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await client.request("GET", "/version")
    except (LictorError, OSError, TimeoutError) as error:
        return str(error)
    return None


class _ServerLookups(ClusterLookups):
    """The cluster, and the registries that `sources.yml` and the other files configure."""

    def use(self, registries: Registries) -> None:
        self._chosen = registries

    def registries(self) -> Registries:
        return self._chosen

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return describe_image(self._chosen, reference, access)
