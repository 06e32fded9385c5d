"""A client that lists and watches the metadata of objects only, whatever else is in them."""

from lictor.cluster.client import Client
from lictor.cluster.config import ClusterConfig
from lictor.cluster.connection import Connection

_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WATCH = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class MetadataClient(Client):
    """For watches of many kinds of which nothing but names, labels and times matters."""

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config)
        self._connection = _MetadataConnection(config)


class _MetadataConnection(Connection):
    def _open(self) -> None:
        super()._open()
        # Aggregated APIs may not know how to leave things out: then everything comes.
        self._http.headers["accept"] = f"{_LIST},application/json"
        self._watches.headers["accept"] = f"{_WATCH},application/json"
