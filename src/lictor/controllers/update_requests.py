"""UpdateRequests: the request of each, and the queue that processes them."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import ApiError, LictorError, LoadError, NotFoundError, NotYetError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.load.review import build_review
from lictor.core.model.request import Caller, Operation, Request
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import UPDATE_REQUEST, Resource
from lictor.kubernetes.update_requests import (
    StoredUpdate,
    Update,
    UpdateTrigger,
    UpdateType,
    read_update_request,
)
from lictor.kubernetes.work_queue import WorkQueue

# The webhook is called before the API server stores the object. A new object is waited for this
# long: another webhook may be slow, or refuse it in the end.
_UNTIL_CREATED = 15.0
# An update without changes keeps the version: it cannot be distinguished from one that is not
# stored yet.
_UNTIL_UPDATED = 1.5


class NamespaceSource(Protocol):
    """Source of namespaces and their labels."""

    def labels(self, name: str) -> Mapping[str, str]: ...

    async def ensure(self, name: str) -> JsonObject | None: ...


class TriggerReader(msgspec.Struct, frozen=True):
    """Reads triggers from the cluster."""

    client: Client
    names: Callable[[], ResourceNames]
    namespaces: NamespaceSource

    def locate(self, api_version: str, kind: str, *, namespaced: bool) -> Resource:
        """The resource of a kind, as the API server serves it."""
        group, _, version = api_version.rpartition("/")
        found = self.names().of_kind(group, version, kind)
        scope = found.namespaced if found.namespaced is not None else namespaced
        return Resource(group, version, found.resource, kind, scope)

    async def read(self, trigger: UpdateTrigger) -> JsonObject | None:
        """The current trigger; None if it, or the one with that UID, is gone."""
        resource = self.locate(
            trigger.api_version, trigger.kind, namespaced=bool(trigger.namespace)
        )
        if not trigger.name:
            return await self._search(resource, trigger)
        try:
            found = await self.client.get(resource, trigger.name, trigger.namespace)
        except NotFoundError:
            return None
        uid = str(found["metadata"].get("uid") or "")
        return found if not trigger.uid or uid == trigger.uid else None

    async def _search(self, resource: Resource, trigger: UpdateTrigger) -> JsonObject | None:
        """By UID only: Kyverno's labels do not include the name of the trigger."""
        try:
            async for page in self.client.list_pages(resource, trigger.namespace):
                for item in page.get("items") or ():
                    if trigger.uid and item["metadata"].get("uid") == trigger.uid:
                        return {"apiVersion": trigger.api_version, "kind": trigger.kind, **item}
        except NotFoundError:
            pass
        return None

    async def build_request(self, update: Update, *, is_late: bool = False) -> Request | None:
        """The request to evaluate; None if the trigger is gone.

        The stored object counts, not the review: a forged one changes nothing. Only what is never
        stored (a subresource such as `exec`) or no longer is (DELETE) comes from it. Raises
        NotYetError if the trigger is not stored yet, unless it is too late to wait.
        """
        asked = read_admission(update)
        labels = await self.find_labels(update.trigger)
        if asked is not None and (asked.operation is Operation.DELETE or asked.subresource):
            return replace(asked, namespace_labels=labels)
        found = await self.read(update.trigger)
        if asked is not None and not is_late:
            _check_stored(asked, found, update.trigger)
        if found is None:
            return None
        if asked is None:
            return Request.of(found, namespace_labels=labels)
        return replace(asked, object=found, namespace_labels=labels)

    async def find_labels(self, trigger: UpdateTrigger) -> Mapping[str, str]:
        """The labels of the namespace that a trigger is in."""
        if not trigger.namespace:
            return {}
        await self.namespaces.ensure(trigger.namespace)
        return self.namespaces.labels(trigger.namespace)

    async def is_ending(self, namespace: str) -> bool:
        """Is a namespace being deleted, or gone?"""
        if not namespace:
            return False
        found = await self.namespaces.ensure(namespace)
        return found is None or "deletionTimestamp" in found["metadata"]


def _check_stored(asked: Request, found: JsonObject | None, trigger: UpdateTrigger) -> None:
    name = f"{trigger.kind} {trigger.namespace}/{trigger.name}"
    if asked.operation is Operation.CREATE and found is None:
        raise NotYetError(f"{name} does not exist yet", patience=_UNTIL_CREATED)
    if asked.operation is Operation.UPDATE and found is not None:
        before = ((asked.old_object or {}).get("metadata") or {}).get("resourceVersion")
        if before and found["metadata"].get("resourceVersion") == before:
            raise NotYetError(f"{name} has not changed yet", patience=_UNTIL_UPDATED)


def read_admission(update: Update) -> Request | None:
    """The request that was the reason of an update; None where there was none."""
    if update.admission is None:
        return None
    try:
        request = build_review({"request": update.admission}).request
    except LoadError:
        return None
    roles = update.caller or {}
    caller = request.caller or Caller()
    known = replace(
        caller,
        roles=tuple(str(role) for role in roles.get("roles") or ()),
        cluster_roles=tuple(str(role) for role in roles.get("clusterRoles") or ()),
    )
    return replace(request, caller=known)


log = logging.getLogger(__name__)

_Key: TypeAlias = tuple[str, ...]

_SHORT_PAUSE = 0.25
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
# An UpdateRequest that failed for this long is logged and deleted: a queue that
# is full of them stops all others.
_LIFETIME = 3600.0


class UpdateHandler(Protocol):
    """Processes an update; raises on failure.

    NotYetError: it is too early. After too long, it is called with `late`.
    """

    async def __call__(self, update: Update, *, is_late: bool) -> None: ...


