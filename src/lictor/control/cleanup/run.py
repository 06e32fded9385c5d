"""One run of a policy that deletes: claimed in its status, done, and put on record there."""

from collections.abc import Callable, Iterator
from datetime import datetime

from lictor.cluster.cleanup_policies import read_cleanup
from lictor.cluster.resource import Resource
from lictor.control.cleanup.removal import Outcome, Remover, Tell, refer_to
from lictor.control.cleanup.status import EXECUTING, Statement, build_status_patch, read_status
from lictor.control.cleanup.sweep import Sweep, SweepWorld
from lictor.errors import ConflictError
from lictor.raw import JsonObject
from lictor.report import events
from lictor.report.events import Event, Reason, Source

DRY_RUN = "lictor.io/dry-run"
_ATTEMPTS = 5


def is_dry(document: JsonObject) -> bool:
    """Does the policy only say what would go?"""
    annotations = document["metadata"].get("annotations") or {}
    return str(annotations.get(DRY_RUN, "")).lower() == "true"


class Run:
    """A run that is due, or one that someone began and could not end."""

    def __init__(
        self,
        kind: Resource,
        document: JsonObject,
        world: SweepWorld,
        *,
        tell: Tell,
        now: Callable[[], datetime],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kind = kind
        self._document = document
        self._world = world
        self._tell = tell
        self._now = now
        self._is_wanted = is_wanted
        self._dry = is_dry(document)

    async def execute(self) -> Outcome | None:
        """Do it; None where the policy was changed or taken away meanwhile, and the rest left.

        ConflictError where someone else was faster; ApiError where it must be begun again.
        """
        sweep = await Sweep.prepare(read_cleanup(self._document), self._world)
        await self._claim()
        policy = refer_to(self._document)
        remover = Remover(sweep, self._world, policy, self._tell, dry=self._dry)
        outcome = Outcome()
        async for page in sweep.pages():
            if not self._is_wanted():
                return None
            outcome += await remover.handle(page)
        statement = self._sum_up(outcome)
        await self._record(statement)
        if self._dry:
            none = events.Outcome.NONE
            told = Event(Reason.SKIPPED, none, statement.message, policy, source=Source.CLEANUP)
            self._tell(told)
        return outcome

    async def _claim(self) -> None:
        """Of two leaders only one gets past this: the other's document is out of date by then.

        A leader that dies behind this leaves a mark, and whoever leads next begins the run again.
        """
        begun = Statement(EXECUTING, holds=True, reason="Started", message="a run is under way")
        self._document = await self._write(build_status_patch(self._document, [begun], self._now()))

    async def _record(self, statement: Statement) -> None:
        """Write down that the run is over, whatever else was written into the status meanwhile."""
        for _ in range(_ATTEMPTS):
            now = self._now()
            patch = build_status_patch(self._document, [statement], now, executed=now)
            try:
                self._document = await self._write(patch)
            except ConflictError:
                fresh = await self._reread()
                if fresh is None or not read_status(fresh).is_executing:
                    # Gone; or someone took over meanwhile, and has ended it already.
                    return
                self._document = fresh
            else:
                return
        raise ConflictError("the status changes all the time", status=409)

    async def _reread(self) -> JsonObject | None:
        metadata = self._document["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace") or ""
        fresh = await self._world.client.find(self._kind, name, namespace)
        same = fresh is not None and fresh["metadata"]["uid"] == metadata["uid"]
        return fresh if same else None

    async def _write(self, patch: JsonObject) -> JsonObject:
        metadata = self._document["metadata"]
        return await self._world.client.patch(
            self._kind,
            metadata["name"],
            patch,
            namespace=metadata.get("namespace") or "",
            subresource="status",
        )

    def _sum_up(self, outcome: Outcome) -> Statement:
        verb = "dry run: would delete" if self._dry else "deleted"
        parts = [_enumerate(f"{verb} {_count(outcome.gone)}", outcome.named, outcome.gone)]
        if outcome.failed:
            failed = f"{_count(outcome.failed)} not decided or not deleted"
            parts.append(_enumerate(failed, outcome.reasons, outcome.failed))
        reason = "Failed" if outcome.failed else "DryRun" if self._dry else "Succeeded"
        return Statement(EXECUTING, holds=False, reason=reason, message="; ".join(parts))


def _count(number: int) -> str:
    return "1 object" if number == 1 else f"{number} objects"


def _enumerate(head: str, named: tuple[str, ...], number: int) -> str:
    return f"{head}: {', '.join(_list(named, number))}" if named else head


def _list(named: tuple[str, ...], number: int) -> Iterator[str]:
    yield from named
    if number > len(named):
        yield f"and {number - len(named)} more"
