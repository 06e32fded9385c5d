"""Background work that a request triggered, stored as UpdateRequests."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from itertools import count

import msgspec

from lictor.core.errors import ApiError
from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import UPDATE_REQUEST

log = logging.getLogger(__name__)

_PAUSE = 0.5
_LONGEST_PAUSE = 10.0
_LONGEST_WAIT = 2.0
_WAITING = 10_000
_SENDERS = 4
_TRIES = 10


class UpdateType(StrEnum):
    """The type of work, in Kyverno's words."""

    MUTATE = "mutate"
    GENERATE = "generate"
    CEL_MUTATE = "cel-mutate"
    CEL_GENERATE = "cel-generate"


class UpdateTrigger(msgspec.Struct, frozen=True):
    """The object that triggered a rule."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @classmethod
    def of(cls, resource: JsonObject) -> "UpdateTrigger":
        metadata = resource.get("metadata") or {}
        parts = (resource.get("apiVersion"), resource.get("kind"))
        more = (metadata.get("namespace"), metadata.get("name"), metadata.get("uid"))
        return cls(*(str(part or "") for part in (*parts, *more)))

    def describe(self) -> JsonObject:
        """As fields of an UpdateRequest."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        return {name: text for name, text in fields.items() if text}


class Update(msgspec.Struct, frozen=True):
    """Rules of one policy that one trigger matched."""

    type: UpdateType
    policy: str
    rules: tuple[str, ...]
    trigger: UpdateTrigger
    # Only delete what was generated for the trigger.
    delete_downstream: bool = False
    # The AdmissionRequest and the caller's roles, if a request was the reason.
    admission: JsonObject | None = None
    caller: JsonObject | None = None


class StoredUpdate(msgspec.Struct, frozen=True):
    """A stored update."""

    update: Update
    name: str
    uid: str
    # Increases with time: the later of two has the greater value.
    version: int
    created: str


def build_update_request(update: Update, namespace: str) -> JsonObject:
    """The object of an update."""
    label = "mutate.updaterequest" if "mutate" in update.type else "generate"
    trigger = update.trigger.describe()
    info: JsonObject = {}
    if update.admission is not None:
        info["admissionRequestInfo"] = {
            "admissionRequest": update.admission,
            "operation": update.admission.get("operation"),
        }
    if update.caller is not None:
        info["userInfo"] = update.caller
    spec: JsonObject = {
        "requestType": str(update.type),
        "policy": update.policy,
        "rule": update.rules[0] if len(update.rules) == 1 else "",
        "resource": trigger,
        "context": info,
        "deleteDownstream": update.delete_downstream,
        "ruleContext": [
            {"rule": rule, "trigger": trigger, "deleteDownstream": update.delete_downstream}
            for rule in update.rules
        ],
    }
    name = update.policy.rpartition("/")[2]
    return {
        "apiVersion": UPDATE_REQUEST.api_version,
        "kind": UPDATE_REQUEST.kind,
        "metadata": {
            "generateName": "ur-",
            "namespace": namespace,
            "labels": {f"{label}.kyverno.io/policy-name": name[:63].rstrip("-.")},
        },
        "spec": spec,
    }


def read_update_request(body: JsonObject) -> StoredUpdate | None:
    """The update of an object; None if it is invalid."""
    spec, metadata = body.get("spec") or {}, body["metadata"]
    contexts = [each for each in spec.get("ruleContext") or () if isinstance(each, dict)]
    try:
        kind = UpdateType(str(spec.get("requestType")))
    except ValueError:
        return None
    first: Mapping[str, Json] = contexts[0] if contexts else {}
    place = first.get("trigger") or spec.get("resource") or {}
    context = spec.get("context") or {}
    rules = tuple(str(each.get("rule")) for each in contexts) or (str(spec.get("rule") or ""),)
    update = Update(
        kind,
        str(spec.get("policy") or ""),
        rules,
        convert_record(_rename(place), UpdateTrigger),
        bool(first.get("deleteDownstream") or spec.get("deleteDownstream")),
        (context.get("admissionRequestInfo") or {}).get("admissionRequest"),
        context.get("userInfo"),
    )
    return StoredUpdate(
        update,
        str(metadata["name"]),
        str(metadata.get("uid")),
        int(metadata.get("resourceVersion") or 0),
        str(metadata.get("creationTimestamp") or ""),
    )


