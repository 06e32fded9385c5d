"""What happens to other objects than the one that was asked for: generate and mutate existing."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import TypeAlias

import msgspec

from lictor.cluster.cache import Cache
from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.cluster.store import PolicyStore
from lictor.cluster.update_requests import UpdateRequests
from lictor.control.background.mutate_existing import ExistingTriggers
from lictor.control.background.trigger import TriggerReader
from lictor.control.background.update_requests import UpdateRequestQueue
from lictor.control.generate.downstream import Downstream
from lictor.control.generate.queue import UnitQueue
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


class BackgroundTools(msgspec.Struct, frozen=True):
    """What the background works with."""

    client: Client
    store: PolicyStore
    triggers: TriggerReader
    downstream: Downstream
    policies: GenerateRules
    queue: UnitQueue
    watch: GenerationWatch
    trigger_watch: TriggerWatch
    existing: ExistingTriggers
    updates: UpdateRequestQueue
    # Sends update requests; `waiting` are those that lie in the cluster.
    requests: UpdateRequests
    waiting: Cache
    list_kinds: Callable[[], Awaitable[Iterable[Resource]]]
    resync: float = RESYNC


class BackgroundCoordinator:
    """Follows the policies that make or change other objects; one replica leads."""

    name = "background"
    leader_only = True

    def __init__(self, tools: BackgroundTools) -> None:
        self._tools = tools
        self._marks: dict[_Key, str] = {}
        self._meetings: dict[_Key, asyncio.Task[None]] = {}
        self._swept_at = float("-inf")
        self._heal_at = float("inf")
        self.planning = ReconcileLoop("background-plan", self._plan, interval=tools.resync)
        self.updating = ReconcileLoop(
            "update-requests", tools.updates.reconcile, interval=30.0, caches=(tools.waiting,)
        )
        tools.updates.on_progress = self.updating.wake
        tools.store.listen(self.planning.wake)

    async def run(self) -> None:
        """Until cancelled, or another replica leads."""
        tools = self._tools
        self._marks.clear()
        self._swept_at = float("-inf")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(tools.requests.run())
                await tools.store.wait()
                group.create_task(tools.queue.run())
                group.create_task(tools.downstream.poll())
                group.create_task(self.planning.run())
                group.create_task(self.updating.run())
        finally:
            await self._stop()

    async def _stop(self) -> None:
        meetings = list(self._meetings.values())
        for task in meetings:
            task.cancel()
        await asyncio.gather(*meetings, return_exceptions=True)
        self._meetings.clear()
        for part in (self._tools.updates, self._tools.watch, self._tools.trigger_watch):
            await part.stop()
        await self._tools.downstream.stop()

    async def _plan(self) -> None:
        tools = self._tools
        rules = tools.policies.rules
        kinds = list(await tools.list_kinds())
        is_resync = time.monotonic() - self._swept_at >= tools.resync * 0.9
        if is_resync:
            # Also what was made by policies that are gone, or by such as name no kinds.
            await tools.downstream.discover(kinds)
        await self._follow_targets(rules)
        await tools.trigger_watch.follow(rules, kinds)
        self._meet_all(rules, kinds)
        await tools.watch.sweep()
        await tools.watch.release(target for rule in rules for target in self._name_targets(rule))
        if is_resync:
            self._swept_at = time.monotonic()
        if is_resync or time.monotonic() >= self._heal_at:
            self._heal_at = float("inf")
            if not await tools.trigger_watch.heal(rules):
                self._heal_at = time.monotonic() + _UNTIL_SERVED
                self.planning.wake_later(_UNTIL_SERVED)

    def _meet_all(self, rules: Iterable[GenerateRule], kinds: list[Resource]) -> None:
        tools = self._tools
        met = set()
        for rule in rules:
            key = (rule.policy.uid, "generate", rule.name)
            met.add(key)
            self._meet(key, rule.mark, partial(tools.existing.generate, rule, kinds))
        for policy in filter(tools.existing.mutates, tools.store.policies):
            key = (policy.uid, "mutate", "")
            met.add(key)
            mark = tools.store.mark(policy)
            self._meet(key, mark, partial(tools.existing.mutate, policy, kinds))
        for key in self._marks.keys() - met:
            del self._marks[key]
            if key in self._meetings:
                self._meetings.pop(key).cancel()

    async def _follow_targets(self, rules: Iterable[GenerateRule]) -> None:
        for resource in {target for rule in rules for target in self._name_targets(rule)}:
            try:
                await self._tools.downstream.follow(resource)
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
        return self._tools.triggers.locate(version, selector.kind, namespaced=True)

    def _meet(self, key: _Key, mark: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Once for each state of a policy, let it meet what is there; beside everything else."""
        if self._marks.get(key) == mark:
            return
        self._marks[key] = mark
        # What came between the policy and its webhook was told to nobody.
        self._heal_at = time.monotonic() + _UNTIL_SERVED
        self.planning.wake_later(_UNTIL_SERVED)
        before = self._meetings.pop(key, None)
        if before is not None:
            before.cancel()
        self._meetings[key] = asyncio.create_task(self._attend(key, work()))

    async def _attend(self, key: _Key, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except LookupFailedError as error:
            log.warning("existing objects not read", extra={"why": str(error)[:200]})
            self._marks.pop(key, None)
            self.planning.wake_later(5.0)
