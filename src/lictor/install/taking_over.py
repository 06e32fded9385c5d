"""What is kept of the program whose Deployments become ours: flags, replicas, where its Pods run?

Kyverno's Deployments have the selectors that ours have under the prefix `kyverno`. So they can be
replaced in place, as any rolling update does: the new Pods answer before the old ones go, behind
the same Service and with the same certificates, and no request fails.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec

from lictor.core.errors import LookupFailedError, UsageError
from lictor.core.raw import Json, JsonObject
from lictor.install.installation import Installation, describe_object, is_ours
from lictor.install.values import CONTROLLERS
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import FLAG_FIELDS, IGNORED, REASONS, read_flag_value

# Who has set what was kept: the next installation sees by this name that it is to stay.
KEEPER = "lictor-take-over"
# Scheduling and resources of Pods are decisions of the cluster administrator.
_KEPT_FIELDS = (
    "affinity", "dnsConfig", "dnsPolicy", "hostNetwork", "imagePullSecrets", "nodeSelector",
    "priorityClassName", "runtimeClassName", "schedulerName", "tolerations",
    "topologySpreadConstraints",
)  # fmt: skip
# These follow from the names and options of an installation.
_DERIVED_FLAGS = frozenset((
    "backgroundServiceAccountName", "cleanupServiceAccountName", "context", "kubeconfig",
    "metricsPort", "openreportsEnabled", "reportsServiceAccountName", "servicePort",
    "webhookServerPort",
))  # fmt: skip
_OPEN_REPORTS = "openreportsEnabled"
# Labels that name the creator of an object and its chart, which no longer apply.
_MAKER_LABELS = frozenset(("helm.sh/chart",))
_OWN_FINALIZERS = "kyverno.io/"
# How long all Pods of a Deployment may take to be replaced, and how often that is looked at.
_PATIENCE = 600.0
_WEBHOOK_PATIENCE = 60.0
_PAUSE = 0.5


class FoundFlag(msgspec.Struct, frozen=True):
    """A flag of a container, and the reason why it is dropped; empty if it is kept."""

    name: str
    value: str
    component: str
    # Why it is not handed on.
    reason: str = ""


# --- flags


async def list_predecessors(client: Client, installation: Installation) -> list[JsonObject]:
    """The Deployments of someone else under our names."""
    names = [installation.names.controller(name) for name in CONTROLLERS]
    found = [await client.find(kinds.DEPLOYMENT, name, installation.namespace) for name in names]
    return [each for each in found if each is not None and not is_ours(each)]


def read_flags(deployments: Iterable[JsonObject], installation: Installation) -> list[FoundFlag]:
    """All flags of the Deployments, each once; the webhook server's value counts."""
    flags: dict[str, FoundFlag] = {}
    for deployment in deployments:
        component = str(deployment["metadata"]["name"])
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            # The last occurrence of a flag takes effect.
            for name, value in dict(_read_arguments(container.get("args") or ())).items():
                reason = _explain_dropping(name, value, installation)
                flags.setdefault(name, FoundFlag(name, value, component, reason))
    return list(flags.values())


