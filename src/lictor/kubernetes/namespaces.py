"""The namespaces of the cluster and their labels, watched."""

import time
from collections.abc import Callable, Mapping

from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import NAMESPACE

_NO_LABELS: Mapping[str, str] = {}
# Namespaces that were read before the watch reported them: how many, and for how long.
_MAX_EARLY = 1000
_EARLY_SECONDS = 30.0


class NamespaceCache:
    """All namespaces by name. `run` watches them until cancelled."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cache = Cache(client, NAMESPACE)
        self._early: dict[str, tuple[float, JsonObject]] = {}
        self._cache.listen(self._forget_early)

    async def run(self) -> None:
        """Follow the namespaces. Ends only when cancelled."""
        await self._cache.run()

    async def wait(self) -> None:
        """Wait for the first complete list."""
        await self._cache.wait()

    def object(self, name: str) -> JsonObject | None:
        """The whole Namespace; None if it is unknown."""
        found = self._cache.get(name)
        if found is None and name in self._early:
            until, found = self._early[name]
            if time.monotonic() > until:
                del self._early[name]
                return None
        return found

    def labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; none if it is unknown (see `ensure`)."""
        found = self.object(name)
        if found is None:
            return _NO_LABELS
        labels: Mapping[str, str] | None = found["metadata"].get("labels")
        return labels or _NO_LABELS

    async def ensure(self, name: str) -> JsonObject | None:
        """The Namespace, read from the API server if the watch has not reported it yet.

        The first object in a new namespace may arrive before the watch event; policies that select
        namespaces by label would miss it.
        """
        found = self.object(name)
        if found is not None or not name:
            return found
        found = await self._client.find(NAMESPACE, name)
        if found is not None and len(self._early) < _MAX_EARLY and self._cache.get(name) is None:
            self._early[name] = time.monotonic() + _EARLY_SECONDS, found
        return found

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` with every later change; it must not block."""
        self._cache.listen(listener)

    def _forget_early(self, change: Change) -> None:
        self._early.pop(change.object["metadata"]["name"], None)
