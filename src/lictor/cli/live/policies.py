"""The policies that are in force in a cluster, and the exceptions from them, as texts."""

from collections.abc import Iterable, Iterator

import orjson

from lictor.cli.live.cluster import LiveCluster
from lictor.cluster.cache import drop_managed_fields
from lictor.cluster.client import Client
from lictor.cluster.resource import CEL_EXCEPTION, POLICY_EXCEPTION, Resource
from lictor.cluster.store import CEL_KINDS, CLASSIC_KINDS
from lictor.errors import NotFoundError
from lictor.offline.sources import SourceText
from lictor.raw import JsonObject


def read_cluster_policies(cluster: LiveCluster) -> Iterator[SourceText]:
    """The policies of the cluster, each as the file that it might have been."""
    yield from _read(cluster, (*CLASSIC_KINDS, *CEL_KINDS))


def read_cluster_exceptions(cluster: LiveCluster) -> Iterator[SourceText]:
    """The exceptions of the cluster."""
    yield from _read(cluster, (POLICY_EXCEPTION, CEL_EXCEPTION))


def _read(cluster: LiveCluster, kinds: Iterable[Resource]) -> Iterator[SourceText]:
    for kind in kinds:
        for item in cluster.ask(_list(cluster.client, kind)):
            metadata = item["metadata"]
            place = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            yield SourceText(f"{kind.kind} {place}", orjson.dumps(drop_managed_fields(item)))


async def _list(client: Client, kind: Resource) -> list[JsonObject]:
    try:
        return await client.list(kind)
    except NotFoundError:
        return []
