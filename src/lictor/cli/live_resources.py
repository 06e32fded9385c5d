"""`apply --cluster`: the resources of a cluster that policies match, read page by page."""

import glob
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from lictor.cli.apply_outputs import OutputOptions
from lictor.cli.apply_plan import ApplyFlags
from lictor.cli.apply_run import ApplyPlan, ApplyRun, DocumentResult
from lictor.cli.inputs.lookups import GivenObjects
from lictor.cli.inputs.policies import load_exceptions
from lictor.cli.inputs.sources import STDIN, SourceText, is_url
from lictor.cli.live_cluster import (
    LiveCluster,
    LiveLookups,
    read_cluster_exceptions,
    read_cluster_policies,
)
from lictor.controllers.cleanup.policies import CleanupRecord, find_targets
from lictor.core.errors import ApiError, LoadError, UsageError
from lictor.core.facts.resource_names import ResourceType as NamedResource
from lictor.core.model.program import Program
from lictor.core.model.request import GroupVersionKind, Operation
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import drop_managed_fields
from lictor.kubernetes.client import Client
from lictor.kubernetes.discovery import Collection
from lictor.kubernetes.resource import Resource

# Collections that are announced but cannot be listed after all: nothing is missed.
_NOTHING_THERE = frozenset({404, 405})

Warn = Callable[[str], None]


class ResourceChoice(msgspec.Struct, frozen=True):
    """Which resources of the cluster, and how they are read."""

    names: tuple[str, ...] = ()
    namespace: str = ""
    cluster_wide_only: bool = False
    page: int = 100
    at_once: int = 1
    continue_on_error: bool = True


class LiveResources:
    """The resources of some collections; warns of those that cannot be read."""

    def __init__(
        self, cluster: LiveCluster, kinds: Sequence[Resource], choice: ResourceChoice, warn: Warn
    ) -> None:
        self._cluster = cluster
        self._choice = choice
        self._warn = warn
        self._failed: set[Resource] = set()
        self._kinds = list(kinds)
        self.count = cluster.run(self._count())
        if kinds and len(self._failed) == len(kinds):
            raise LoadError("none of the resources that the policies match could be read")

    def __iter__(self) -> Iterator[JsonObject]:
        sources = [self._read(kind) for kind in self._kinds if kind not in self._failed]
        for page in self._cluster.stream(sources, self._choice.at_once):
            yield from page

    async def _count(self) -> int:
        """Count objects: the first one, and the remaining count of the server."""
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
    client: Client, kind: Resource, choice: ResourceChoice, *, fields: str = "", labels: str = ""
) -> AsyncIterator[list[JsonObject]]:
    """The objects of a collection, page by page, without managedFields."""
    pages = client.list_pages(
        kind, choice.namespace, fields=fields, labels=labels, page=max(choice.page, 1)
    )
    async for page in pages:
        yield [drop_managed_fields(item) for item in page.get("items") or ()]


def choose_kinds(
    served: Iterable[Collection],
    programs: Sequence[Program],
    choice: ResourceChoice,
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
    served: Iterable[Collection], concerns: Callable[[Resource], bool], choice: ResourceChoice
) -> list[Resource]:
    """The collections that match and can be listed, in the preferred version if possible."""
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


class ClusterApplyRun(ApplyRun):
    """Evaluates the resources of a cluster; made once for each run."""

    def __init__(
        self,
        plan: ApplyPlan,
        options: Sequence[OutputOptions],
        cluster: LiveCluster,
        choice: ResourceChoice,
        warn: Warn,
    ) -> None:
        super().__init__(plan, options)
        kinds = choose_kinds(
            cluster.served, self.engines[""].programs, choice, _list_operations(plan)
        )
        self._resources = LiveResources(cluster, kinds, choice, warn)
        self.count = self._resources.count

    def evaluate(self) -> Iterator[DocumentResult]:
        for resource in self._resources:
            yield self._evaluate_object(resource)


