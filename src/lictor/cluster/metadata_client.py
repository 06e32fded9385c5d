"""A client that lists and watches the metadata of objects only, whatever else is in them."""

import httpx
from msgspec.structs import replace

from lictor.cluster.client import Client
from lictor.cluster.config import ClusterConfig
from lictor.cluster.connection import Connection, Outgoing
from lictor.cluster.wire import Reply

_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WATCH = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class MetadataClient(Client):
    """For watches of many kinds of which nothing but names, labels and times matters."""

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config)
        self._connection = _MetadataConnection(config)


class _MetadataConnection(Connection):
    # Aggregated APIs may not know how to leave things out: then everything comes.

    def _open(self) -> None:
        super()._open()
        self._watches.headers["accept"] = f"{_WATCH},application/json"

    async def send(self, outgoing: Outgoing, *, renew: bool = False) -> httpx.Response | Reply:
        asked = replace(outgoing, accept=outgoing.accept or f"{_LIST},application/json")
        return await super().send(asked, renew=renew)
