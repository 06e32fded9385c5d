"""What does an installation of Kyverno consist of? Read from a cluster, or from files."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

import msgspec

from lictor.core.errors import ApiError, NotFoundError
from lictor.core.families.registry import registry
from lictor.core.model.finding import FieldPath
from lictor.core.raw import JsonObject
from lictor.install.crds import list_crd_kinds
from lictor.install.installation import RESOURCES
from lictor.install.values import CONTROLLERS
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names, is_own_object
from lictor.kubernetes.resource import Resource

AGGREGATE_TO = "rbac.kyverno.io/aggregate-to-"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"
_WEBHOOKS = (kinds.VALIDATING_WEBHOOK, kinds.MUTATING_WEBHOOK)
# What a chart may have made beside what lictor makes, too.
_OTHERS = (
    Resource("batch", "v1", "cronjobs", "CronJob"),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"),
)
OBJECTS = (*(r for r in RESOURCES.values() if r.kind != "CustomResourceDefinition"), *_OTHERS)
_REPORTS = (
    kinds.POLICY_REPORT,
    kinds.CLUSTER_POLICY_REPORT,
    kinds.OPEN_REPORT,
    kinds.CLUSTER_OPEN_REPORT,
    kinds.EPHEMERAL_REPORT,
    kinds.CLUSTER_EPHEMERAL_REPORT,
    kinds.UPDATE_REQUEST,
)


class KyvernoInventory(msgspec.Struct, frozen=True):
    """Everything that belongs to an installation of Kyverno, as the API server has it."""

    names: Names
    # By what they run: admission, background, reports, cleanup.
    deployments: Mapping[str, JsonObject] = {}
    config_maps: Mapping[str, JsonObject] = {}
    webhooks: tuple[JsonObject, ...] = ()
    definitions: tuple[JsonObject, ...] = ()
    # Policies and exceptions of all kinds, and entries of the global context.
    policies: tuple[JsonObject, ...] = ()
    # How many there are, by kind.
    reports: Mapping[str, int] = {}
    # All other objects that carry its label or have its names.
    others: tuple[JsonObject, ...] = ()
    # ClusterRoles by which the cluster administrator gives rights to its controllers.
    roles: tuple[JsonObject, ...] = ()
    # By `identify`, what gives `file:line` of a field of an object that was read from a file.
    places: Mapping[tuple[str, str, str, str], Callable[[FieldPath], str]] = {}

    @property
    def is_known(self) -> bool:
        """Is there anything that the installation itself consists of?"""
        return bool(self.deployments or self.config_maps or self.definitions or self.others)

    @property
    def is_empty(self) -> bool:
        """Is there nothing of Kyverno's but perhaps policies?"""
        return not (self.deployments or self.config_maps or self.webhooks)


async def read_inventory(client: Client, names: Names) -> KyvernoInventory:
    """The installation of these names in a cluster."""
    found = [each async for each in _list_live(client, names)]
    reports = {each.kind: await _count(client, each) for each in _REPORTS}
    made = sort_objects(found, names)
    counted = {kind: count for kind, count in reports.items() if count}
    return msgspec.structs.replace(made, reports=counted)


async def _list_live(client: Client, names: Names) -> AsyncIterator[JsonObject]:
    labels = f"{PART_OF}={names.prefix}"
    for resource in OBJECTS:
        place = names.namespace if resource.namespaced else ""
        for each in await _list_served(client, resource, place, labels):
            yield each
    for controller in CONTROLLERS:
        label = f"{AGGREGATE_TO}{controller}-controller=true"
        for each in await _list_served(client, kinds.CLUSTER_ROLE, labels=label):
            yield each
    for name in (names.config_map, names.metrics_config_map):
        found = await client.find(kinds.CONFIG_MAP, name, names.namespace)
        if found is not None:
            yield {"apiVersion": "v1", "kind": "ConfigMap", **found}
    for resource in (*_WEBHOOKS, kinds.CUSTOM_RESOURCE_DEFINITION, *_list_written()):
        for each in await _list_served(client, resource):
            yield each


async def _list_served(
    client: Client, resource: Resource, place: str = "", labels: str = ""
) -> list[JsonObject]:
    try:
        return await client.list(resource, place, labels=labels)
    except NotFoundError:
        return []


