"""The collections of the API server, for those who ask now and then."""

import asyncio
import time

from lictor.cluster.client import Client
from lictor.cluster.discovery import Collection, Discovery


class ServedKinds:
    """All collections, in the API server's order; asked for again after `keep` seconds.

    A group that has never answered is left out: what nobody can reach nobody can list or delete.
    """

    def __init__(self, client: Client, *, keep: float = 30.0) -> None:
        self._discovery = Discovery(client)
        self._keep = keep
        self._known: tuple[Collection, ...] = ()
        self._until = float("-inf")
        self._lock = asyncio.Lock()

    async def read(self, *, fresh: bool = False) -> tuple[Collection, ...]:
        """What the API server has."""
        async with self._lock:
            if fresh or time.monotonic() >= self._until:
                await self._discovery.refresh()
                self._known = tuple(self._discovery.list_collections())
                self._until = time.monotonic() + self._keep
            return self._known
