"""Deletes the objects that a sweep found, unchanged since then; counts and reports the outcome."""

import asyncio
import logging

import msgspec

from lictor.controllers.cleanup.policies import CleanupTarget
from lictor.controllers.cleanup.sweep import Page, Sweep, SweepContext, Undecided, name_object
from lictor.controllers.context import EmitEvent
from lictor.controllers.policy_writes import PolicyWrites
from lictor.core.errors import ApiError, ConflictError, UnreachableError
from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject
from lictor.core.report import events
from lictor.core.report.events import Event, EventReason, EventSource, ObjectReference
from lictor.kubernetes.metrics import open_counter

log = logging.getLogger(__name__)


# Concurrent deletions.
_AT_ONCE = 8
_ATTEMPTS = 5
# Objects and reasons that are recorded by name; the rest is counted.
_MAX_NAMED = 20


class CleanupOutcome(msgspec.Struct, frozen=True):
    """How many objects were deleted (or would be), how many failed, and the first names of each."""

    gone: int = 0
    failed: int = 0
    named: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    def __add__(self, other: "CleanupOutcome") -> "CleanupOutcome":
        return CleanupOutcome(
            self.gone + other.gone,
            self.failed + other.failed,
            (*self.named, *other.named)[:_MAX_NAMED],
            (*self.reasons, *other.reasons)[:_MAX_NAMED],
        )


class Remover:
    """Deletes the objects that a sweep found; a dry run only counts them."""

    def __init__(
        self,
        sweep: Sweep,
        context: SweepContext,
        policy: ObjectReference,
        emit: EmitEvent,
        *,
        dry: bool,
    ) -> None:
        self._sweep = sweep
        self._client = context.client
        self._writes = PolicyWrites(context.client, context.own)
        self._policy = policy
        self._emit = emit
        self._dry = dry
        is_cel = registry().get(policy.api_version.rpartition("/")[0], policy.kind).is_listed
        self._controller = "deleting" if is_cel else "cleanup"
        self._words = ("delete", "deleted") if is_cel else ("clean up", "cleaned up")

    async def handle(self, page: Page) -> CleanupOutcome:
        """Delete the objects of a page. UnreachableError: the run must be repeated."""
        for each in page.undecided:
            self._log_failure(page.target, each)
        why = tuple(f"{each.what}: {each.why}" for each in page.undecided[:_MAX_NAMED])
        outcome = CleanupOutcome(failed=len(page.undecided), reasons=why)
        if self._dry:
            named = tuple(name_object(item) for item in page.goes[:_MAX_NAMED])
            return outcome + CleanupOutcome(gone=len(page.goes), named=named)
        for start in range(0, len(page.goes), _AT_ONCE):
            some = page.goes[start : start + _AT_ONCE]
            answers = await asyncio.gather(
                *(self._remove(page.target, item) for item in some), return_exceptions=True
            )
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
                outcome += answer
        return outcome

    async def _remove(self, target: CleanupTarget, item: JsonObject) -> CleanupOutcome:
        name = name_object(item)
        namespace = item["metadata"].get("namespace") or ""
        try:
            if not await self._delete(target, item):
                return CleanupOutcome()
        except UnreachableError:
            raise
        except ApiError as error:
            self._count("errors", target, namespace)
            message = f"failed to {self._words[0]} the target resource {name}: {error}"
            self._emit_event(EventReason.ERROR, events.EventAction.NONE, message, item)
            return CleanupOutcome(failed=1, reasons=(f"{name}: {error}",))
        self._count("deletedobjects", target, namespace)
        message = f"successfully {self._words[1]} the target resource {name}"
        self._emit_event(EventReason.APPLIED, events.EventAction.CLEANED_UP, message, item)
        log.info("object deleted", extra={"policy": self._policy.name, "object": name})
        return CleanupOutcome(gone=1, named=(name,))

    async def _delete(self, target: CleanupTarget, item: JsonObject) -> bool:
        """Whether it was deleted; an object that has changed since is evaluated again."""
        for _ in range(_ATTEMPTS):
            metadata = item["metadata"]
            name, namespace = metadata["name"], metadata.get("namespace") or ""
            try:
                return await self._writes.delete(
                    target.resource,
                    name,
                    namespace,
                    own=self._sweep.program.policy.namespace,
                    propagation=self._sweep.program.propagation,
                    preconditions={
                        "uid": metadata["uid"],
                        "resourceVersion": metadata["resourceVersion"],
                    },
                )
            except ConflictError:
                fresh = await self._client.find(target.resource, name, namespace)
            if fresh is None or not await self._still_goes(target, item, fresh):
                return False
            item = fresh
        raise ConflictError("it changes continuously", status=409)

    async def _still_goes(self, target: CleanupTarget, item: JsonObject, fresh: JsonObject) -> bool:
        metadata = fresh["metadata"]
        if metadata["uid"] != item["metadata"]["uid"] or metadata.get("deletionTimestamp"):
            return False
        return await self._sweep.evaluate_again(target, fresh)

    def _log_failure(self, target: CleanupTarget, undecided: Undecided) -> None:
        self._count("errors", target, target.namespace)
        facts = {"policy": self._policy.name, "object": undecided.what}
        log.warning("cleanup not decided", extra={**facts, "why": undecided.why[:200]})
        if undecided.forbidden:
            message = f"failed to list {undecided.what}: {undecided.why}"
            self._emit_event(EventReason.ERROR, events.EventAction.NONE, message)

    def _count(self, what: str, target: CleanupTarget, namespace: str) -> None:
        """In the metrics: deleted objects, or what could not be listed or deleted."""
        policy, resource = self._sweep.program.policy, target.resource
        open_counter(f"kyverno_{self._controller}_controller_{what}").labels(
            policy.kind,
            policy.namespace,
            policy.name,
            resource.plural if self._controller == "deleting" else resource.kind,
            namespace,
            self._sweep.program.propagation,
        ).inc()

    def _emit_event(
        self,
        reason: EventReason,
        action: events.EventAction,
        message: str,
        item: JsonObject | None = None,
    ) -> None:
        related = refer_to(item) if item is not None else None
        self._emit(Event(reason, action, message, self._policy, related, EventSource.CLEANUP))


def refer_to(item: JsonObject) -> ObjectReference:
    """An object, for an event."""
    metadata = item["metadata"]
    return ObjectReference(
        str(item.get("apiVersion") or ""),
        str(item.get("kind") or ""),
        metadata["name"],
        metadata.get("namespace") or "",
        metadata.get("uid") or "",
    )
