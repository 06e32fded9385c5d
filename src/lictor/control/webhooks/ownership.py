"""Who owns what has no namespace? Our Namespace owns a ClusterRole, and that owns the webhooks.

So the garbage collector removes the webhooks when the namespace is deleted, even when nothing of
us runs any more.
"""

from lictor.cluster.client import Client
from lictor.cluster.names import Names
from lictor.cluster.resource import CLUSTER_ROLE, DEPLOYMENT, NAMESPACE, Resource
from lictor.control.context import ControllerContext
from lictor.control.loop import ReconcileLoop
from lictor.errors import ApiError
from lictor.raw import JsonObject

POD = Resource("", "v1", "pods", "Pod")
_INTERVAL = 300.0


def build_ownership_loop(context: ControllerContext) -> ReconcileLoop:
    """The loop that keeps the ClusterRole owned by the Namespace."""
    client, names = context.client, context.names
    role = context.watch(CLUSTER_ROLE, fields=f"metadata.name={names.owner_role}")
    namespace = context.watch(NAMESPACE, fields=f"metadata.name={names.namespace}")

    async def reconcile() -> None:
        await own_role(client, role.get(names.owner_role), namespace.get(names.namespace))

    return ReconcileLoop(
        "ownership-controller", reconcile, interval=_INTERVAL, caches=(role, namespace)
    )


async def own_role(client: Client, role: JsonObject | None, namespace: JsonObject | None) -> None:
    """Make the Namespace the owner of the ClusterRole; other owners stay."""
    if role is None or namespace is None:
        return
    owner = build_owner_reference("v1", "Namespace", namespace)
    owners = role["metadata"].get("ownerReferences") or []
    if owner in owners:
        return
    # An owner of the same name but with another uid is gone, and would have the role deleted.
    others = [item for item in owners if not _is_same_thing(item, owner)]
    patch = {
        "metadata": {
            "ownerReferences": [*others, owner],
            "resourceVersion": role["metadata"]["resourceVersion"],
        }
    }
    await client.patch(CLUSTER_ROLE, role["metadata"]["name"], patch)


def build_owner_reference(api_version: str, kind: str, owner: JsonObject) -> JsonObject:
    """How an object names its owner."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


async def is_going_down(client: Client, names: Names, pod: str, controller: str) -> bool:
    """Is this installation being taken away, and not just restarted?

    True where our Namespace or our Deployment is gone or going, or shall have no replicas; False
    where that cannot be known, as it is outside of a Pod.
    """
    try:
        if not pod or await client.find(POD, pod, names.namespace) is None:
            return False
        namespace = await client.find(NAMESPACE, names.namespace)
        deployment = await client.find(DEPLOYMENT, names.controller(controller), names.namespace)
    except ApiError:
        return False
    if _is_leaving(namespace) or _is_leaving(deployment):
        return True
    return deployment is not None and (deployment.get("spec") or {}).get("replicas") == 0


def _is_leaving(item: JsonObject | None) -> bool:
    return item is None or bool(item["metadata"].get("deletionTimestamp"))


def _is_same_thing(left: JsonObject, right: JsonObject) -> bool:
    return all(left.get(part) == right.get(part) for part in ("apiVersion", "kind", "name"))
