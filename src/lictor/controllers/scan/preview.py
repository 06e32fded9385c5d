"""Previews what policies would deny or change in the cluster if enforced now."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from lictor.controllers.existing_objects import PolicyPreview, PreviewScope, preview_programs
from lictor.core.assembly import compile_documents
from lictor.core.errors import LictorError, UsageError
from lictor.core.families.registry import registry
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Program
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.kubernetes.namespaces import NamespaceCache
from lictor.kubernetes.request_filter import RequestFilter, build_filter
from lictor.kubernetes.resource import CONFIG_MAP
from lictor.kubernetes.settings import read_settings
from lictor.kubernetes.work_queue import cancel_all
from lictor.lookups.lookups import ClusterLookups
from lictor.policies.family_services import ServiceAccess
from lictor.policies.store import PolicyStore


class _Cluster(msgspec.Struct, frozen=True):
    store: PolicyStore
    namespaces: NamespaceCache
    lookups: ClusterLookups
    is_filtered: RequestFilter


async def preview_policies(
    client: Client,
    flags: Flags,
    names: Names,
    given: Sequence[PolicyRecord] | str,
    *,
    limit: int = 1000,
) -> PolicyPreview:
    """Evaluate everything in the cluster with the given policies, or with the one of this name."""
    async with _open_cluster(client, flags, names) as cluster:
        programs = _compile(cluster, given) if not isinstance(given, str) else _find(cluster, given)
        labels, is_filtered = cluster.namespaces.labels, cluster.is_filtered
        return await preview_programs(
            programs, PreviewScope(client, labels, is_filtered, limit=limit)
        )


def _find(cluster: _Cluster, name: str) -> tuple[Program, ...]:
    found = [policy for policy in cluster.store.policies if name in (policy.key, policy.name)]
    if not found:
        raise UsageError(f"no file and no policy in the cluster named {name!r}")
    programs = tuple(p for policy in found for p in cluster.store.programs(policy))
    if not programs:
        why = "; ".join(str(problem) for policy in found for problem in policy.problems)
        raise LictorError(f"the policy {name!r} cannot be used: {why}")
    return programs


def _compile(cluster: _Cluster, records: Sequence[PolicyRecord]) -> tuple[Program, ...]:
    families = {registry().of(record).family for record in records}
    return compile_documents(
        (*records, *cluster.store.exceptions.list_all(families)),
        lookups=cluster.lookups,
        resource_names=cluster.store.names,
    )


@asynccontextmanager
async def _open_cluster(client: Client, flags: Flags, names: Names) -> AsyncIterator[_Cluster]:
    loop = asyncio.get_running_loop()
    lookups = ClusterLookups(client, loop, flags, namespace=names.namespace)
    access = ServiceAccess(names.namespace, lookups.get_path)
    store = PolicyStore(client, flags, lookups, access)
    namespaces = NamespaceCache(client)
    parts = (lookups, store, namespaces)
    running = [asyncio.create_task(part.run()) for part in parts]
    try:
        for part in parts:
            await part.wait()
        config = await client.find(CONFIG_MAP, names.config_map, names.namespace)
        yield _Cluster(store, namespaces, lookups, build_filter(read_settings(config)))
    finally:
        await cancel_all(*running)
