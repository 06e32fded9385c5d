"""What an installer may choose, the names and labels that follow, and objects with these."""

import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import TypeAlias

import msgspec

from lictor.core.errors import NotFoundError, UsageError
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.raw import Json, JsonObject
from lictor.install.placeholders import FULLNAME, IMAGE, NAMESPACE, RELEASE
from lictor.install.values import (
    CONTROLLERS,
    default_values,
    find_value,
    merge_values,
    name_container,
    name_controller,
    set_value,
)
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import Resource

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# What a Service may be called limits how our longest name may begin.
_LONGEST_PREFIX = 63 - len("-background-controller-metrics")
# Namespaces that others need: ours is deleted when lictor goes.
_SHARED_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


# The time to finish open requests after the last one has arrived.
_FINISH_SECONDS = 50


class Installation(msgspec.Struct, frozen=True):
    """One lictor in one cluster.

    Fields that are not set take the values of the chart; fields that are set override them.
    """

    version: str
    image: str = ""
    prefix: str = "lictor"
    namespace: str = "lictor"
    replicas: int | None = None
    # Of each other controller; they elect a leader, and share the scanning.
    controller_replicas: int | None = None
    all_in_one: bool = False
    open_reports: bool = False
    # The web UI, and its host names.
    web: bool = False
    web_hosts: tuple[str, ...] = ()
    # The kinds may have been installed before, by someone who may do that.
    skip_crds: bool = False
    image_pull_secrets: tuple[str, ...] = ()
    # Flags of the controllers, and entries of the ConfigMap, beside or instead of the usual ones.
    flags: Mapping[str, str] = msgspec.field(default_factory=dict)
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Values of the chart that are not the usual ones.
    values: Mapping[str, Json] = msgspec.field(default_factory=dict)

    @property
    def names(self) -> Names:
        return Names(prefix=self.prefix, namespace=self.namespace)


def check_installation(installation: Installation) -> None:
    """Refuse what the API server, or good sense, would refuse later."""
    for what, name in (("prefix", installation.prefix), ("namespace", installation.namespace)):
        if not _DNS_LABEL.fullmatch(name) or len(name) > 63:
            raise UsageError(
                f"{what} {name!r}: write lower case letters, digits and hyphens, at most 63"
            )
    if len(installation.prefix) > _LONGEST_PREFIX:
        raise UsageError(f"prefix {installation.prefix!r}: at most {_LONGEST_PREFIX} characters")
    if installation.namespace in _SHARED_NAMESPACES:
        raise UsageError(f"namespace {installation.namespace}: choose one that is lictor's own")
    if 0 in (installation.replicas, installation.controller_replicas):
        raise UsageError("at least one replica is needed")


# --- values


def choose_values(installation: Installation) -> JsonObject:
    """All values of the chart for an installation: the defaults, its own, and its options."""
    values = merge_values(default_values(), dict(installation.values))
    for path, value in _list_wishes(installation):
        set_value(values, path, value)
    _add_flags(values, installation)
    settings = find_value(values, "config.settings") or {}
    set_value(values, "config.settings", {**settings, **installation.settings})
    return values


def _list_wishes(installation: Installation) -> Iterable[tuple[str, Json]]:
    if installation.image:
        yield "image", {"pullPolicy": "IfNotPresent", **_split_image(installation.image)}
        yield "global.image.registry", ""
    if installation.replicas is not None:
        yield "admissionController.replicas", installation.replicas
    if installation.controller_replicas is not None:
        for controller in CONTROLLERS[1:]:
            path = f"{name_controller(controller)}.replicas"
            yield path, installation.controller_replicas
    if installation.all_in_one:
        yield "allInOne.enabled", True
    if installation.open_reports:
        yield "openreports.enabled", True
    yield from _list_page_wishes(installation)
    if installation.skip_crds:
        yield "crds.install", False
    if installation.image_pull_secrets:
        secrets = [{"name": name} for name in installation.image_pull_secrets]
        for controller in CONTROLLERS:
            yield f"{name_controller(controller)}.imagePullSecrets", secrets


def _list_page_wishes(installation: Installation) -> Iterable[tuple[str, Json]]:
    if installation.web or installation.web_hosts:
        yield "web.enabled", True
    if installation.web_hosts:
        yield "web.hosts", ",".join(installation.web_hosts)


def _split_image(image: str) -> dict[str, str]:
    """`registry.example:5000/lictor:1`, `lictor@sha256:...`"""
    name, _, digest = image.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = name, ""
    return {"registry": "", "repository": repository, "tag": tag, "digest": digest}


def _add_flags(values: JsonObject, installation: Installation) -> None:
    """Flags are for all controllers; some also decide about more than the command line."""
    flags = installation.flags
    for controller in CONTROLLERS:
        path = f"{name_container(controller)}.extraArgs"
        given = {name: text for name, text in flags.items() if name != "shutdownDelay"}
        set_value(values, path, {**(find_value(values, path) or {}), **given})
    if delay := flags.get("shutdownDelay"):
        set_value(values, "admissionController.shutdownDelay", delay)
        seconds = parse_duration(delay) // NANOSECONDS + _FINISH_SECONDS
        for controller in CONTROLLERS:
            path = f"{name_controller(controller)}.terminationGracePeriodSeconds"
            set_value(values, path, seconds)
    for name in ("caSecretName", "tlsSecretName"):
        if flags.get(name):
            set_value(values, f"admissionController.{name}", flags[name])
    if flags.get("imagePullSecrets"):
        set_value(values, "existingImagePullSecrets", _list_pull_secrets(installation))


