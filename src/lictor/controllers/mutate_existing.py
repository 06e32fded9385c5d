"""Mutate rules with targets, and rules that apply to existing objects after a policy change."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable

from msgspec.structs import replace

from lictor.controllers.context import evaluate_in_thread
from lictor.controllers.generate.labels import GenerationUnit
from lictor.controllers.generate.reconcile import GenerationReconciler
from lictor.controllers.generate.rules import GenerateRule
from lictor.controllers.generate.watch import GenerationWatch
from lictor.controllers.policy_writes import PolicyWrites
from lictor.controllers.update_requests import TriggerReader
from lictor.core.engine import Engine
from lictor.core.errors import (
    ApiError,
    ConflictError,
    EvaluationError,
    NotFoundError,
    OutOfBoundsError,
)
from lictor.core.model.program import Phase, Program
from lictor.core.model.request import GroupVersionKind, Operation, Request
from lictor.core.model.result import Result, Status, TargetPart
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.kubernetes.update_requests import Update, UpdateRequests, UpdateTrigger, UpdateType
from lictor.policies.store import PolicyStore

_PAGE = 250


class ExistingTriggers:
    """Lists existing triggers of rules page by page, and queues them."""

    def __init__(
        self,
        client: Client,
        store: PolicyStore,
        generation: GenerationReconciler,
        watch: GenerationWatch,
        *,
        requests: UpdateRequests,
        enqueue: Callable[[GenerationUnit], None],
    ) -> None:
        self._client = client
        self._store = store
        self._generation = generation
        self._watch = watch
        self._requests = requests
        self._enqueue = enqueue

    async def generate(self, rule: GenerateRule, kinds: Iterable[Resource]) -> None:
        """Reconcile what a rule has generated; with generateExisting, all existing triggers."""
        await self._watch.review(rule)
        if not rule.existing:
            return
        for resource in kinds:
            if rule.is_kept_by(resource):
                async for item in self._list(resource, rule.policy.namespace):
                    if await self._generation.is_wanted(rule, item):
                        self._enqueue(rule.unit(UpdateTrigger.of(item)))

    def mutates(self, policy: StoredPolicy) -> bool:
        """Does a policy mutate existing objects when it is created or updated?"""
        return bool(_list_mutations(policy))

    async def mutate(self, policy: StoredPolicy, kinds: Iterable[Resource]) -> None:
        """Create an UpdateRequest for each existing trigger."""
        names = _list_mutations(policy)
        kind = UpdateType.MUTATE if policy.kind.has_named_rules else UpdateType.CEL_MUTATE
        for program in self._store.programs(policy):
            rules = [r for r in program.rules if r.phase is Phase.MUTATE and r.name in names]
            for resource in kinds:
                about = GroupVersionKind(resource.group, resource.version, resource.kind)
                chosen = {r.name for r in rules if r.select(about, "", Operation.CREATE)}
                if not chosen:
                    continue
                async for item in self._list(resource, policy.namespace):
                    updates = [
                        Update(kind, policy.key, (name,), UpdateTrigger.of(item))
                        for name in sorted(chosen)
                    ]
                    await self._requests.submit(updates)

    async def _list(self, resource: Resource, namespace: str) -> AsyncIterator[JsonObject]:
        try:
            async for page in self._client.list_pages(
                resource, namespace if resource.namespaced else "", page=_PAGE
            ):
                for item in page.get("items") or ():
                    yield item
        except NotFoundError:
            return


def _list_mutations(policy: StoredPolicy) -> frozenset[str]:
    """The rules that mutate existing objects when their policy is created or updated."""
    if policy.record is None:
        return frozenset()
    return policy.kind.family.list_existing_mutations(policy.record)


log = logging.getLogger(__name__)

_TRIES = 4


class MutateExisting:
    """Evaluates the rule for a trigger and updates the targets."""

    def __init__(
        self,
        writes: PolicyWrites,
        store: PolicyStore,
        triggers: TriggerReader,
        *,
        emit: Callable[[StoredPolicy, Request, list[Result]], None],
    ) -> None:
        self._writes = writes
        self._store = store
        self._triggers = triggers
        self._emit = emit

    async def handle(self, update: Update, *, is_late: bool) -> None:
        """Process an UpdateRequest; raises with all failures."""
        policy = self._find(update)
        if policy is None:
            return  # the policy was deleted
        request = await self._triggers.build_request(update, is_late=is_late)
        if request is None:
            return
        for attempt in range(_TRIES):
            results = await self._evaluate(policy, update, request)
            try:
                results = await self._put_all(results, policy.namespace)
            except ConflictError:
                # A target was changed meanwhile: evaluate it again as it is now.
                await asyncio.sleep(0.1 * (attempt + 1))
                continue
            self._emit(policy, request, results)
            if failures := _list_failures(results):
                raise EvaluationError("; ".join(failures))
            return
        raise EvaluationError("the targets change faster than they can be written")

    def _find(self, update: Update) -> StoredPolicy | None:
        is_named = update.type is UpdateType.MUTATE
        wanted = (
            policy
            for policy in self._store.policies
            if policy.key == update.policy and policy.kind.mutates_existing
        )
        return next((each for each in wanted if each.kind.has_named_rules == is_named), None)

    async def _evaluate(
        self, policy: StoredPolicy, update: Update, request: Request
    ) -> list[Result]:
        programs = [_restrict(p, update.rules) for p in self._store.programs(policy)]
        return list((await evaluate_in_thread(Engine(programs), request)).results)

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
            # A rule that selects all Namespaces skips lictor's own; one that names it fails.
            is_skipped = isinstance(error, OutOfBoundsError) and result.is_selected
            status = Status.SKIP if is_skipped else Status.ERROR
            text = f"failed to update target {_name(target)}: {error}"
            return replace(result, status=status, message=text)
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
