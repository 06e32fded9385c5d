"""Rules that change objects which are there already: worked off for each trigger."""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from lictor.cluster.resource import MUTATING_POLICY, NAMESPACED_MUTATING_POLICY
from lictor.cluster.store import CLASSIC_KINDS, PolicyStore, StoredPolicy
from lictor.cluster.update_requests import Update, UpdateType
from lictor.control.background.trigger import Triggers
from lictor.control.evaluation import judge
from lictor.control.policy_writes import PolicyWrites
from lictor.engine import Engine
from lictor.errors import ApiError, ConflictError, EvaluationError, NotFoundError
from lictor.model.program import Phase, Program
from lictor.model.request import Request
from lictor.model.result import Result, Status, TargetPart
from lictor.raw import JsonObject

log = logging.getLogger(__name__)

_TRIES = 4
_CEL_KINDS = (MUTATING_POLICY, NAMESPACED_MUTATING_POLICY)


class MutateExisting:
    """Judges a trigger by its rule, and puts the targets as the rule wants them."""

    def __init__(
        self,
        writes: PolicyWrites,
        store: PolicyStore,
        triggers: Triggers,
        *,
        tell: Callable[[StoredPolicy, Request, list[Result]], None],
    ) -> None:
        self._writes = writes
        self._store = store
        self._triggers = triggers
        self._tell = tell

    async def handle(self, update: Update, *, is_late: bool) -> None:
        """Do what an update asks for; raises with all that went wrong."""
        policy = self._find(update)
        if policy is None:
            return  # the policy is gone, and with it the reason
        request = await self._triggers.build_request(update, is_late=is_late)
        if request is None:
            return
        for attempt in range(_TRIES):
            results = await self._judge(policy, update, request)
            try:
                results = await self._put_all(results, policy.namespace)
            except ConflictError:
                # A target changed under our hands: judge it again as it is now.
                await asyncio.sleep(0.1 * (attempt + 1))
                continue
            self._tell(policy, request, results)
            if failures := _list_failures(results):
                raise EvaluationError("; ".join(failures))
            return
        raise EvaluationError("the targets change faster than they can be written")

    def _find(self, update: Update) -> StoredPolicy | None:
        kinds = CLASSIC_KINDS if update.type is UpdateType.MUTATE else _CEL_KINDS
        wanted = (p for p in self._store.policies if p.key == update.policy)
        return next((policy for policy in wanted if policy.resource in kinds), None)

    async def _judge(self, policy: StoredPolicy, update: Update, request: Request) -> list[Result]:
        programs = [_restrict(p, update.rules) for p in self._store.programs(policy)]
        return list((await judge(Engine(programs), request)).results)

    async def _put_all(self, results: list[Result], own: str) -> list[Result]:
        """Write what the rules want; what could not be written becomes an error."""
        return [
            result
            if result.target is None or result.status is not Status.PASS
            else await self._put_one(result, result.target, own)
            for result in results
        ]

    async def _put_one(self, result: Result, target: JsonObject, own: str) -> Result:
        try:
            await self._put(target, result.part, own)
        except ConflictError:
            raise
        except NotFoundError:
            return result  # gone meanwhile
        except ApiError as error:
            text = f"failed to update target {_name(target)}: {error}"
            return replace(result, status=Status.ERROR, message=text)
        return result

    async def _put(self, target: JsonObject, part: TargetPart | None, own: str) -> None:
        resource = self._triggers.locate(
            part.api_version if part is not None else str(target.get("apiVersion")),
            part.kind if part is not None else str(target.get("kind")),
            namespaced=bool(target["metadata"].get("namespace")),
        )
        subresource = part.subresource if part is not None else ""
        await self._writes.replace(resource, target, own=own, subresource=subresource)


def _name(target: JsonObject) -> str:
    metadata = target["metadata"]
    return f"{target.get('kind')} {metadata.get('namespace', '')}/{metadata.get('name')}"


def _restrict(program: Program, rules: tuple[str, ...]) -> Program:
    wanted = [r for r in program.rules if r.phase is Phase.MUTATE and r.name in rules]
    return replace(program, rules=tuple(wanted))


def _list_failures(results: list[Result]) -> list[str]:
    return [
        f"rule {result.rule}: {result.message}"
        for result in results
        if result.status in (Status.FAIL, Status.ERROR)
    ]
