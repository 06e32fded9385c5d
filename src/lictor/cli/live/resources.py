"""The resources of a cluster that policies have something to say about, page by page."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

import msgspec

from lictor.cli.live.cluster import LiveCluster
from lictor.cluster.cache import drop_managed_fields
from lictor.cluster.client import Client
from lictor.cluster.discovery import Collection
from lictor.cluster.resource import Resource
from lictor.errors import ApiError, LoadError, UsageError
from lictor.model.program import Program
from lictor.model.request import GroupVersionKind, Operation
from lictor.raw import JsonObject

# Collections that are announced but cannot be listed after all: nothing is missed.
_NOTHING_THERE = frozenset({404, 405})

Warn = Callable[[str], None]


class Choice(msgspec.Struct, frozen=True):
    """Which resources of the cluster, and how they are read."""

    names: tuple[str, ...] = ()
    namespace: str = ""
    cluster_wide_only: bool = False
    page: int = 100
    at_once: int = 1
    continue_on_error: bool = True


class LiveResources:
    """The resources of some collections; told is what could not be read."""

    def __init__(
        self, cluster: LiveCluster, kinds: Sequence[Resource], choice: Choice, warn: Warn
    ) -> None:
        self._cluster = cluster
        self._choice = choice
        self._warn = warn
        self._failed: set[Resource] = set()
        self._kinds = list(kinds)
        self.count = cluster.ask(self._count())
        if kinds and len(self._failed) == len(kinds):
            raise LoadError("none of the resources that the policies match could be read")

    def __iter__(self) -> Iterator[JsonObject]:
        sources = [self._read(kind) for kind in self._kinds if kind not in self._failed]
        for page in self._cluster.stream(sources, self._choice.at_once):
            yield from page

    async def _count(self) -> int:
        """How many there are: the first object, and what the server says is left."""
        counts = {name: 0 for name in self._choice.names}
        total = 0
        for kind in self._kinds:
            for fields in self._fields or ("",):
                found = await self._count_one(kind, fields)
                total += found
                if fields:
                    counts[fields.removeprefix(_BY_NAME)] += found
        missing = [name for name, found in counts.items() if not found]
        if missing:
            raise UsageError(f"{missing[0]} not found in cluster")
        return total

    async def _count_one(self, kind: Resource, fields: str) -> int:
        client, namespace = self._cluster.client, self._choice.namespace
        params: dict[str, str | int] = {"limit": 1}
        if fields:
            params = {"fieldSelector": fields}
        try:
            page = await client.request("GET", kind.path(namespace), params=params)
        except ApiError as error:
            self._fail(kind, error)
            return 0
        left = (page.get("metadata") or {}).get("remainingItemCount") or 0
        return len(page.get("items") or ()) + int(left)

    @property
    def _fields(self) -> list[str]:
        return [f"{_BY_NAME}{name}" for name in self._choice.names]

    async def _read(self, kind: Resource) -> AsyncIterator[list[JsonObject]]:
        try:
            for fields in self._fields or [""]:
                async for page in list_pages(
                    self._cluster.client, kind, self._choice, fields=fields
                ):
                    yield page
        except ApiError as error:
            self._fail(kind, error)

    def _fail(self, kind: Resource, error: ApiError) -> None:
        if error.status in _NOTHING_THERE:
            return
        message = f"failed to list {kind.plural} of {kind.api_version}: {error}"
        if not self._choice.continue_on_error:
            raise LoadError(message)
        if kind not in self._failed:
            self._failed.add(kind)
            self._warn(message)


_BY_NAME = "metadata.name="


async def list_pages(
    client: Client, kind: Resource, choice: Choice, *, fields: str = "", labels: str = ""
) -> AsyncIterator[list[JsonObject]]:
    """The objects of a collection, page by page, without the book-keeping of field owners."""
    pages = client.list_pages(
        kind, choice.namespace, fields=fields, labels=labels, page=max(choice.page, 1)
    )
    async for page in pages:
        yield [drop_managed_fields(item) for item in page.get("items") or ()]


def choose_kinds(
    served: Iterable[Collection],
    programs: Sequence[Program],
    choice: Choice,
    operations: Sequence[Operation] = (Operation.CREATE,),
) -> list[Resource]:
    """The collections whose objects a rule can concern, in one version each."""

    def concerns(resource: Resource) -> bool:
        kind = GroupVersionKind(resource.group, resource.version, resource.kind)
        return any(
            rule.select(kind, "", operation) is not None
            for program in programs
            for rule in program.rules
            for operation in operations
        )

    return select_kinds(served, concerns, choice)


def select_kinds(
    served: Iterable[Collection], concerns: Callable[[Resource], bool], choice: Choice
) -> list[Resource]:
    """The collections that are wanted and can be listed: in the preferred version if that fits."""
    chosen: dict[tuple[str, str], Resource] = {}
    for each in sorted(served, key=lambda found: not found.preferred):
        resource = each.resource
        key = (resource.group, resource.plural)
        if "list" not in each.verbs or key in chosen:
            continue
        if resource.namespaced and choice.cluster_wide_only:
            continue
        if choice.namespace and not resource.namespaced:
            continue
        if concerns(resource):
            chosen[key] = resource
    return [chosen[key] for key in sorted(chosen)]
