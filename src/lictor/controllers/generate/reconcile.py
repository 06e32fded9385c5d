"""Generated objects are created, kept in sync and deleted, one rule and trigger at a time."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from msgspec.structs import replace

from lictor.controllers.context import evaluate_in_thread
from lictor.controllers.generate.downstream import Downstream, ObjectLocation, locate_object
from lictor.controllers.generate.labels import (
    GenerationUnit,
    goes_with_policy,
    mark_made,
    read_aim,
    read_unit,
)
from lictor.controllers.generate.objects import GeneratedObject, GeneratedObjectWriter, WriteOutcome
from lictor.controllers.generate.queue import Rewrites
from lictor.controllers.generate.rules import GenerateRule, GenerateRules
from lictor.controllers.update_requests import TriggerReader
from lictor.core.errors import ApiError, EvaluationError, LictorError
from lictor.core.model.request import Operation, Request
from lictor.core.model.result import Result, SourceRef, Status
from lictor.core.raw import JsonObject
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.update_requests import Update, UpdateTrigger, UpdateType

log = logging.getLogger(__name__)


class GenerationOutcome(msgspec.Struct, frozen=True):
    """The outcome of one rule and one trigger."""

    rule: GenerateRule
    request: Request
    results: tuple[Result, ...] = ()
    created: tuple[JsonObject, ...] = ()
    failure: str = ""


class _KeyedLocks:
    """One at a time for each key."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, ...], asyncio.Lock] = {}
        self._takers: Counter[tuple[str, ...]] = Counter()

    @asynccontextmanager
    async def take(self, key: tuple[str, ...]) -> AsyncIterator[None]:
        self._takers[key] += 1
        try:
            async with self._locks.setdefault(key, asyncio.Lock()):
                yield
        finally:
            self._takers[key] -= 1
            if not self._takers[key]:
                del self._takers[key], self._locks[key]


