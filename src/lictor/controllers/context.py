"""What every reconcile loop works with: client, shared caches, policies, settings, the engine."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from lictor.controllers.existing_objects import evaluate_now
from lictor.core.engine import Engine
from lictor.core.model.request import Request
from lictor.core.model.result import Verdict
from lictor.core.report.events import Event
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.kubernetes.namespaces import NamespaceCache
from lictor.kubernetes.process_log import follow_log_level
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.settings import SettingsWatch
from lictor.lookups.lookups import ClusterLookups
from lictor.policies.family_services import ServiceAccess
from lictor.policies.store import PolicyStore


async def evaluate_in_thread(engine: Engine, request: Request) -> Verdict:
    """The results of the policies for a request."""
    return await asyncio.to_thread(evaluate_now, engine, request)


EmitEvent: TypeAlias = Callable[[Event], None]


class ControllerContext(msgspec.Struct):
    """Created once for a process. Loops that watch the same resources share a cache."""

    client: Client
    flags: Flags
    names: Names
    identity: str
    store: PolicyStore
    settings: SettingsWatch
    lookups: ClusterLookups
    namespaces: NamespaceCache
    _caches: dict[tuple[Resource, str, str, str], Cache] = msgspec.field(default_factory=dict)

    def watch(
        self, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Cache:
        """The cache of a kind; it runs as long as the process. Call this while loops are built."""
        key = (resource, namespace, labels, fields)
        if key not in self._caches:
            self._caches[key] = Cache(
                self.client, resource, namespace=namespace, labels=labels, fields=fields
            )
        return self._caches[key]

    async def run(self) -> None:
        """Keep all caches, the policies and the settings up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.store.run())
            group.create_task(self.settings.run())
            group.create_task(self.lookups.run())
            group.create_task(self.namespaces.run())
            for cache in self._caches.values():
                group.create_task(cache.run())

    async def wait(self) -> None:
        """Wait for the first complete lists."""
        await self.store.wait()
        await self.settings.wait()
        await self.lookups.wait()
        await self.namespaces.wait()
        for cache in self._caches.values():
            await cache.wait()


def build_context(client: Client, flags: Flags, names: Names, identity: str) -> ControllerContext:
    """A context for the event loop that runs now."""
    loop = asyncio.get_running_loop()
    lookups = ClusterLookups(client, loop, flags, namespace=names.namespace)
    access = ServiceAccess(names.namespace, lookups.get_path)
    settings = SettingsWatch(client, names)
    follow_log_level(settings)
    return ControllerContext(
        client,
        flags,
        names,
        identity,
        PolicyStore(client, flags, lookups, access),
        settings,
        lookups,
        NamespaceCache(client),
    )
