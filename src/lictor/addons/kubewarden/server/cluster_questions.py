"""What do policies of a policy server ask of its cluster? Imported only where there is one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lictor.addons.kubewarden.server.environment import refuse_missing_cluster
from lictor.addons.kubewarden.server.options import PolicyServerOptions
from lictor.core.errors import LictorError
from lictor.core.ports import DEFAULT_ACCESS, Lookups, Registries, RegistryAccess
from lictor.core.raw import JsonObject
from lictor.images.image_data import describe_image
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.flags import Flags
from lictor.lookups.lookups import ClusterLookups, begin_request

_CONNECT_SECONDS = 5.0


def begin_question(deadline: float) -> None:
    """What is asked from now on, on this thread, is waited for until then."""
    begin_request(deadline)


@asynccontextmanager
async def open_cluster(
    config: ClusterConfig, options: PolicyServerOptions, registries: Registries
) -> AsyncIterator[Lookups | None]:
    """Lookups of this event loop; None where no cluster answers, and that was said to be fine."""
    client = Client(config)
    try:
        why = await _try(client)
        if why is not None:
            refuse_missing_cluster(options, why)
            yield None
            return
        # Nothing is watched but what policies list.
        flags = Flags(enable_config_map_caching=False)
        lookups = _ServerLookups(client, asyncio.get_running_loop(), flags)
        lookups.use(registries)
        try:
            yield lookups
        finally:
            await lookups.close()
    finally:
        await client.close()


async def _try(client: Client) -> str | None:
    """Why the cluster does not answer."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await client.request("GET", "/version")
    except (LictorError, OSError, TimeoutError) as error:
        return str(error)
    return None


class _ServerLookups(ClusterLookups):
    """The cluster, and registries as `sources.yml` and the other files say."""

    def use(self, registries: Registries) -> None:
        self._chosen = registries

    def registries(self) -> Registries:
        return self._chosen

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return describe_image(self._chosen, reference, access)