def _list_operations(plan: ApplyPlan) -> Sequence[Operation]:
    """Return the possible operations: a creation, unless values set another one."""
    return tuple(Operation) if plan.requests.values.change_requests else (Operation.CREATE,)


class LiveRun(msgspec.Struct, frozen=True):
    """One run with a cluster. Resources are names of objects in it, or files."""

    cluster: LiveCluster
    choice: ResourceChoice
    files: tuple[str, ...] = ()
    # Whether policies and exceptions are those of the cluster.
    uses_stored_policies: bool = False
    show_performance: bool = False

    def read_policies(self) -> Iterator[SourceText]:
        """The policies in force in the cluster."""
        return read_cluster_policies(self.cluster)

    def complete(self, plan: ApplyPlan) -> ApplyPlan:
        """Return the plan with the objects and lookups of the cluster."""
        exceptions = plan.exceptions
        if self.uses_stored_policies:
            exceptions += load_exceptions(read_cluster_exceptions(self.cluster))
        served = tuple(
            NamedResource(each.group, each.version, each.kind, each.plural, each.namespaced)
            for each in (found.resource for found in self.cluster.served)
        )
        given: GivenObjects = replace(plan.given, served=served, evaluated=None)
        lookups = LiveLookups(self.cluster, plan.requests.values, given)
        labels = {
            name: item["metadata"].get("labels") or {} for name, item in lookups.namespaces.items()
        }
        # One process: a connection cannot be shared by forked ones.
        return replace(
            plan,
            given=given,
            lookups=lookups,
            requests=replace(plan.requests, namespaces=labels),
            exceptions=exceptions,
            paths=self.files,
            find_deletable=None if self.files else self._find_resources,
            processes=1,
        )

    def build(self, plan: ApplyPlan, options: Sequence[OutputOptions]) -> ApplyRun:
        """Return the run on the given files, or else on the resources of the cluster."""
        if self.files or plan.modes:
            return ApplyRun(plan, options)
        started = time.monotonic()
        application = ClusterApplyRun(plan, options, self.cluster, self.choice, _warn)
        if self.show_performance:
            spent = time.monotonic() - started
            _warn(f"{application.count} resources counted in {spent:.2f} s", prefix="")
        return application

    def _find_resources(self, record: CleanupRecord) -> Iterator[JsonObject]:
        targets = find_targets(record, self.cluster.served)
        for problem in targets.problems:
            _warn(f"policy {record.metadata.name}: {problem}")
        sources = [
            list_pages(
                self.cluster.client,
                target.resource,
                replace(self.choice, namespace=target.namespace or self.choice.namespace),
                labels=target.labels,
            )
            for target in targets.found
        ]
        for page in self.cluster.stream(sources, self.choice.at_once):
            yield from page


@contextmanager
def open_live(flags: ApplyFlags) -> Iterator[LiveRun]:
    """Connect to the cluster. Resources are files, or else names of objects in the cluster."""
    given = flags.resource_paths
    files = tuple(path for path in given if _is_file(path))
    names = tuple(path for path in given if path not in files)
    if files and names:
        raise UsageError(f"{names[0]}: resources are files, or names in the cluster, not both")
    choice = ResourceChoice(
        names=names,
        namespace=flags.namespace,
        cluster_wide_only=flags.cluster_wide_resources,
        page=flags.batch_size,
        at_once=flags.concurrent,
        continue_on_error=flags.continue_on_error,
    )
    with LiveCluster(flags.kubeconfig, flags.context) as cluster:
        is_stored = not flags.policies
        yield LiveRun(cluster, choice, files, is_stored, flags.show_performance)


def _is_file(path: str) -> bool:
    return path == STDIN or is_url(path) or Path(path).exists() or bool(glob.glob(path))


def _warn(message: str, prefix: str = "warning: ") -> None:
    click.echo(f"{prefix}{message}", err=True)
