"""Writes to the status of GlobalContextEntries whether their data could be loaded."""

from datetime import UTC, datetime

import msgspec

from lictor.controllers.context import ControllerContext
from lictor.controllers.loop import ReconcileLoop
from lictor.core.errors import ApiError, NotFoundError
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import GLOBAL_CONTEXT_ENTRY, Resource

_INTERVAL = 60.0
_SUCCEEDED = "Succeeded"


class _State(msgspec.Struct, frozen=True):
    """How the last attempt to get an entry's data ended."""

    why: str = ""
    refreshed: str = ""


class GlobalContextStatus:
    """Writes the results of refreshes; reads the state of watched entries."""

    def __init__(self, context: ControllerContext) -> None:
        self._client: Client = context.client
        self._cache = context.watch(GLOBAL_CONTEXT_ENTRY)
        self._states: dict[str, _State] = {}
        context.lookups.global_context.listen(self._hear)
        self.loop = ReconcileLoop(
            "globalcontext-controller", self.reconcile, interval=_INTERVAL, caches=(self._cache,)
        )

    def _hear(self, name: str, why: str) -> None:
        before = self._states.get(name, _State())
        self._states[name] = _State(why, before.refreshed if why else _write_now())
        self.loop.wake()

    async def reconcile(self) -> None:
        """Write the status of every entry that differs."""
        entries = self._cache.list()
        names = {entry["metadata"]["name"] for entry in entries}
        self._states = {name: state for name, state in self._states.items() if name in names}
        for entry in entries:
            state = await self._find_state(entry)
            if state is not None:
                await self._write(entry, build_status(entry, state.why, state.refreshed))

    async def _find_state(self, entry: JsonObject) -> _State | None:
        spec = (entry.get("spec") or {}).get("kubernetesResource")
        if not spec:
            return self._states.get(entry["metadata"]["name"])
        namespace = str(spec.get("namespace") or "")
        group, version, plural = (str(spec.get(n) or "") for n in ("group", "version", "resource"))
        resource = Resource(group, version, plural, "", namespaced=bool(namespace))
        try:
            await self._client.request("GET", resource.path(namespace), params={"limit": 1})
        except ApiError as error:
            return _State(str(error))
        return _State()

    async def _write(self, entry: JsonObject, status: JsonObject) -> None:
        if status == (entry.get("status") or {}):
            return
        try:
            await self._client.patch(
                GLOBAL_CONTEXT_ENTRY,
                entry["metadata"]["name"],
                {"status": status},
                subresource="status",
            )
        except NotFoundError:
            return  # deleted meanwhile


def build_status(entry: JsonObject, why: str, refreshed: str) -> JsonObject:
    """The status that an entry should have; times stay where nothing else changes."""
    old: JsonObject = entry.get("status") or {}
    known = [c for c in old.get("conditions") or () if c.get("type") == "Ready"]
    condition: JsonObject = {
        "type": "Ready",
        "status": "False" if why else "True",
        "reason": "Failed" if why else _SUCCEEDED,
        "message": why[:1024] or _SUCCEEDED,
    }
    since = [c.get("lastTransitionTime") for c in known if c.get("status") == condition["status"]]
    condition["lastTransitionTime"] = since[0] if since and since[0] else _write_now()
    status: JsonObject = {"conditions": [condition]}
    stamp = refreshed or old.get("lastRefreshTime")
    if stamp:
        status["lastRefreshTime"] = stamp
    return status


def build_global_context_loop(context: ControllerContext) -> ReconcileLoop:
    """The loop that keeps the entries' status."""
    return GlobalContextStatus(context).loop


def _write_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
