"""GlobalContextEntries: data of the cluster or of services, cached for all policies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.evaluate.expressions import Expressions
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.lang.template import Fill
from lictor.core.ports import ApiCall
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import GLOBAL_CONTEXT_ENTRY, Resource

log = logging.getLogger(__name__)

T = TypeVar("T")
CallApi: TypeAlias = Callable[[ApiCall], Awaitable[Json]]
_Projections: TypeAlias = dict[str, Fill]

_INTERVAL = "10m"
_LEAST_INTERVAL = 1.0
_RETRIES = 3
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 5.0
# How long a request waits for the first list of objects.
_PATIENCE = 2.0


class Wait(Protocol):
    """Runs a coroutine on the event loop, and waits for it on this thread."""

    def __call__(self, coroutine: Coroutine[None, None, T]) -> T: ...


class GlobalContextValue(Protocol):
    """The data of one GlobalContextEntry."""

    async def run(self) -> None: ...

    def read(self, projection: str, wait: Wait) -> Json:
        """The data, or one projection of it; called on any thread but the loop's."""
        ...


class GlobalContext:
    """All entries of the cluster, each with its watch or timer."""

    def __init__(self, client: Client, call_api: CallApi, most: int = 0) -> None:
        # How many entries are kept; 0: all of them.
        self._most = most
        self._refused: dict[str, JsonObject] = {}
        self._client = client
        self._call_api = call_api
        self._cache = Cache(client, GLOBAL_CONTEXT_ENTRY)
        self._cache.listen(self._take)
        self._entries: dict[str, GlobalContextValue] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._listeners: list[Callable[[str, str], None]] = []

    async def run(self) -> None:
        """Follow the entries. Ends only when cancelled."""
        try:
            await self._cache.run()
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def wait(self) -> None:
        """Wait until the entries are known; not until each has its data."""
        await self._cache.wait()

    def find(self, name: str) -> GlobalContextValue | None:
        """An entry by its name."""
        return self._entries.get(name)

    def listen(self, listener: Callable[[str, str], None]) -> None:
        """Call `listener(name, error)` after each refresh by an API call; it must not block."""
        self._listeners.append(listener)

    def _take(self, change: Change) -> None:
        before = (change.before or {}).get("spec")
        if change.type is ChangeType.MODIFIED and before == change.object.get("spec"):
            return
        name = change.object["metadata"]["name"]
        self._entries.pop(name, None)
        self._refused.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
        if change.type is not ChangeType.DELETED:
            self._add(name, change.object.get("spec") or {})
        elif self._refused:
            # There is room for one more.
            waiting = next(iter(self._refused))
            self._add(waiting, self._refused.pop(waiting))

    def _add(self, name: str, spec: JsonObject) -> None:
        if self._most and len(self._tasks) >= self._most:
            why = f"there are {self._most} entries already (--maxGlobalContextEntries)"
            self._refused[name] = spec
            self._entries[name] = _BrokenEntry(f"global context entry {name}: {why}")
            self._report_failure(name, why)
            return
        entry = self._entries[name] = self._build(name, spec)
        self._tasks[name] = asyncio.get_running_loop().create_task(entry.run())

    def _build(self, name: str, spec: JsonObject) -> GlobalContextValue:
        expressions = Expressions(lambda: datetime.now(UTC))
        projections = {
            str(each.get("name")): expressions.query(str(each.get("jmesPath") or ""))
            for each in spec.get("projections") or ()
        }
        try:
            if spec.get("kubernetesResource"):
                return _ResourceEntry(self._client, spec["kubernetesResource"], projections)
            if spec.get("apiCall"):
                return _CallEntry(
                    spec["apiCall"],
                    projections,
                    self._call_api,
                    lambda why: self._report_failure(name, why),
                )
        except ValueError as error:
            return _BrokenEntry(f"global context entry {name}: {error}")
        return _BrokenEntry(f"global context entry {name} has neither resource nor apiCall")

    def _report_failure(self, name: str, why: str) -> None:
        if why:
            log.warning("global context entry failed", extra={"entry": name, "why": why[:200]})
        for listener in self._listeners:
            listener(name, why)