def _read_arguments(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """`--name=value`; one dash does as well, and a switch needs no value."""
    for argument in arguments:
        if argument.startswith("-"):
            name, equals, value = argument.lstrip("-").partition("=")
            yield name, value if equals else "true"


def _explain_dropping(name: str, value: str, installation: Installation) -> str:
    """Why a flag is not kept; empty if it is kept, or has its default value."""
    names = installation.names
    usual = {"caSecretName": names.authority_secret(), "tlsSecretName": names.serving_secret()}
    if name in _DERIVED_FLAGS or usual.get(name) == value:
        return "it follows from the installation"
    if name in IGNORED:
        return f"it has no effect: {REASONS[name]}"
    if name not in FLAG_FIELDS:
        return "there is no such flag here"
    try:
        read_flag_value(name, value)
    except UsageError as error:
        return str(error)
    return ""


def keep_flags(installation: Installation, flags: Iterable[FoundFlag]) -> Installation:
    """The installation with what was found; its own options take precedence."""
    flags = list(flags)
    found = {flag.name: flag.value for flag in flags}
    return msgspec.structs.replace(
        installation,
        flags={**list_unusual(flags), **installation.flags},
        open_reports=installation.open_reports or found.get(_OPEN_REPORTS) == "true",
    )


def list_unusual(flags: Iterable[FoundFlag]) -> dict[str, str]:
    """The flags that are kept: those with another value than the default."""
    return {flag.name: flag.value for flag in flags if not flag.reason and _is_unusual(flag)}


def _is_unusual(flag: FoundFlag) -> bool:
    return bool(read_flag_value(flag.name, flag.value) != FLAG_FIELDS[flag.name].default)


# --- Deployments


def can_replace(manifest: JsonObject, live: JsonObject) -> bool:
    """Would the Deployment look after the same Pods? Its selector can never be changed."""
    return bool(manifest["spec"]["selector"] == live["spec"]["selector"])


def describe_images(live: JsonObject) -> str:
    """What runs in a Deployment."""
    containers = live["spec"]["template"]["spec"]["containers"]
    return ", ".join(str(container.get("image")) for container in containers)


def build_replacement(manifest: JsonObject, live: JsonObject, *, replicas: bool) -> JsonObject:
    """Our Deployment with what the one in its place has decided; `replicas`: also how many."""
    template = manifest["spec"]["template"]
    theirs = live["spec"]["template"]
    pod = {**template["spec"], **_list_kept(template["spec"], theirs["spec"])}
    spec = {
        **manifest["spec"],
        "template": {
            "metadata": _merge_marks(theirs["metadata"], template["metadata"]),
            "spec": pod,
        },
    }
    if replicas and "replicas" in live["spec"]:
        spec["replicas"] = live["spec"]["replicas"]
    return {**manifest, "metadata": _keep_metadata(manifest, live), "spec": spec}


def _list_kept(ours: JsonObject, theirs: JsonObject) -> JsonObject:
    kept = {name: theirs[name] for name in _KEPT_FIELDS if theirs.get(name)}
    if "nodeSelector" in kept:
        kept["nodeSelector"] = {**(ours.get("nodeSelector") or {}), **kept["nodeSelector"]}
    return kept


def _merge_marks(theirs: JsonObject, ours: JsonObject) -> JsonObject:
    """Labels and annotations of both; where both have one, ours."""
    merged: JsonObject = {}
    for part in ("labels", "annotations"):
        kept = {k: v for k, v in (theirs.get(part) or {}).items() if k not in _MAKER_LABELS}
        if marks := {**kept, **(ours.get(part) or {})}:
            merged[part] = marks
    return merged


def _keep_metadata(manifest: JsonObject, live: JsonObject) -> JsonObject:
    metadata = live["metadata"]
    finalizers = metadata.get("finalizers") or ()
    return {
        **_merge_marks(metadata, manifest["metadata"]),
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        # Of two who replace it at once, one wins.
        "resourceVersion": metadata["resourceVersion"],
        # No controller is left that would remove what Kyverno waits for.
        "finalizers": [name for name in finalizers if not name.startswith(_OWN_FINALIZERS)],
    }


def build_mark(replacement: JsonObject, live: JsonObject) -> JsonObject:
    """The fields that were kept, for KEEPER to apply: the next installation leaves them alone."""
    pod, theirs = (each["spec"]["template"]["spec"] for each in (replacement, live))
    kept: JsonObject = {name: pod[name] for name in _KEPT_FIELDS if theirs.get(name)}
    kept["containers"] = [{"name": c["name"], "args": c["args"]} for c in pod["containers"]]
    return {
        "apiVersion": replacement["apiVersion"],
        "kind": replacement["kind"],
        "metadata": {name: replacement["metadata"][name] for name in ("name", "namespace")},
        "spec": {"template": {"spec": kept}},
    }


def join_rules(role: JsonObject, other: JsonObject | None) -> JsonObject:
    """A role that gives the rights of both, for as long as Pods of both run; others as they are."""
    theirs = (other or {}).get("rules") or ()
    if not role.get("rules"):
        return role
    return {**role, "rules": [*role["rules"], *(r for r in theirs if r not in role["rules"])]}


# --- watching it happen


async def wait_for_rollout(client: Client, name: str, namespace: str) -> None:
    """Until all Pods of a Deployment are new and ready, and no old one is left.

    Raises LookupFailedError after ten minutes. The old Pods go on answering for as long as no new
    one is ready.
    """
    until = time.monotonic() + _PATIENCE
    while not is_rolled_out(found := await client.get(kinds.DEPLOYMENT, name, namespace)):
        if time.monotonic() > until:
            raise LookupFailedError(
                f"{describe_object(kinds.DEPLOYMENT, name)}: its Pods are not ready after "
                f"{_PATIENCE:.0f} s ({_describe_progress(found)}). Those that were there before go "
                "on answering; when the reason is found, the same command goes on from here"
            )
        await asyncio.sleep(_PAUSE)


def is_rolled_out(deployment: JsonObject) -> bool:
    """Is every Pod of this Deployment one of its newest template, and available?"""
    wanted = deployment["spec"].get("replicas", 1)
    status: JsonObject = deployment.get("status") or {}
    counts = (
        status.get(name) or 0 for name in ("replicas", "updatedReplicas", "availableReplicas")
    )
    seen = status.get("observedGeneration") or 0
    return bool(seen >= deployment["metadata"]["generation"]) and all(n == wanted for n in counts)


def _describe_progress(deployment: JsonObject) -> str:
    status: Json = deployment.get("status") or {}
    messages = [str(c.get("message") or "") for c in status.get("conditions") or ()]
    return "; ".join(filter(None, messages)) or "nothing is known of them"


async def wait_for_webhooks(client: Client, installation: Installation) -> str:
    """Until all webhooks of our names lead to our webhook server; a warning where they do not.

    Kyverno's cleanup controller has a separate server, which must not be called after its removal.
    """
    until = time.monotonic() + _WEBHOOK_PATIENCE
    while elsewhere := [each async for each in _list_elsewhere(client, installation)]:
        if time.monotonic() > until:
            return f"warning: {', '.join(elsewhere)} still lead to another Service"
        await asyncio.sleep(_PAUSE)
    return ""


async def _list_elsewhere(client: Client, installation: Installation) -> AsyncIterator[str]:
    names = installation.names
    start, _, end = names.webhook("*").partition("*")
    for resource in (kinds.VALIDATING_WEBHOOK, kinds.MUTATING_WEBHOOK):
        for found in await client.list(resource):
            name = found["metadata"]["name"]
            services = {
                (webhook["clientConfig"].get("service") or {}).get("name", names.service)
                for webhook in found.get("webhooks") or ()
            }
            if name.startswith(start) and name.endswith(end) and services - {names.service}:
                yield describe_object(resource, name)
