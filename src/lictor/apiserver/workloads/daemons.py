"""DaemonSets: one Pod for each node; there are none unless someone makes Node objects."""

from lictor.apiserver.controllers.controller_client import DAEMON_SETS, ControllerClient
from lictor.apiserver.workloads.pods import is_going
from lictor.apiserver.workloads.stateful import keep_revision
from lictor.raw import JsonObject

_COUNTS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
)  # fmt: skip


async def reconcile_daemon_set(client: ControllerClient, owner: JsonObject) -> None:
    """Say that everything is as it should be: no Pod for no node."""
    if is_going(owner):
        return
    await keep_revision(client, owner)
    status: JsonObject = dict.fromkeys(_COUNTS, 0)
    status["observedGeneration"] = owner["metadata"].get("generation", 1)
    before = owner.get("status") or {}
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    await client.write_status(DAEMON_SETS, owner, status)