class _BrokenEntry(msgspec.Struct, frozen=True):
    why: str

    async def run(self) -> None: ...

    def read(self, projection: str, wait: Wait) -> Json:  # noqa: ARG002
        raise LookupFailedError(self.why)


class _Data(msgspec.Struct):
    """A version of the data, and its computed projections."""

    whole: Json
    projected: dict[str, Json] = msgspec.field(default_factory=dict)

    def read(self, name: str, projections: _Projections) -> Json:
        if not name:
            return self.whole
        query = projections.get(name)
        if query is None:
            raise LookupFailedError(f'projection "{name}" not found')
        if name not in self.projected:
            try:
                self.projected[name] = query(self.whole)
            except EvaluationError as error:
                raise LookupFailedError(f'failed to apply projection "{name}": {error}') from error
        return self.projected[name]


class _ResourceEntry:
    """All objects of a kind, watched. The list is built on first use."""

    def __init__(self, client: Client, spec: JsonObject, projections: _Projections) -> None:
        group, version, plural = (str(spec.get(n) or "") for n in ("group", "version", "resource"))
        if not version or not plural:
            raise ValueError("kubernetesResource needs version and resource")
        namespace = str(spec.get("namespace") or "")
        resource = Resource(group, version, plural, "", namespaced=bool(namespace))
        self._cache = Cache(client, resource, namespace=namespace)
        self._cache.listen(self._forget)
        self._projections = projections
        self._data: _Data | None = None

    async def run(self) -> None:
        await self._cache.run()

    def read(self, projection: str, wait: Wait) -> Json:
        data = self._data
        if data is None:
            # The cache changes on the loop's thread: a copy is taken there.
            data = wait(self._collect())
        return data.read(projection, self._projections)

    async def _collect(self) -> _Data:
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._cache.wait()
        except TimeoutError:
            why = self._cache.trouble or "the objects are still being read"
            raise LookupFailedError(f"no data available: {why}") from None
        if self._data is None:
            self._data = _Data(self._cache.list())
        return self._data

    def _forget(self, _: Change) -> None:
        self._data = None


class _CallEntry:
    """The response of a call that is repeated periodically."""

    def __init__(
        self,
        spec: JsonObject,
        projections: _Projections,
        call_api: CallApi,
        tell: Callable[[str], None],
    ) -> None:
        self._call = _read_call(spec)
        interval = parse_duration(str(spec.get("refreshInterval") or _INTERVAL)) / NANOSECONDS
        self._interval = max(interval, _LEAST_INTERVAL)
        self._retries = max(int(spec.get("retryLimit") or _RETRIES), 1)
        self._projections = projections
        self._call_api = call_api
        self._report_failure = tell
        self._data: _Data | None = None
        self._why = "no data available"

    async def run(self) -> None:
        while True:
            try:
                self._data = _Data(await self._ask())
                self._why = ""
            except LookupFailedError as error:
                self._why = str(error)
            self._report_failure(self._why)
            await asyncio.sleep(self._interval)

    async def _ask(self) -> Json:
        pause = _FIRST_PAUSE
        for _ in range(self._retries - 1):
            try:
                return await self._call_api(self._call)
            except LookupFailedError:
                await asyncio.sleep(pause)
                pause = min(pause * 5, _LONGEST_PAUSE)
        return await self._call_api(self._call)

    def read(self, projection: str, wait: Wait) -> Json:  # noqa: ARG002
        # Older data than the last refresh violates the refresh interval.
        data = self._data
        if self._why or data is None:
            raise LookupFailedError(self._why)
        return data.read(projection, self._projections)


def _read_call(spec: JsonObject) -> ApiCall:
    service = spec.get("service") or {}
    data = {str(each.get("key")): each.get("value") for each in spec.get("data") or ()}
    return ApiCall(
        url_path=str(spec.get("urlPath") or ""),
        method=str(spec.get("method") or "GET"),
        data=data or None,
        service_url=str(service.get("url") or ""),
        headers={str(h.get("key")): str(h.get("value")) for h in service.get("headers") or ()},
        ca_bundle=str(service.get("caBundle") or ""),
    )
