"""Coordinates generate rules and mutate-existing rules: plans, queues and existing objects."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from lictor.cluster.resource import Resource
from lictor.cluster.store import PolicyStore
from lictor.cluster.update_requests import UpdateRequests
from lictor.control.background.mutate_existing import ExistingTriggers
from lictor.control.background.update_requests import TriggerReader, UpdateRequestQueue
from lictor.control.generate.downstream import Downstream
from lictor.control.generate.queue import GenerationQueue
from lictor.control.generate.rules import GenerateRule, GenerateRules
from lictor.control.generate.watch import GenerationWatch, TriggerWatch
from lictor.control.loop import ReconcileLoop
from lictor.errors import LookupFailedError
from lictor.lang.kind_selector import parse_kind_selector
from lictor.model.policy import ForEachGenerate, Generate, Policy

log = logging.getLogger(__name__)

# The UID of a policy, what it does, and its rule.
_Key: TypeAlias = tuple[str, str, str]

RESYNC = 300.0
_UNTIL_SERVED = 3.0


@dataclass(slots=True)
class BackgroundCoordinator:
    """Runs everything that changes other objects than the one of a request; one replica leads.

    Whatever finds that a rule must be applied to a trigger puts it into `queue`; UpdateRequests of
    admissions come through `updates`.
    """

    store: PolicyStore
    triggers: TriggerReader
    downstream: Downstream
    rules: GenerateRules
    queue: GenerationQueue
    watch: GenerationWatch
    trigger_watch: TriggerWatch
    existing: ExistingTriggers
    updates: UpdateRequestQueue
    # Sends update requests of its own.
    requests: UpdateRequests
    list_kinds: Callable[[], Awaitable[Iterable[Resource]]]
    resync: float = RESYNC
    name: str = "background"
    leader_only: bool = True
    # The state of each policy for which existing objects have been, or are being, processed.
    _marks: dict[_Key, str] = field(default_factory=dict)
    _tasks: dict[_Key, asyncio.Task[None]] = field(default_factory=dict)
    _resynced_at: float = float("-inf")
    _heal_at: float = float("inf")
    _planning: ReconcileLoop = field(init=False)
    _updating: ReconcileLoop = field(init=False)

    def __post_init__(self) -> None:
        self._planning = ReconcileLoop("background-plan", self._plan, interval=self.resync)
        self._updating = ReconcileLoop(
            "update-requests", self.updates.reconcile, interval=30.0, caches=(self.updates.cache,)
        )
        self.store.listen(self._planning.wake)

    async def run(self) -> None:
        """Until cancelled, or another replica leads."""
        self._marks.clear()
        self._resynced_at = float("-inf")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.requests.run())
                await self.store.wait()
                for part in (self.queue, self.updates, self._planning, self._updating):
                    group.create_task(part.run())
                group.create_task(self.downstream.poll())
        finally:
            await self._stop()

    async def _stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        for part in (self.watch, self.trigger_watch, self.downstream):
            await part.stop()

    async def _plan(self) -> None:
        rules = self.rules.rules
        kinds = list(await self.list_kinds())
        is_resync = time.monotonic() - self._resynced_at >= self.resync * 0.9
        if is_resync:
            # Also what was made by policies that are gone, or by such as name no kinds.
            await self.downstream.discover(kinds)
        await self._follow_targets(rules)
        await self.trigger_watch.follow(rules, kinds)
        self._process_existing(rules, kinds)
        await self.watch.sweep()
        await self.watch.release(target for rule in rules for target in self._name_targets(rule))
        if is_resync:
            self._resynced_at = time.monotonic()
        if is_resync or time.monotonic() >= self._heal_at:
            self._heal_at = float("inf")
            if not await self.trigger_watch.heal(rules):
                self._heal_at = time.monotonic() + _UNTIL_SERVED
                self._planning.wake_later(_UNTIL_SERVED)

    def _process_existing(self, rules: Iterable[GenerateRule], kinds: list[Resource]) -> None:
        met = set()
        for rule in rules:
            key = (rule.policy.uid, "generate", rule.name)
            met.add(key)
            self._begin(key, rule.mark, partial(self.existing.generate, rule, kinds))
        for policy in filter(self.existing.mutates, self.store.policies):
            key = (policy.uid, "mutate", "")
            met.add(key)
            mark = self.store.mark(policy)
            self._begin(key, mark, partial(self.existing.mutate, policy, kinds))
        for key in self._marks.keys() - met:
            del self._marks[key]
            if key in self._tasks:
                self._tasks.pop(key).cancel()

    async def _follow_targets(self, rules: Iterable[GenerateRule]) -> None:
        for resource in {target for rule in rules for target in self._name_targets(rule)}:
            try:
                await self.downstream.follow(resource)
            except LookupFailedError as error:
                # Each unit that needs it will say so; the other rules do not wait for it.
                log.info("targets not watched", extra={"why": str(error)[:200]})

    def _name_targets(self, rule: GenerateRule) -> Iterator[Resource]:
        """The kinds that a classic rule names plainly; others are known once it has made them."""
        record = rule.policy.record
        if not isinstance(record, Policy):
            return
        for own in record.spec.rules:
            if own.name != rule.name or own.generate is None:
                continue
            bodies: list[Generate | ForEachGenerate] = [own.generate, *own.generate.foreach]
            for body in bodies:
                texts = [f"{body.api_version}/{body.kind}"] if body.kind else []
                for text in (*texts, *body.clone_list.kinds):
                    if "{{" not in text:
                        yield self._locate(text)

    def _locate(self, text: str) -> Resource:
        selector = parse_kind_selector(text)
        group = "" if selector.group == "*" else selector.group
        version = f"{group}/{selector.version}".strip("/")
        return self.triggers.locate(version, selector.kind, namespaced=True)

    def _begin(self, key: _Key, mark: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Once for each state of a policy, let it meet what is there; beside everything else."""
        if self._marks.get(key) == mark:
            return
        self._marks[key] = mark
        # What came between the policy and its webhook was told to nobody.
        self._heal_at = time.monotonic() + _UNTIL_SERVED
        self._planning.wake_later(_UNTIL_SERVED)
        before = self._tasks.pop(key, None)
        if before is not None:
            before.cancel()
        self._tasks[key] = asyncio.create_task(self._finish(key, work()))

    async def _finish(self, key: _Key, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except LookupFailedError as error:
            log.warning("existing objects not read", extra={"why": str(error)[:200]})
            self._marks.pop(key, None)
            self._planning.wake_later(5.0)