class UpdateRequestQueue:
    """Groups equal UpdateRequests, and processes each group."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        handlers: Mapping[UpdateType, UpdateHandler],
        *,
        workers: int,
    ) -> None:
        self.cache = cache
        self._client = client
        self._handlers = handlers
        self._queue: WorkQueue[_Key] = WorkQueue(
            "update-requests",
            self._work,
            workers=workers,
            pauses=(_FIRST_PAUSE, _LONGEST_PAUSE),
            owner=_find_owner,
        )
        self._groups: dict[_Key, list[StoredUpdate]] = {}
        # The version of the latest request of each group that was queued.
        self._queued: dict[_Key, int] = {}
        # What came too early: since when.
        self._early: dict[_Key, float] = {}
        self._read: dict[str, StoredUpdate | None] = {}
        self._done: set[str] = set()

    async def run(self) -> None:
        """Work until cancelled; unfinished work is left to the next leader."""
        try:
            await self._queue.run()
        finally:
            self._queued.clear()

    async def reconcile(self) -> None:
        """Queue what is new; a newer request does not wait for the retry of an older one."""
        groups = self._groups = self._collect()
        self._queue.keep(set(groups))
        self._queued = {key: kept for key, kept in self._queued.items() if key in groups}
        self._early = {key: since for key, since in self._early.items() if key in groups}
        for key, stored in groups.items():
            latest = max(each.version for each in stored)
            if latest > self._queued.get(key, -1):
                self._queued[key] = latest
                self._queue.add(key)

    def _collect(self) -> dict[_Key, list[StoredUpdate]]:
        bodies = {str(body["metadata"].get("uid")): body for body in self.cache.list()}
        # The content of an update never changes: each is read once.
        self._read = {
            uid: self._read[uid] if uid in self._read else read_update_request(body)
            for uid, body in bodies.items()
        }
        self._done &= bodies.keys()
        groups: dict[_Key, list[StoredUpdate]] = {}
        for stored in self._read.values():
            if stored is not None and stored.uid not in self._done:
                groups.setdefault(key_of(stored), []).append(stored)
        return groups

    async def _work(self, key: _Key) -> bool | float:
        stored = [each for each in self._groups.get(key, ()) if each.uid not in self._done]
        if not stored:
            return True
        # The latest of equal requests includes the others.
        update = max(stored, key=lambda each: each.version).update
        try:
            await self._handle(key, update)
        except NotYetError:
            return _SHORT_PAUSE
        except (LictorError, TimeoutError) as error:
            return await self._fail(stored, str(error))
        except Exception as error:
            log.exception("update failed", extra={"policy": update.policy})
            return await self._fail(stored, f"{type(error).__name__}: {error}")
        return await self._remove(stored)

    async def _handle(self, key: _Key, update: Update) -> None:
        handler = self._handlers.get(update.type)
        if handler is None:
            return
        since = self._early.get(key)
        try:
            await handler(update, is_late=False)
        except NotYetError as error:
            now = time.monotonic()
            if now - self._early.setdefault(key, now) < error.patience:
                raise
            await handler(update, is_late=True)
        if since is not None:
            self._early.pop(key, None)

    async def _remove(self, stored: Iterable[StoredUpdate]) -> bool:
        """Delete requests that are done; False where one is still there."""
        is_removed = True
        for each in stored:
            self._done.add(each.uid)
            try:
                await self._client.delete(
                    UPDATE_REQUEST,
                    each.name,
                    self.cache.namespace,
                    preconditions={"uid": each.uid},
                )
            except ApiError as error:
                self._done.discard(each.uid)
                is_removed = False
                log.warning("update not removed", extra={"why": str(error)[:200]})
        return is_removed

    async def _fail(self, stored: list[StoredUpdate], why: str) -> bool:
        """Record why an update failed, for another attempt; give up one that is too old."""
        facts = {"policy": stored[-1].update.policy, "why": why[:300]}
        if _is_old(stored):
            log.error("update given up", extra=facts)
            return await self._remove(stored)
        log.warning("update failed", extra=facts)
        status = {"status": {"state": "Failed", "message": why[:1000]}}
        for each in stored:
            try:
                await self._client.patch(
                    UPDATE_REQUEST,
                    each.name,
                    status,
                    namespace=self.cache.namespace,
                    subresource="status",
                )
            except NotFoundError:
                continue
            except ApiError as error:
                log.warning("status not written", extra={"why": str(error)[:200]})
        return False


def _is_old(stored: Iterable[StoredUpdate]) -> bool:
    now = datetime.now(UTC)
    try:
        ages = [now - datetime.fromisoformat(each.created) for each in stored]
    except ValueError:
        return False
    return all(age.total_seconds() > _LIFETIME for age in ages)


def key_of(stored: StoredUpdate) -> tuple[str, ...]:
    """Requests with the same key are equal: only the latest is processed."""
    update = stored.update
    admission = update.admission or {}
    operation = str(admission.get("operation") or "")
    trigger = update.trigger
    place = (trigger.uid or f"{trigger.namespace}/{trigger.name}", trigger.kind)
    # Only the request itself has the information: each one is processed.
    alone = stored.uid if operation == "DELETE" or admission.get("subResource") else ""
    kind = "delete" if update.delete_downstream else operation
    rules = ",".join(update.rules)
    return (update.type, update.policy, rules, *place, kind, alone, trigger.namespace)


def _find_owner(key: tuple[str, ...]) -> str:
    """The namespace of the trigger."""
    return key[-1]
