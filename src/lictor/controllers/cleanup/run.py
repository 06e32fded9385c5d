"""One scheduled run of a policy that deletes objects, and the status that records it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from lictor.controllers.cleanup.policies import read_cleanup
from lictor.controllers.cleanup.removal import CleanupOutcome, Remover, refer_to
from lictor.controllers.cleanup.sweep import Sweep, SweepContext
from lictor.controllers.context import EmitEvent
from lictor.core.errors import ConflictError
from lictor.core.raw import Json, JsonObject
from lictor.core.report import events
from lictor.core.report.events import Event, EventReason, EventSource
from lictor.kubernetes.resource import Resource

READY = "Ready"
# True from just before the first deletion of a run until after the last one.
EXECUTING = "Executing"
_MAX_MESSAGE = 4000


class StatusCondition(msgspec.Struct, frozen=True):
    """One condition of the status."""

    type: str
    holds: bool
    reason: str
    message: str


class CleanupStatus(msgspec.Struct, frozen=True):
    """The status of a document, of either kind."""

    conditions: tuple[JsonObject, ...] = ()
    last_execution: datetime | None = None

    def find(self, name: str) -> JsonObject | None:
        """The condition of this type."""
        return next((each for each in self.conditions if each.get("type") == name), None)

    @property
    def is_executing(self) -> bool:
        """Was a run started and not finished?"""
        return (self.find(EXECUTING) or {}).get("status") == "True"

    def contains(self, statement: StatusCondition, generation: int) -> bool:
        """Does the status already contain this condition?"""
        found = self.find(statement.type)
        return found is not None and all(
            found.get(name) == value for name, value in _describe(statement, generation).items()
        )


def read_status(document: JsonObject) -> CleanupStatus:
    """The status as it is now; what cannot be read counts as not there."""
    status = _object(document, "status")
    holder = _object(status, "conditionStatus") if _is_cel(document) else status
    conditions = holder.get("conditions")
    return CleanupStatus(
        tuple(c for c in conditions if isinstance(c, dict)) if isinstance(conditions, list) else (),
        read_time(status.get("lastExecutionTime")),
    )


def build_status_patch(
    document: JsonObject,
    statements: Iterable[StatusCondition],
    now: datetime,
    *,
    executed: datetime | None = None,
) -> JsonObject:
    """A merge patch that fails if the document has changed since."""
    metadata = document["metadata"]
    generation = int(metadata.get("generation") or 0)
    conditions = list(read_status(document).conditions)
    for statement in statements:
        _put(conditions, statement, generation, now)
    status: JsonObject = {"conditions": conditions}
    if _is_cel(document):
        status = {"conditionStatus": {"conditions": conditions, **_sum_up(conditions)}}
    if executed is not None:
        status["lastExecutionTime"] = format_time(executed)
    return {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}


def _put(
    conditions: list[JsonObject], statement: StatusCondition, generation: int, now: datetime
) -> None:
    described = _describe(statement, generation)
    for index, each in enumerate(conditions):
        if each.get("type") == statement.type:
            same = each.get("status") == described["status"]
            changed = each.get("lastTransitionTime") if same else format_time(now)
            conditions[index] = {**each, **described, "lastTransitionTime": changed}
            return
    conditions.append({**described, "lastTransitionTime": format_time(now)})


def _describe(statement: StatusCondition, generation: int) -> JsonObject:
    return {
        "type": statement.type,
        "status": "True" if statement.holds else "False",
        "reason": statement.reason,
        "message": cut(statement.message),
        "observedGeneration": generation,
    }


def _sum_up(conditions: Sequence[JsonObject]) -> JsonObject:
    ready = next((each for each in conditions if each.get("type") == READY), {})
    return {"ready": ready.get("status") == "True", "message": str(ready.get("message") or "")}


def cut(text: str) -> str:
    """A text short enough for a condition."""
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 3]}..."


def read_time(value: Json) -> datetime | None:
    """A time as the API server writes it; None where there is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """A time as the API server writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_cel(document: JsonObject) -> bool:
    return str(document.get("apiVersion")).startswith("policies.kyverno.io/")


def _object(holder: JsonObject, name: str) -> JsonObject:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


DRY_RUN = "lictor.io/dry-run"
_ATTEMPTS = 5


def is_dry(document: JsonObject) -> bool:
    """Does the policy only report what it would delete?"""
    annotations = document["metadata"].get("annotations") or {}
    return str(annotations.get(DRY_RUN, "")).lower() == "true"


class CleanupRun:
    """A run that is due, or one that was started and not finished."""

    def __init__(
        self,
        kind: Resource,
        document: JsonObject,
        context: SweepContext,
        *,
        emit: EmitEvent,
        now: Callable[[], datetime],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kind = kind
        self._document = document
        self._context = context
        self._emit = emit
        self._now = now
        self._is_wanted = is_wanted
        self._dry = is_dry(document)

    async def execute(self) -> CleanupOutcome | None:
        """Run; None if the policy was changed or deleted meanwhile, and the run stopped.

        Raises ConflictError if another leader was faster; ApiError if it must be restarted.
        """
        sweep = await Sweep.prepare(read_cleanup(self._document), self._context)
        await self._claim()
        policy = refer_to(self._document)
        remover = Remover(sweep, self._context, policy, self._emit, dry=self._dry)
        outcome = CleanupOutcome()
        async for page in sweep.pages():
            if not self._is_wanted():
                return None
            outcome += await remover.handle(page)
        statement = self._sum_up(outcome)
        await self._record(statement)
        if self._dry:
            none = events.EventAction.NONE
            told = Event(
                EventReason.SKIPPED, none, statement.message, policy, source=EventSource.CLEANUP
            )
            self._emit(told)
        return outcome

    async def _claim(self) -> None:
        """Of two leaders only one succeeds: the other's document is out of date by then.

        A leader that dies afterwards leaves the condition, and the next leader restarts the run.
        """
        begun = StatusCondition(
            EXECUTING, holds=True, reason="Started", message="a run is under way"
        )
        self._document = await self._write(build_status_patch(self._document, [begun], self._now()))

    async def _record(self, statement: StatusCondition) -> None:
        """Record the end of the run, even if the status was changed meanwhile."""
        for _ in range(_ATTEMPTS):
            now = self._now()
            patch = build_status_patch(self._document, [statement], now, executed=now)
            try:
                self._document = await self._write(patch)
            except ConflictError:
                fresh = await self._reread()
                if fresh is None or not read_status(fresh).is_executing:
                    # Deleted; or another leader has finished the run already.
                    return
                self._document = fresh
            else:
                return
        raise ConflictError("the status changes continuously", status=409)

    async def _reread(self) -> JsonObject | None:
        metadata = self._document["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace") or ""
        fresh = await self._context.client.find(self._kind, name, namespace)
        same = fresh is not None and fresh["metadata"]["uid"] == metadata["uid"]
        return fresh if same else None

    async def _write(self, patch: JsonObject) -> JsonObject:
        metadata = self._document["metadata"]
        return await self._context.client.patch(
            self._kind,
            metadata["name"],
            patch,
            namespace=metadata.get("namespace") or "",
            subresource="status",
        )

    def _sum_up(self, outcome: CleanupOutcome) -> StatusCondition:
        verb = "dry run: would delete" if self._dry else "deleted"
        parts = [_enumerate(f"{verb} {_count(outcome.gone)}", outcome.named, outcome.gone)]
        if outcome.failed:
            failed = f"{_count(outcome.failed)} not decided or not deleted"
            parts.append(_enumerate(failed, outcome.reasons, outcome.failed))
        reason = "Failed" if outcome.failed else "DryRun" if self._dry else "Succeeded"
        return StatusCondition(EXECUTING, holds=False, reason=reason, message="; ".join(parts))


def _count(number: int) -> str:
    return "1 object" if number == 1 else f"{number} objects"


def _enumerate(head: str, named: tuple[str, ...], number: int) -> str:
    return f"{head}: {', '.join(_list(named, number))}" if named else head


def _list(named: tuple[str, ...], number: int) -> Iterator[str]:
    yield from named
    if number > len(named):
        yield f"and {number - len(named)} more"
