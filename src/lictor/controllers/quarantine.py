"""Share the quarantined policies among the Pods of an installation: an annotation of a Lease."""

import re

from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.loop import ReconcileLoop
from lictor.core.evaluations import EVALUATIONS, MOST_QUARANTINED, QUARANTINED
from lictor.core.raw import Json, JsonObject
from lictor.core.report.events import Event, EventAction, EventReason, ObjectReference
from lictor.kubernetes.resource import LEASE
from lictor.kubernetes.stored_policy import StoredPolicy

ANNOTATION = "lictor.io/quarantined-policies"
_INTERVAL = 60.0
_IDENTITY = re.compile(r"\b[0-9a-f]{32}\b")


def build_quarantine_loop(context: ControllerContext) -> ReconcileLoop:
    """The loop of every replica that reads and extends the list of quarantined policies.

    Two replicas may write at the same time. The one whose policies are missing afterwards adds
    them again, as the change of the Lease wakes it.
    """
    name, namespace = context.names.quarantine_lease, context.names.namespace
    cache = context.watch(LEASE, namespace=namespace, fields=f"metadata.name={name}")

    async def reconcile() -> None:
        shared = _read_identities(cache.get(name, namespace))
        for identity in shared:
            EVALUATIONS.add(identity)
        missing = [each for each in EVALUATIONS.list_quarantined() if each not in shared]
        if missing:
            kept = [each.hex() for each in (*shared, *missing)][-MOST_QUARANTINED:]
            metadata = {"name": name, "namespace": namespace}
            await context.client.apply(
                LEASE, {"metadata": {**metadata, "annotations": {ANNOTATION: " ".join(kept)}}}
            )

    loop = ReconcileLoop(
        "quarantine-controller", reconcile, interval=_INTERVAL, caches=(cache,), leader_only=False
    )
    context.store.listen(loop.wake)
    return loop


def emit_quarantine(emit: EmitEvent, policy: StoredPolicy, old: Json, new: Json) -> None:
    """Emit an event if the new status of a policy reports a quarantine and the old one does not."""
    if QUARANTINED in str(new) and QUARANTINED not in str(old):
        kind = policy.resource
        about = ObjectReference(
            kind.api_version, kind.kind, policy.name, policy.namespace, policy.uid
        )
        emit(Event(EventReason.ERROR, EventAction.NONE, QUARANTINED, about))


def _read_identities(lease: JsonObject | None) -> list[bytes]:
    notes = (lease or {}).get("metadata", {}).get("annotations") or {}
    return [bytes.fromhex(word) for word in _IDENTITY.findall(notes.get(ANNOTATION, ""))]
