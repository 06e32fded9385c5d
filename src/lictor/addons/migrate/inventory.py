"""What does an installation of Kyverno consist of? Read from a cluster, or from files."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping

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
_WEBHOOK_KINDS = frozenset(each.kind for each in _WEBHOOKS)
_REPORT_KINDS = frozenset(each.kind for each in _REPORTS)


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
    """The objects of an installation by field; objects that are not part of it are left out."""
    groups = {(each.group, each.name) for each in list_crd_kinds()}
    controllers = {names.controller(each): each for each in CONTROLLERS}
    found: dict[str, list[JsonObject]] = defaultdict(list)
    # The same object may be named by its label and by its name.
    unique = {identify(each): each for each in objects}
    for each in unique.values():
        found[_choose_field(each, names, controllers, groups)].append(each)
    deployments = {controllers[each["metadata"]["name"]]: each for each in found["deployments"]}
    return KyvernoInventory(
        names,
        {name: deployments[name] for name in CONTROLLERS if name in deployments},
        {each["metadata"]["name"]: each for each in found["config_maps"]},
        reports=Counter(each["kind"] for each in found["reports"]),
        webhooks=tuple(found["webhooks"]),
        definitions=tuple(found["definitions"]),
        policies=tuple(found["policies"]),
        others=tuple(found["others"]),
        roles=tuple(found["roles"]),
    )


def _choose_field(
    document: JsonObject, names: Names, controllers: Container[str], groups: set[tuple[str, str]]
) -> str:
    """The field of the inventory that an object belongs to; empty if to none."""
    name, kind = document["metadata"]["name"], document["kind"]
    if kind == "Deployment" and name in controllers and _is_at_home(document, names):
        return "deployments"
    if kind == "ConfigMap" and name in (names.config_map, names.metrics_config_map):
        return "config_maps"
    if kind in _WEBHOOK_KINDS:
        is_own = is_own_object(names, kinds.VALIDATING_WEBHOOK, "", name)
        return "webhooks" if is_own else ""
    if kind == "CustomResourceDefinition":
        spec = document["spec"]
        return "definitions" if (spec["group"], spec["names"]["kind"]) in groups else ""
    if (document["apiVersion"].partition("/")[0], kind) in groups:
        return "reports" if kind in _REPORT_KINDS else "policies"
    labels = document["metadata"].get("labels") or {}
    if labels.get(PART_OF) == names.prefix:
        return "others"
    is_aggregated = any(key.startswith(AGGREGATE_TO) for key in labels)
    return "roles" if kind == "ClusterRole" and is_aggregated else ""


def identify(document: JsonObject) -> tuple[str, str, str, str]:
    """Group, kind, namespace and name."""
    metadata = document["metadata"]
    group = document["apiVersion"].rpartition("/")[0]
    return group, document["kind"], str(metadata.get("namespace") or ""), metadata["name"]


def _is_at_home(document: JsonObject, names: Names) -> bool:
    return document["metadata"].get("namespace") in (names.namespace, None)