def _list_written() -> list[Resource]:
    """Kinds whose objects people write."""
    listed = [kind for kind in registry().kinds if kind.crd is not None]
    return [*map(kinds.find_resource, listed), kinds.GLOBAL_CONTEXT_ENTRY]


async def _count(client: Client, resource: Resource) -> int:
    try:
        pages = client.list_pages(resource, metadata_only=True)
        return sum([len(page.get("items") or ()) async for page in pages])
    except ApiError:
        # They may be served by someone else's API server, which is not there now.
        return 0


def sort_objects(objects: Iterable[JsonObject], names: Names) -> KyvernoInventory:
    """The objects of an installation, each in its place; what is not of it is left out."""
    groups = {(each.group, each.name) for each in list_crd_kinds()}
    controllers = {names.controller(each): each for each in CONTROLLERS}
    sorted_ = _FoundObjects()
    # The same object may be named by its label and by its name.
    unique = {identify(each): each for each in objects}
    for each in unique.values():
        name, kind = each["metadata"]["name"], each["kind"]
        if kind == "Deployment" and name in controllers and _is_at_home(each, names):
            sorted_.deployments[controllers[name]] = each
        elif kind == "ConfigMap" and name in (names.config_map, names.metrics_config_map):
            sorted_.config_maps[name] = each
        elif kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
            sorted_.webhooks += [each] if _is_own_webhook(names, each) else []
        elif kind == "CustomResourceDefinition":
            spec = each["spec"]
            is_known = (spec["group"], spec["names"]["kind"]) in groups
            sorted_.definitions += [each] if is_known else []
        elif (each["apiVersion"].partition("/")[0], kind) in groups:
            sorted_.add_own(each)
        elif _has_label(each, names):
            sorted_.others.append(each)
        elif kind == "ClusterRole" and _is_aggregated(each):
            sorted_.roles.append(each)
    return sorted_.close(names)


class _FoundObjects(msgspec.Struct):
    deployments: dict[str, JsonObject] = msgspec.field(default_factory=dict)
    config_maps: dict[str, JsonObject] = msgspec.field(default_factory=dict)
    webhooks: list[JsonObject] = msgspec.field(default_factory=list)
    definitions: list[JsonObject] = msgspec.field(default_factory=list)
    policies: list[JsonObject] = msgspec.field(default_factory=list)
    others: list[JsonObject] = msgspec.field(default_factory=list)
    roles: list[JsonObject] = msgspec.field(default_factory=list)
    reports: Counter[str] = msgspec.field(default_factory=Counter)

    def add_own(self, document: JsonObject) -> None:
        """A policy or exception, or something that controllers write."""
        if document["kind"] in {each.kind for each in _REPORTS}:
            self.reports[document["kind"]] += 1
        else:
            self.policies.append(document)

    def close(self, names: Names) -> KyvernoInventory:
        return KyvernoInventory(
            names,
            {name: self.deployments[name] for name in CONTROLLERS if name in self.deployments},
            self.config_maps,
            tuple(self.webhooks),
            tuple(self.definitions),
            tuple(self.policies),
            dict(self.reports),
            tuple(self.others),
            tuple(self.roles),
        )


def identify(document: JsonObject) -> tuple[str, str, str, str]:
    """Group, kind, namespace and name."""
    metadata = document["metadata"]
    group = document["apiVersion"].rpartition("/")[0]
    return group, document["kind"], str(metadata.get("namespace") or ""), metadata["name"]


def _is_at_home(document: JsonObject, names: Names) -> bool:
    return document["metadata"].get("namespace") in (names.namespace, None)


def _is_own_webhook(names: Names, document: JsonObject) -> bool:
    return is_own_object(names, kinds.VALIDATING_WEBHOOK, "", document["metadata"]["name"])


def _has_label(document: JsonObject, names: Names) -> bool:
    labels = document["metadata"].get("labels") or {}
    return bool(labels.get(PART_OF) == names.prefix)


def _is_aggregated(document: JsonObject) -> bool:
    return any(key.startswith(AGGREGATE_TO) for key in document["metadata"].get("labels") or {})
