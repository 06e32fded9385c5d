"""What policies ask during a command: values given by hand first, then the cluster."""

from collections.abc import Mapping
from datetime import datetime

from lictor.cli.live.cluster import LiveCluster
from lictor.cluster.resource import NAMESPACE
from lictor.control.cleanup.sweep import SweepLookups
from lictor.offline.lookups import GivenObjects
from lictor.offline.requests import GivenValues
from lictor.ports import ApiCall
from lictor.raw import Json, JsonObject


class LiveLookups:
    """A cluster as it was when first asked: one run sees each thing once."""

    def __init__(self, cluster: LiveCluster, values: GivenValues, given: GivenObjects) -> None:
        self._cluster = cluster
        self._world = SweepLookups(cluster.lookups)
        self._values = values
        self._given = given
        self._follows_entries = False
        self._namespaces: dict[str, JsonObject] | None = None

    @property
    def namespaces(self) -> Mapping[str, JsonObject]:
        """All namespaces by name, read once."""
        if self._namespaces is None:
            found = self._cluster.ask(self._cluster.client.list(NAMESPACE))
            self._namespaces = {item["metadata"]["name"]: item for item in found}
        return self._namespaces

    def config_map(self, namespace: str, name: str) -> JsonObject:
        return self._world.config_map(namespace, name)

    def call_api(self, call: ApiCall) -> Json:
        return self._world.call_api(call)

    def global_reference(self, name: str, namespace: str) -> Json:
        if not self._follows_entries:
            self._follows_entries = True
            entries = self._cluster.lookups.global_context
            self._cluster.start(entries.run())
            self._cluster.ask(entries.wait())
        return self._world.global_reference(name, namespace)

    def image_data(self, reference: str) -> JsonObject:
        found = self._given.images.get(reference)
        return found if found is not None else self._world.image_data(reference)

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        if (api_version, kind) == ("v1", "Namespace"):
            given = self._values.namespace(name)
            return given if given is not None else self.namespaces.get(name)
        return self._world.resource(api_version, kind, namespace, name)

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        return self._world.resources(api_version, kind, namespace)

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        return self._values.of_rule(policy, rule)

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        return self._values.of_rule(policy, rule, index)

    def now(self) -> datetime:
        return self._world.now()