def _rename(place: Mapping[str, Json]) -> JsonObject:
    names = {"apiVersion": "api_version"}
    wanted = ("apiVersion", "kind", "namespace", "name", "uid")
    return {names.get(name, name): str(place.get(name) or "") for name in wanted}


class UpdateRequests:
    """Sends updates to the cluster. If there are too many already, further ones wait here.

    Of equal pending ones only the last is sent: it covers the others.
    """

    def __init__(self, client: Client, names: Names, *, limit: Callable[[], int]) -> None:
        self._client = client
        self._namespace = names.namespace
        self._limit = limit
        self._waiting: dict[tuple[str, ...], Update] = {}
        self._sending = 0
        # The remaining capacity, and how many of the counted ones are in flight.
        self._room = 0
        self._flying = 0
        self._counting = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._left = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + self._sending

    def offer(self, update: Update) -> bool:
        """Queue an update without waiting; False if there is no space."""
        key = _key(update)
        if len(self._waiting) >= _WAITING and key not in self._waiting:
            return False
        self._waiting[key] = update
        self._arrived.set()
        return True

    async def submit(self, updates: Iterable[Update]) -> None:
        """Queue updates; waits while there is no space."""
        for update in updates:
            while not self.offer(update):
                self._left.clear()
                await self._left.wait()

    async def run(self) -> None:
        """Send queued updates until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_SENDERS):
                group.create_task(self._work())

    async def drain(self, seconds: float) -> None:
        """Wait until all are sent, up to a time limit."""
        try:
            async with asyncio.timeout(seconds):
                while len(self):
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            log.error("update requests not sent", extra={"count": len(self)})

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            update = self._waiting.pop(next(iter(self._waiting)))
            self._sending += 1
            try:
                await self._find_room()
                await self._send(update)
            finally:
                self._sending -= 1
                self._flying = max(self._flying - 1, 0)
                self._left.set()

    async def _find_room(self) -> None:
        async with self._counting:
            pause = _PAUSE
            while self._room <= 0:
                self._room = await self._count_room()
                if self._room <= 0:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LONGEST_WAIT)
            self._room -= 1
            self._flying += 1

    async def _count_room(self) -> int:
        try:
            answer = await self._client.request(
                "GET", UPDATE_REQUEST.path(self._namespace), params={"limit": 1}
            )
        except ApiError as error:
            log.warning("update requests delayed", extra={"why": str(error)[:200]})
            return 0
        rest = int(answer["metadata"].get("remainingItemCount") or 0)
        there = rest + len(answer.get("items") or ()) + self._flying
        room = max(self._limit(), 1) - there
        # Other processes send too: do not use all of it.
        return max(room // 4, 1) if room > 0 else 0

    async def _send(self, update: Update) -> None:
        pause = _PAUSE
        body = build_update_request(update, self._namespace)
        for times in count():
            try:
                await self._client.create(UPDATE_REQUEST, body)
            except ApiError as error:
                # A server that has just started does not know its custom kinds at once.
                if error.status in (400, 413, 422) or (error.status == 404 and times > _TRIES):
                    log.error("update request refused", extra={"why": str(error)[:200]})
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                return


def _key(update: Update) -> tuple[str, ...]:
    admission = update.admission or {}
    operation = str(admission.get("operation") or "")
    trigger = update.trigger
    place = trigger.uid or f"{trigger.namespace}/{trigger.name}"
    # What is never stored exists only in its request: each one counts.
    alone = str(admission.get("uid")) if admission.get("subResource") else ""
    rules = ",".join(update.rules)
    return (update.type, update.policy, rules, place, trigger.kind, operation, alone)
