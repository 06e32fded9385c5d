"""A connection to a cluster for a command without an event loop: policies, exceptions, lookups."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TypeVar

import orjson

from lictor.cli.inputs.lookups import GivenObjects, choose_given, describe_given_image
from lictor.cli.inputs.requests import GivenValues
from lictor.cli.inputs.sources import SourceText
from lictor.controllers.cleanup.sweep import SweepLookups
from lictor.core.errors import ApiError, LookupFailedError, NotFoundError
from lictor.core.ports import DEFAULT_ACCESS, Registries, RegistryAccess
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.cache import drop_managed_fields
from lictor.kubernetes.client import Client
from lictor.kubernetes.discovery import Collection, ServedKinds
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, Resource
from lictor.kubernetes.work_queue import cancel_all
from lictor.lookups.lookups import ClusterLookups
from lictor.policies.store import list_policy_resources
from lictor.policies.stored_exceptions import list_exception_resources

T = TypeVar("T")

# Pages of each collection that may wait to be evaluated.
_PAGES_AHEAD = 2


class LiveCluster:
    """Reads a cluster; the client runs on a separate thread."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        config = load_config(kubeconfig, context)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="cluster")
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self.client = self.run(_build(lambda: Client(config)))
        flags = Flags(enable_config_map_caching=False)
        self.lookups = self.run(_build(lambda: ClusterLookups(self.client, self._loop, flags)))
        self._served: tuple[Collection, ...] | None = None

    def __enter__(self) -> "LiveCluster":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def served(self) -> tuple[Collection, ...]:
        """The collections of the API server, read once."""
        if self._served is None:
            self._served = self.run(ServedKinds(self.client).read())
        return self._served

    def read_definitions(self) -> tuple[Json, ...]:
        """The CustomResourceDefinitions of the cluster."""
        try:
            return tuple(self.run(self.client.list(CUSTOM_RESOURCE_DEFINITION)))
        except ApiError as error:
            # Without them, fields of custom kinds would go unchecked unnoticed.
            raise LookupFailedError(
                f"cannot read the CustomResourceDefinitions of the cluster: {error}"
            ) from error

    def run(self, question: Coroutine[None, None, T]) -> T:
        """Wait for the answer of a coroutine."""
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Let a coroutine run beside everything else, until the end."""

        async def begin() -> None:
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.run(begin())

    def stream(self, sources: list[AsyncIterator[T]], at_once: int) -> Iterator[T]:
        """What the sources give, one source after the other, while `at_once` of them are read.

        Each may be a little ahead, and no more: memory does not grow with what they give.
        """
        queues: list[asyncio.Queue[T | Exception | None]] = [
            asyncio.Queue(_PAGES_AHEAD) for _ in sources
        ]
        gate = asyncio.Semaphore(max(at_once, 1))
        for source, queue in zip(sources, queues, strict=True):
            self.start(_fill(source, queue, gate))
        for queue in queues:
            while (item := self.run(queue.get())) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item

    async def _end(self) -> None:
        await cancel_all(*self._tasks)
        await self.lookups.close()
        await self.client.close()


async def _fill(
    source: AsyncIterator[T], queue: "asyncio.Queue[T | Exception | None]", gate: asyncio.Semaphore
) -> None:
    async with gate:
        try:
            async for item in source:
                await queue.put(item)
        except Exception as error:  # noqa: BLE001  (raised again by the reader of the items)
            await queue.put(error)
        await queue.put(None)


async def _build(make: Callable[[], T]) -> T:
    return make()


def _read(cluster: LiveCluster, kinds: Iterable[Resource]) -> Iterator[SourceText]:
    for kind in kinds:
        for item in cluster.run(_list(cluster.client, kind)):
            metadata = item["metadata"]
            place = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            yield SourceText(f"{kind.kind} {place}", orjson.dumps(drop_managed_fields(item)))


async def _list(client: Client, kind: Resource) -> list[JsonObject]:
    try:
        return await client.list(kind)
    except NotFoundError:
        return []


class LiveLookups(SweepLookups):
    """Lookups in a cluster; each object is read once in a run."""

    def __init__(self, cluster: LiveCluster, values: GivenValues, given: GivenObjects) -> None:
        super().__init__(cluster.lookups)
        self._cluster = cluster
        self._values = values
        self._given = given
        self._follows_entries = False
        self._namespaces: dict[str, JsonObject] | None = None

    @property
    def namespaces(self) -> Mapping[str, JsonObject]:
        """All namespaces by name, read once."""
        if self._namespaces is None:
            found = self._cluster.run(self._cluster.client.list(NAMESPACE))
            self._namespaces = {item["metadata"]["name"]: item for item in found}
        return self._namespaces

    def global_reference(self, name: str) -> Json:
        if not self._follows_entries:
            self._follows_entries = True
            entries = self._cluster.lookups.global_context
            self._cluster.start(entries.run())
            self._cluster.run(entries.wait())
        return super().global_reference(name)

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return describe_given_image(self._given, reference, access)

    def registries(self) -> Registries:
        return choose_given(self._given)

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        if (api_version, kind) == ("v1", "Namespace"):
            given = self._values.namespace(name)
            return given if given is not None else self.namespaces.get(name)
        return super().resource(api_version, kind, namespace, name)

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        return self._values.of_rule(policy, rule)

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        return self._values.of_rule(policy, rule, index)


def read_cluster_policies(cluster: LiveCluster) -> Iterator[SourceText]:
    """The policies of the cluster, each as the file that it might have been."""
    yield from _read(cluster, list_policy_resources())


def read_cluster_exceptions(cluster: LiveCluster) -> Iterator[SourceText]:
    """The exceptions of the cluster."""
    yield from _read(cluster, list_exception_resources())
