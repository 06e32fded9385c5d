"""A connection to a cluster for a command that knows no event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TypeVar

from lictor.cluster.client import Client
from lictor.cluster.config import load_config
from lictor.cluster.discovery import Collection, ServedKinds
from lictor.cluster.flags import Flags
from lictor.cluster.lookups import ClusterLookups

T = TypeVar("T")

# Pages that may wait to be judged, of each collection that is being read.
_PAGES_AHEAD = 2


class LiveCluster:
    """Answers questions about a cluster; the client runs on a thread of its own."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        config = load_config(kubeconfig, context)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="cluster")
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self.client = self.ask(_build(lambda: Client(config)))
        flags = Flags(enable_config_map_caching=False)
        self.lookups = self.ask(_build(lambda: ClusterLookups(self.client, self._loop, flags)))
        self._served: tuple[Collection, ...] | None = None

    def __enter__(self) -> "LiveCluster":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ask(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def served(self) -> tuple[Collection, ...]:
        """What the API server has, asked once."""
        if self._served is None:
            self._served = self.ask(ServedKinds(self.client).read())
        return self._served

    def ask(self, question: Coroutine[None, None, T]) -> T:
        """Wait for the answer of a coroutine."""
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Let a coroutine run beside everything else, until the end."""

        async def begin() -> None:
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.ask(begin())

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
            while (item := self.ask(queue.get())) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.lookups.close()
        await self.client.close()


async def _fill(
    source: AsyncIterator[T], queue: "asyncio.Queue[T | Exception | None]", gate: asyncio.Semaphore
) -> None:
    async with gate:
        try:
            async for item in source:
                await queue.put(item)
        except Exception as error:  # noqa: BLE001  (raised again by whoever waits for the items)
            await queue.put(error)
        await queue.put(None)


async def _build(make: Callable[[], T]) -> T:
    return make()
