"""Finds the existing objects that a policy would delete now. Nothing is deleted here."""

import asyncio
from collections import OrderedDict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import datetime
from threading import Lock
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from lictor.controllers.cleanup.policies import (
    CleanupRecord,
    CleanupTarget,
    compile_record,
    find_targets,
)
from lictor.core.errors import ApiError, EvaluationError, GoneError, LookupFailedError
from lictor.core.evaluations import EVALUATIONS, identify
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import CleanupProgram
from lictor.core.model.request import Request
from lictor.core.ports import (
    DEFAULT_ACCESS,
    ApiCall,
    GuestLogLine,
    HttpLimits,
    Lookups,
    ObjectQuery,
    Registries,
    RegistryAccess,
    ResourceFacts,
)
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.discovery import Collection
from lictor.kubernetes.names import Names

T = TypeVar("T")

# A context that uses the evaluated object queries something else each time: keep the latest.
_MAX_KEPT = 200


class SweepLookups:
    """Caches answers and failures: an unreachable service is not waited for again."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._kept: OrderedDict[Hashable, Json] = OrderedDict()
        self._lock = Lock()

    def _remember(self, key: Hashable, ask: Callable[[], T]) -> T:
        with self._lock:
            found = self._kept.get(key, self)
        if found is self:
            try:
                found = ask()
            except LookupFailedError as error:
                found = error
            with self._lock:
                self._kept[key] = found
                if len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
        if isinstance(found, LookupFailedError):
            raise found
        return found  # type: ignore[no-any-return]

    def config_map(self, namespace: str, name: str) -> JsonObject:
        key = ("config_map", namespace, name)
        return self._remember(key, lambda: self._lookups.config_map(namespace, name))

    def call_api(self, call: ApiCall) -> Json:
        key = ("call", msgspec.json.encode(call))
        return self._remember(key, lambda: self._lookups.call_api(call))

    def global_reference(self, name: str) -> Json:
        return self._remember(("global", name), lambda: self._lookups.global_reference(name))

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        key = ("image", reference, access)
        return self._remember(key, lambda: self._lookups.image_data(reference, access))

    def registries(self) -> Registries:
        return self._lookups.registries()

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        key = ("resource", api_version, kind, namespace, name)
        return self._remember(
            key, lambda: self._lookups.resource(api_version, kind, namespace, name)
        )

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        key = ("resources", api_version, kind, namespace)
        return self._remember(key, lambda: self._lookups.resources(api_version, kind, namespace))

    def select_objects(self, query: ObjectQuery) -> Sequence[JsonObject]:
        key = ("select", query)
        return self._remember(key, lambda: self._lookups.select_objects(query))

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        key = ("kind", api_version, kind)
        return self._remember(key, lambda: self._lookups.describe_kind(api_version, kind))

    def resolve_host(self, host: str) -> tuple[str, ...]:
        return self._remember(("host", host), lambda: self._lookups.resolve_host(host))

    def log_line(self, line: GuestLogLine) -> None:
        self._lookups.log_line(line)

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        return self._lookups.rule_values(policy, rule)

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        return self._lookups.foreach_values(policy, rule, index)

    def now(self) -> datetime:
        return self._lookups.now()


# Objects in memory at once: some kinds have objects of a megabyte.
_PAGE = 100
# The server drops a listing after minutes; it is restarted this often.
_LISTINGS = 3

IsProtected: TypeAlias = Callable[[Request], bool]


class NamespaceReader(Protocol):
    """Source of namespaces."""

    async def ensure(self, name: str, /) -> JsonObject | None: ...


class SweepContext(msgspec.Struct, frozen=True):
    """What a sweep needs of the cluster."""

    client: Client
    served: Callable[[], Awaitable[Sequence[Collection]]]
    namespaces: NamespaceReader
    lookups: Lookups
    # Objects that are exempt by the settings of the installation.
    is_protected: IsProtected = lambda _: False
    exceptions: Callable[[], Iterable[PolicyRecord]] = tuple
    names: Callable[[], ResourceNames] = builtin_names
    http_limits: HttpLimits = HttpLimits()
    # The names of lictor's objects, which no policy deletes.
    own: Names = Names()


class Undecided(msgspec.Struct, frozen=True):
    """An object, or a collection, that could not be evaluated. It is not deleted."""

    what: str
    why: str
    # Denied by the API server: retrying is useless until a role changes.
    forbidden: bool = False


class Page(msgspec.Struct, frozen=True):
    """Some objects of one collection, evaluated."""

    target: CleanupTarget
    goes: tuple[JsonObject, ...] = ()
    undecided: tuple[Undecided, ...] = ()


class Sweep:
    """One policy, compiled for one pass over the cluster."""

    def __init__(
        self, record: CleanupRecord, context: SweepContext, program: CleanupProgram
    ) -> None:
        self.record = record
        self.program = program
        self._context = context

    @classmethod
    async def prepare(cls, record: CleanupRecord, context: SweepContext) -> "Sweep":
        """Compile the policy for the kinds that are served now; raises CompileError."""
        program = await asyncio.to_thread(
            compile_record,
            record,
            SweepLookups(context.lookups),
            exceptions=tuple(context.exceptions()),
            names=context.names(),
            http_limits=context.http_limits,
        )
        return cls(record, context, program)

    async def pages(self) -> AsyncIterator[Page]:
        """All objects that the policy selects, evaluated page by page."""
        targets = find_targets(self.record, await self._context.served())
        for target in targets.found:
            async for page in self._walk(target):
                yield page

    async def _walk(self, target: CleanupTarget) -> AsyncIterator[Page]:
        for attempt in range(1, _LISTINGS + 1):
            try:
                async for items in self._list(target):
                    yield await self._evaluate(target, items)
            except GoneError:
                # The list expired. Evaluating some objects twice is harmless.
                if attempt == _LISTINGS:
                    raise
                continue
            except ApiError as error:
                if error.status not in (401, 403, 404, 405):
                    raise
                what = f"{target.resource.plural} of {target.namespace or 'all namespaces'}"
                refused = error.status in (401, 403)
                yield Page(target, undecided=(Undecided(what, str(error), refused),))
            return

    async def _list(self, target: CleanupTarget) -> AsyncIterator[list[JsonObject]]:
        async for answer in self._context.client.list_pages(
            target.resource, target.namespace, labels=target.labels, page=_PAGE
        ):
            items: list[JsonObject] = answer.get("items") or []
            # Objects that are being deleted are left out.
            yield [each for each in items if not each["metadata"].get("deletionTimestamp")]

    async def evaluate_again(self, target: CleanupTarget, item: JsonObject) -> bool:
        """Would the policy delete an object that has changed since?"""
        page = await self._evaluate(target, [item])
        return bool(page.goes)

    async def _evaluate(self, target: CleanupTarget, items: Sequence[JsonObject]) -> Page:
        requests = []
        for item in items:
            labels = await self._find_labels(item)
            if labels is not None:
                requests.append(Request.of(item, namespace_labels=labels))
        # In a thread: a context may query the cluster, which needs this event loop.
        return await asyncio.to_thread(self._decide_noted, target, requests)

    async def _find_labels(self, item: JsonObject) -> Mapping[str, str] | None:
        """The labels of an object's namespace; None if it is gone, and the object with it."""
        name = item["metadata"].get("namespace")
        if not name:
            return {}
        namespace = await self._context.namespaces.ensure(name)
        # Otherwise a selector such as `DoesNotExist` would match an unknown namespace.
        return None if namespace is None else namespace["metadata"].get("labels") or {}

    def _decide_noted(self, target: CleanupTarget, requests: Iterable[Request]) -> Page:
        metadata = self.record.metadata
        with EVALUATIONS.evaluating(identify_cleanup(metadata.uid, metadata.generation or 0)):
            return self._decide(target, requests)

    def _decide(self, target: CleanupTarget, requests: Iterable[Request]) -> Page:
        goes: list[JsonObject] = []
        undecided: list[Undecided] = []
        for request in requests:
            try:
                if not self._context.is_protected(request) and self.program.concerns(request):
                    goes.append(request.resource)
            except (EvaluationError, LookupFailedError) as error:
                undecided.append(Undecided(name_object(request.resource), str(error)))
            except RecursionError:
                undecided.append(Undecided(name_object(request.resource), "nested too deeply"))
        return Page(target, tuple(goes), tuple(undecided))


def identify_cleanup(uid: str, generation: int) -> bytes:
    """The quarantine key of a cleanup policy."""
    return identify(f"{uid}:{generation}")


def name_object(item: JsonObject) -> str:
    """`Kind/namespace/name`, as events name it; the middle is empty where there is none."""
    metadata = item["metadata"]
    return f"{item.get('kind')}/{metadata.get('namespace') or ''}/{metadata['name']}"