class GenerationReconciler:
    """Brings the generated objects of a unit to the desired state."""

    def __init__(
        self,
        objects: GeneratedObjectWriter,
        downstream: Downstream,
        triggers: TriggerReader,
        *,
        policies: GenerateRules,
        rewrites: Rewrites,
        emit: Callable[["GenerationOutcome"], None],
    ) -> None:
        self._downstream = downstream
        self._triggers = triggers
        self._policies = policies
        self._emit = emit
        self._locks = _KeyedLocks()
        self._rewrites = rewrites
        self.objects = objects

    async def handle(self, update: Update, *, is_late: bool) -> None:
        """Process an UpdateRequest; raises on failure."""
        namespace, _, name = update.policy.rpartition("/")
        rules = ("",) if update.type is UpdateType.CEL_GENERATE else update.rules
        request = None
        if not update.delete_downstream:
            request = await self._triggers.build_request(update, is_late=is_late)
        failures = []
        for rule in rules:
            unit = GenerationUnit(name, namespace, rule, update.trigger)
            try:
                await self.reconcile(unit, request)
            except LictorError as error:
                failures.append(f"rule {rule} failed: {error}" if rule else str(error))
        if failures:
            raise EvaluationError("; ".join(failures))

    async def reconcile(self, unit: GenerationUnit, request: Request | None = None) -> None:
        """Bring a unit to the desired state; without a request, by the stored trigger."""
        rule = self._policies.find(unit)
        if rule is None:
            await self.drop_ruleless(unit)
            return
        if request is None and not (rule.synchronize or rule.existing):
            return  # the rule no longer synchronizes
        async with self._locks.take(unit.key):
            seen = request or await self._ask(rule, unit)
            if seen is None:
                await self._drop_orphans(rule, unit)
            elif not _is_leaving(seen):
                # What was generated is deleted once the trigger is gone.
                await self._put_right(rule, unit, seen, is_asked=request is not None)

    async def _ask(self, rule: GenerateRule, unit: GenerationUnit) -> Request | None:
        """The request that would create the trigger as it is now."""
        found = await self._triggers.read(unit.trigger)
        if found is None:
            return None
        labels = await self._triggers.find_labels(unit.trigger)
        request = Request.of(found, namespace_labels=labels)
        # A rule for UPDATE only does not match CREATE.
        created = rule.is_triggered_by(self._locate(found), (Operation.CREATE,))
        return request if created else replace(request, operation=Operation.UPDATE)

    async def _put_right(
        self, rule: GenerateRule, unit: GenerationUnit, request: Request, *, is_asked: bool
    ) -> None:
        results: tuple[Result, ...] = ()
        created: list[JsonObject] = []
        try:
            results = await self._evaluate(rule, request)
            _raise_errors(results)
            await self._put_all(rule, unit, results, created)
        except LictorError as error:
            failed = tuple(_spoil(result, str(error)) for result in results)
            self._emit(GenerationOutcome(rule, request, failed, tuple(created), str(error)))
            raise
        if is_asked or created:
            # Unchanged objects are not reported.
            self._emit(GenerationOutcome(rule, request, results, tuple(created)))

    async def _evaluate(self, rule: GenerateRule, request: Request) -> tuple[Result, ...]:
        if request.operation is Operation.DELETE and request.object is None:
            request = replace(request, object=request.old_object)
        return (await evaluate_in_thread(rule.engine, request)).results

    async def _put_all(
        self,
        rule: GenerateRule,
        unit: GenerationUnit,
        results: tuple[Result, ...],
        created: list[JsonObject],
    ) -> None:
        wanted = [made for result in results for made in self._shape(rule, unit, result)]
        for resource in {made.location.resource for made in wanted}:
            await self._downstream.follow(resource)
        failures = []
        for made in wanted:
            try:
                await self._put(rule, unit, made, created)
            except ApiError as error:
                # One object that fails does not keep the others from being generated.
                failures.append(f"{made.body.get('kind')} {made.location.name}: {error}")
        if rule.synchronize:
            keep = {made.location for made in wanted}
            for location, item in self._downstream.of(unit).items():
                if location not in keep:
                    await self._take_away(rule, location, item)
        if failures:
            raise EvaluationError("; ".join(failures))

    async def _take_away(
        self, rule: GenerateRule, location: ObjectLocation, item: JsonObject
    ) -> None:
        """Delete an object; one with other target fields than the rule has now is released."""
        if read_aim(item) in ("", rule.aim):
            await self.objects.delete(location, item, own=rule.policy.namespace)
        else:
            await self.objects.release(location, item, own=rule.policy.namespace)

    async def _put(
        self,
        rule: GenerateRule,
        unit: GenerationUnit,
        made: GeneratedObject,
        created: list[JsonObject],
    ) -> None:
        if made.source is not None and rule.synchronize:
            await self.objects.mark_source(made)
        try:
            wrote = await self.objects.put(
                made, synchronize=rule.synchronize, server_side=rule.server_side
            )
        except ApiError as error:
            if error.status == 403 and await self._triggers.is_ending(made.location.namespace):
                return  # nothing can be made there, and nothing needs to
            raise
        if wrote is WriteOutcome.CREATED:
            created.append(made.body)
        elif wrote is WriteOutcome.CHANGED:
            self._rewrites.note(unit)

    def _shape(
        self, rule: GenerateRule, unit: GenerationUnit, result: Result
    ) -> list[GeneratedObject]:
        goes = rule.synchronize and not rule.orphan
        shaped = []
        for body, source in zip(result.generated, result.sources, strict=True):
            made = mark_made(
                body, unit, source, goes_with_policy=goes and source is None, aim=rule.aim
            )
            resource = self._locate(made)
            metadata = made["metadata"]
            if resource.namespaced and not metadata.get("namespace") and not unit.namespace:
                metadata["namespace"] = "default"
            if not resource.namespaced:
                metadata.pop("namespace", None)
            location = ObjectLocation(
                resource, str(metadata.get("namespace") or ""), str(metadata["name"])
            )
            origin = self._find_origin(source)
            shaped.append(GeneratedObject(location, made, source, rule.policy.namespace, origin))
        return shaped

    def _find_origin(self, source: SourceRef | None) -> Resource | None:
        if source is None:
            return None
        return self._triggers.locate(
            source.api_version, source.kind, namespaced=bool(source.namespace)
        )

    def _locate(self, body: JsonObject) -> Resource:
        return self._triggers.locate(
            str(body.get("apiVersion") or ""),
            str(body.get("kind") or ""),
            namespaced=bool(body["metadata"].get("namespace")),
        )

    async def _drop_orphans(self, rule: GenerateRule, unit: GenerationUnit) -> None:
        """Delete what was generated for a deleted trigger, unless the rule matches DELETE."""
        group, _, version = unit.trigger.api_version.rpartition("/")
        kind = Resource(group, version, "", unit.trigger.kind)
        if rule.synchronize and not rule.is_triggered_by(kind, (Operation.DELETE,)):
            for location, item in self._downstream.of(unit).items():
                await self.objects.delete(location, item, own=unit.namespace)

    async def drop_ruleless(self, unit: GenerationUnit) -> None:
        """Delete what a deleted rule generated, unless it is to be kept."""
        made = [
            (p, item) for p, item in self._downstream.of(unit).items() if goes_with_policy(item)
        ]
        if made and await self._policies.is_gone(unit):
            for location, item in made:
                await self.objects.delete(location, item, own=unit.namespace)

    async def makes(self, rule: GenerateRule, item: JsonObject) -> bool | None:
        """Whether a rule would generate anything for an object; None if evaluation fails."""
        if await self._is_product(rule, item):
            return False
        labels = await self._triggers.find_labels(UpdateTrigger.of(item))
        verdict = await evaluate_in_thread(rule.engine, Request.of(item, namespace_labels=labels))
        if any(result.status is Status.ERROR for result in verdict.results):
            return None
        return any(result.generated for result in verdict.results)

    async def is_wanted(self, rule: GenerateRule, item: JsonObject) -> bool:
        """Does an existing object trigger a rule?"""
        if await self._is_product(rule, item):
            return False
        trigger = UpdateTrigger.of(item)
        labels = await self._triggers.find_labels(trigger)
        verdict = await evaluate_in_thread(rule.asking, Request.of(item, namespace_labels=labels))
        return any(result.status in (Status.PASS, Status.ERROR) for result in verdict.results)

    async def _is_product(self, rule: GenerateRule, item: JsonObject) -> bool:
        """Did the rule itself generate an object? Such an object never triggers the rule.

        Labels alone are not trusted, because any user can write them.
        """
        unit = read_unit(item)
        if unit is None or (unit.policy, unit.namespace, unit.rule) != rule.key:
            return False
        request = await self._ask(rule, unit)
        if request is None:
            return False
        made = [
            each.location
            for result in await self._evaluate(rule, request)
            for each in self._shape(rule, unit, result)
        ]
        return locate_object(self._locate(item), item) in made


def _raise_errors(results: tuple[Result, ...]) -> None:
    failed = [r.message for r in results if r.status in (Status.ERROR, Status.FAIL)]
    if failed:
        raise EvaluationError("; ".join(failed))


def _spoil(result: Result, why: str) -> Result:
    """The result of a rule whose objects could not be written."""
    if result.status is not Status.PASS:
        return result
    return replace(result, status=Status.ERROR, message=why)


def _is_leaving(request: Request) -> bool:
    """Is the trigger being deleted, and otherwise unchanged? Finalizers may keep it."""
    found = request.object or {}
    metadata = found.get("metadata") or {}
    if request.operation is Operation.DELETE or "deletionTimestamp" not in metadata:
        return False
    before = request.old_object
    return before is None or _read_wish(before) == _read_wish(found)


def _read_wish(item: JsonObject) -> JsonObject:
    """The object without metadata and status."""
    told = ("apiVersion", "kind", "metadata", "status")
    return {key: value for key, value in item.items() if key not in told}
