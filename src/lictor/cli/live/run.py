"""A run of `apply` with a cluster: what the cluster adds to the plan, and what is judged."""

import glob
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from lictor.cli.live.application import LiveApplication
from lictor.cli.live.cluster import LiveCluster
from lictor.cli.live.lookups import LiveLookups
from lictor.cli.live.policies import read_cluster_exceptions, read_cluster_policies
from lictor.cli.live.resources import Choice, list_pages
from lictor.cluster.cleanup_policies import CleanupRecord, find_targets
from lictor.errors import UsageError
from lictor.lang.resource_names import Resource
from lictor.offline.apply_run import ApplyPlan, ApplyRun, OutputOptions
from lictor.offline.lookups import GivenObjects
from lictor.offline.policies import GivenExceptions, load_exceptions
from lictor.offline.sources import STDIN, SourceText, is_url
from lictor.raw import JsonObject


class LiveRun(msgspec.Struct, frozen=True):
    """One run with a cluster. Resources are names of objects in it, or files."""

    cluster: LiveCluster
    choice: Choice
    files: tuple[str, ...] = ()
    show_performance: bool = False

    def read_policies(self) -> Iterator[SourceText]:
        """The policies in force in the cluster."""
        return read_cluster_policies(self.cluster)

    def load_exceptions(self) -> GivenExceptions:
        """The exceptions in force in the cluster."""
        return load_exceptions(read_cluster_exceptions(self.cluster))

    def complete(self, plan: ApplyPlan) -> ApplyPlan:
        """The plan, with a cluster to ask."""
        served = tuple(
            Resource(each.group, each.version, each.kind, each.plural, each.namespaced)
            for each in (found.resource for found in self.cluster.served)
        )
        given: GivenObjects = replace(plan.given, served=served)
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
            processes=1,
        )

    def build(self, plan: ApplyPlan, options: OutputOptions) -> ApplyRun:
        """What judges: the files that were given, or else what the cluster holds."""
        if self.files or plan.payloads:
            return ApplyRun(plan, options)
        started = time.monotonic()
        application = LiveApplication(plan, options, self.cluster, self.choice, _warn)
        if self.show_performance:
            spent = time.monotonic() - started
            _warn(f"{application.count} resources counted in {spent:.2f} s", prefix="")
        return application

    @property
    def find_resources(self) -> Callable[[CleanupRecord], Iterator[JsonObject]] | None:
        """The objects that a policy that deletes looks through; None: what was given."""
        return None if self.files else self._find_resources

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


def begin_run(
    cluster: LiveCluster, resources: tuple[str, ...], choice: Choice, *, show_performance: bool
) -> LiveRun:
    """Sort the given resources: files are read, anything else is a name in the cluster."""
    files = tuple(path for path in resources if _is_file(path))
    names = tuple(path for path in resources if path not in files)
    if files and names:
        raise UsageError(f"{names[0]}: resources are files, or names in the cluster, not both")
    return LiveRun(cluster, replace(choice, names=names), files, show_performance)


def _is_file(path: str) -> bool:
    return path == STDIN or is_url(path) or Path(path).exists() or bool(glob.glob(path))


def _warn(message: str, prefix: str = "warning: ") -> None:
    click.echo(f"{prefix}{message}", err=True)