def _list_pull_secrets(installation: Installation) -> list[str]:
    """The Secrets of our namespace with the credentials of registries; all controllers use them."""
    names = installation.flags["imagePullSecrets"].split(",")
    own = f"{installation.namespace}/"
    found = (name.strip().removeprefix(own) for name in names)
    return [name for name in found if name and "/" not in name]


# The options of `install` that correspond to values.
_OPTION_VALUES = {
    "admissionController.replicas": "replicas",
    **{f"{name_controller(each)}.replicas": "controller_replicas" for each in CONTROLLERS[1:]},
    "image": "image",
    "features": "flags",
    **{f"{name_container(each)}.extraArgs": "flags" for each in CONTROLLERS},
    "global.imagePullSecrets": "image_pull_secrets",
    **{f"{name_controller(each)}.imagePullSecrets": "image_pull_secrets" for each in CONTROLLERS},
}


def list_named_options(installation: Installation) -> frozenset[str]:
    """The options of `install` that its values stand for."""
    values = dict(installation.values)
    return frozenset(
        option for path, option in _OPTION_VALUES.items() if find_value(values, path) is not None
    )


def list_chosen_settings(installation: Installation) -> frozenset[str]:
    """The entries of the ConfigMaps that the installer chose: these win over what is there."""
    config = installation.values.get("config") or {}
    metrics = installation.values.get("metricsConfig") or {}
    chosen = {*installation.settings, *config, *(config.get("settings") or {}), *metrics}
    if any(name.startswith(("resourceFilters", "excludeKyverno")) for name in config):
        chosen.add("resourceFilters")
    return frozenset(chosen)


# The installation whose manifests have placeholders in place of what is chosen.
TEMPLATE = Installation(version=RELEASE, image=IMAGE, prefix=FULLNAME, namespace=NAMESPACE)

# --- labels


def match_labels(installation: Installation, component: str) -> dict[str, str]:
    """The labels that selectors use; they must stay the same from release to release."""
    return {
        "app.kubernetes.io/part-of": installation.prefix,
        "app.kubernetes.io/instance": installation.prefix,
        "app.kubernetes.io/component": component,
    }


def build_labels(installation: Installation, component: str) -> dict[str, str]:
    """All labels of an object that belongs to a component."""
    return {
        **match_labels(installation, component),
        "app.kubernetes.io/name": f"{installation.prefix}-{component}",
        "app.kubernetes.io/version": installation.version,
        "app.kubernetes.io/managed-by": "lictor",
    }


# What kind, its name, and its namespace where it has one.
Address: TypeAlias = tuple[Resource, str, str]

# In the order in which they can go: what uses something goes before it.
RESOURCES = {
    (each.api_version, each.kind): each
    for each in (
        kinds.DEPLOYMENT,
        kinds.SERVICE,
        Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        # Their kinds come with the Prometheus operator: not every cluster has them.
        Resource("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"),
        Resource("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule"),
        kinds.CONFIG_MAP,
        kinds.CLUSTER_ROLE_BINDING,
        kinds.ROLE_BINDING,
        kinds.CLUSTER_ROLE,
        kinds.ROLE,
        Resource("", "v1", "serviceaccounts", "ServiceAccount"),
        kinds.CUSTOM_RESOURCE_DEFINITION,
        kinds.NAMESPACE,
    )
}
MANAGED = "app.kubernetes.io/managed-by"


def find_resource(manifest: JsonObject) -> Resource:
    """How the API server serves the kind of one of our manifests."""
    return RESOURCES[manifest["apiVersion"], manifest["kind"]]


def describe_object(resource: Resource, name: str) -> str:
    """An object as kubectl names it."""
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.kind.lower()}{group}/{name}"


def is_ours(found: JsonObject) -> bool:
    """Did an installation of lictor make this object?"""
    labels = found["metadata"].get("labels") or {}
    return bool(labels.get(MANAGED) == "lictor")


async def list_ours(
    client: Client, installation: Installation, kept: Collection[tuple[str, str]] = ()
) -> list[Address]:
    """All objects with our labels, of any release, except those to keep."""
    labels = f"{MANAGED}=lictor,app.kubernetes.io/instance={installation.prefix}"
    found: list[Address] = []
    for resource in RESOURCES.values():
        if resource in (kinds.NAMESPACE, kinds.CUSTOM_RESOURCE_DEFINITION):
            continue
        place = installation.namespace if resource.namespaced else ""
        for item in await _list_if_served(client, resource, place, labels):
            name = item["metadata"]["name"]
            if (resource.kind, name) not in kept:
                found.append((resource, name, place))
    return found


async def _list_if_served(
    client: Client, resource: Resource, place: str, labels: str
) -> list[JsonObject]:
    try:
        return await client.list(resource, place, labels=labels)
    except NotFoundError:
        return []


async def delete_all(client: Client, objects: Iterable[Address]) -> AsyncIterator[str]:
    """Delete objects; yields a line for each that existed."""
    for resource, name, namespace in objects:
        if await client.delete(resource, name, namespace, propagation="Background"):
            yield f"{describe_object(resource, name)} deleted"
