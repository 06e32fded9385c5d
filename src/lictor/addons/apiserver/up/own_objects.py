"""Lictor's own objects in the embedded cluster: kinds, rights, settings; no Deployments.

Lictor runs as local processes; a Deployment would only create Pods that never start.
"""

from collections.abc import Iterator

from lictor.addons.apiserver.controllers.kind_controllers import gather_rules
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.loopback_client import SYSTEM
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.server import Server
from lictor.addons.apiserver.service_account_tokens import account_groups
from lictor.addons.apiserver.up.plan import LOOPBACK, ClusterPlan
from lictor.core.raw import JsonObject
from lictor.install.build import build_manifests
from lictor.install.installation import Installation
from lictor.install.rights import list_webhook_names, name_user

_RBAC = "rbac.authorization.k8s.io"
_GROUP = "admissionregistration.k8s.io"
_PLURALS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_LABEL = "webhook.kyverno.io/managed-by"
_OWN_URLS = f"https://{LOOPBACK}:"


def renew_webhooks(server: Server, plan: ClusterPlan) -> None:
    """Set the port of this run, and remove the CA bundles until the controllers write new ones."""
    ours = set(list_webhook_names(plan.names))
    for kind, found in _list_configurations(server):
        name = found["metadata"]["name"]
        if name not in ours:
            # From a run under another prefix: no controller would update it.
            server.store.remove(kind, "", name)
            continue
        hooks = [_renew(hook, plan.flags.server_ip) for hook in found.get("webhooks") or ()]
        server.store.put(kind, {**found, "webhooks": hooks}, expected=None)


def are_current(server: Server) -> bool:
    """Have the controllers written all of them since the start?"""
    return all(
        hook["clientConfig"].get("caBundle")
        for _, found in _list_configurations(server)
        for hook in found.get("webhooks") or ()
    )


def _renew(hook: JsonObject, server_ip: str) -> JsonObject:
    url = hook["clientConfig"].get("url") or ""
    path = url.removeprefix(_OWN_URLS).partition("/")[2]
    return {**hook, "clientConfig": {"url": f"https://{server_ip}/{path}"}}


def _list_configurations(server: Server) -> Iterator[tuple[ServedKind, JsonObject]]:
    """Those that an embedded lictor has made: managed by us, and leading to this machine."""
    for plural in _PLURALS:
        kind = server.catalogue.preferred(_GROUP, plural)
        if kind is None:
            continue
        for found in server.store.list(kind):
            labels = found["metadata"].get("labels") or {}
            urls = [hook["clientConfig"].get("url") or "" for hook in found.get("webhooks") or ()]
            if _LABEL in labels and urls and all(url.startswith(_OWN_URLS) for url in urls):
                yield kind, found


# Of everyone's objects these are the ones that people change.
_THEIRS = frozenset(("ConfigMap",))
_LEFT_OUT = frozenset(("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"))


def find_own_user(installation: Installation) -> ApiUser:
    """Whom the API server takes our processes for: what they would be in a cluster."""
    user = name_user(installation, "admission")
    return ApiUser(user, account_groups(installation.namespace))


async def install(server: Server, installation: Installation, *, grants_all: bool) -> None:
    """Write what is missing, and what an older release wrote otherwise."""
    await _grant_all(server, installation, is_granted=grants_all)
    manifests = [each for each in build_manifests(installation) if each["kind"] not in _LEFT_OUT]
    roles = [each for each in manifests if each["kind"] == "ClusterRole"]
    for manifest in manifests:
        # Our processes are at the door already: rights must not come a moment after the roles.
        rules = gather_rules(manifest, roles)
        await _keep(server, manifest if rules is None else {**manifest, "rules": rules})


async def _grant_all(server: Server, installation: Installation, *, is_granted: bool) -> None:
    """Bind lictor's user to cluster-admin, or remove the binding of an earlier run."""
    name = f"{installation.prefix}:grant-all"
    binding: JsonObject = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [
            {"apiGroup": _RBAC, "kind": "User", "name": name_user(installation, "admission")}
        ],
    }
    kind = server.catalogue.find_kind(binding["apiVersion"], binding["kind"])
    if is_granted:
        await _keep(server, binding)
    elif kind is not None and server.store.get(kind, "", name) is not None:
        server.store.remove(kind, "", name)


async def _keep(server: Server, manifest: JsonObject) -> None:
    kind = server.catalogue.find_kind(manifest["apiVersion"], manifest["kind"])
    if kind is None:
        raise KeyError(manifest["kind"])
    metadata = manifest["metadata"]
    old = server.store.get(kind, metadata.get("namespace") or "", metadata["name"])
    if old is None:
        await server.api.create(SYSTEM, kind, manifest)
    elif kind.kind not in _THEIRS and not _is_of_this_release(old, manifest):
        version = old["metadata"]["resourceVersion"]
        changed = {**manifest, "metadata": {**metadata, "resourceVersion": version}}
        await server.api.update(SYSTEM, kind, changed)


def _is_of_this_release(old: JsonObject, manifest: JsonObject) -> bool:
    label = "app.kubernetes.io/version"
    wanted = (manifest["metadata"].get("labels") or {}).get(label)
    return bool((old["metadata"].get("labels") or {}).get(label) == wanted)
