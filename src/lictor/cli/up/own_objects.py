"""Lictor's own objects in the embedded cluster: kinds, rights, settings; no Deployments.

What runs is processes of ours; a Deployment would only make Pods that never start.
"""

from lictor.apiserver.access.role_aggregation import gather_rules
from lictor.apiserver.access.service_account_tokens import account_groups
from lictor.apiserver.loopback_client import SYSTEM
from lictor.apiserver.request import ApiUser
from lictor.apiserver.server import Server
from lictor.cluster.manifests.build import build_manifests
from lictor.cluster.manifests.installation import Installation
from lictor.cluster.manifests.rights import name_user
from lictor.raw import JsonObject

# Of everyone's objects these are the ones that people change.
_THEIRS = frozenset(("ConfigMap",))
_LEFT_OUT = frozenset(("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"))


def find_own_user(installation: Installation) -> ApiUser:
    """Whom the API server takes our processes for: what they would be in a cluster."""
    user = name_user(installation, "admission")
    return ApiUser(user, account_groups(installation.namespace))


async def install(server: Server, installation: Installation) -> None:
    """Write what is missing, and what an older release wrote otherwise."""
    manifests = [each for each in build_manifests(installation) if each["kind"] not in _LEFT_OUT]
    roles = [each for each in manifests if each["kind"] == "ClusterRole"]
    for manifest in manifests:
        # Our processes are at the door already: rights must not come a moment after the roles.
        rules = gather_rules(manifest, roles)
        await _keep(server, manifest if rules is None else {**manifest, "rules": rules})


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
