"""What all CEL policies of one engine share."""

from collections.abc import Iterator

import msgspec

from lictor.compile.cel.world import bind_world
from lictor.evaluate.cel import Viewpoint
from lictor.lang.cel.world import World
from lictor.lang.resource_names import ResourceNames
from lictor.lang.watch import WatchRule, watch_nothing
from lictor.model.admission import Binding
from lictor.model.cel_policy import CelException
from lictor.model.policy import Metadata
from lictor.model.request import GroupVersionKind
from lictor.model.result import PolicyRef
from lictor.ports import HttpLimits, Lookups
from lictor.raw import JsonObject


class CelSurroundings(msgspec.Struct, frozen=True):
    """The world, the names of resources, and the documents that belong to policies."""

    lookups: Lookups
    resource_names: ResourceNames
    bindings: tuple[Binding, ...] = ()
    exceptions: tuple[CelException, ...] = ()
    # Parameter objects that were given by hand; None where the cluster is asked for them.
    params: tuple[JsonObject, ...] | None = None
    watch_rule: WatchRule = watch_nothing
    http_limits: HttpLimits = HttpLimits()

    @property
    def viewpoint(self) -> Viewpoint:
        """How requests are shown to the expressions of Kyverno's own kinds."""
        return Viewpoint(self.lookups, self._name_resource)

    @property
    def native_viewpoint(self) -> Viewpoint:
        """The same for Kubernetes' kinds, and for classic rules, which speak as those do."""
        return Viewpoint(self.lookups, self._name_resource, shows_bare_namespaces=True)

    def world(self, namespace: str = "") -> World:
        """What the expressions of a policy may ask of the outside."""
        return bind_world(self.lookups, self.resource_names, namespace, self.http_limits)

    def bindings_of(self, policy: str, kind: str) -> Iterator[Binding]:
        """The bindings that put a policy into force."""
        for binding in self.bindings:
            if binding.kind == f"{kind}Binding" and binding.spec.policy_name == policy:
                yield binding

    def _name_resource(self, kind: GroupVersionKind) -> str:
        return self.resource_names.of_kind(kind.group, kind.version, kind.kind).resource


def refer(api_version: str, kind: str, metadata: Metadata, source: str) -> PolicyRef:
    """Who speaks in results."""
    namespaced = kind.startswith("Namespaced")
    return PolicyRef(
        name=metadata.name,
        namespace=(metadata.namespace or "default") if namespaced else "",
        kind=kind,
        api_version=api_version,
        annotations=metadata.annotations,
        labels=metadata.labels,
        source=source,
    )
