"""Keeps the webhook configurations in sync with the policies, and repairs them."""

import asyncio
import logging
from collections.abc import Callable, Iterator

import msgspec

from lictor.controllers.context import ControllerContext
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.status.policies import WebhookReadiness, identify_policy
from lictor.controllers.webhook_configuration.cel import draft_named
from lictor.controllers.webhook_configuration.classic import draft_classic, draft_everything
from lictor.controllers.webhook_configuration.draft import (
    RESOURCE_MUTATING,
    RESOURCE_VALIDATING,
    ConfigurationDraft,
    DraftContext,
    WebhookDraft,
    build_fixed,
)
from lictor.controllers.webhook_configuration.match_conditions import build_exemptions
from lictor.controllers.webhook_configuration.rules import make_rule
from lictor.controllers.webhook_configuration.writer import ConfigurationWriter, WebhookDryRun
from lictor.core.raw import Json
from lictor.kubernetes.cache import Change
from lictor.kubernetes.discovery import Discovery, ServedResource
from lictor.kubernetes.resource import CUSTOM_RESOURCE_DEFINITION
from lictor.kubernetes.settings import Settings
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.routes import is_served, list_path_kinds

log = logging.getLogger(__name__)

_INTERVAL = 10.0
# API servers apply a changed configuration with a short delay.
_SPREAD = 0.3
_MOST_ROUNDS = 5
# A kind that a policy names may have a CustomResourceDefinition that is not served yet.
_FIRST_PATIENCE = 2.0
_LONGEST_PATIENCE = 60.0
# Settings that the API server may refuse, the part of a webhook they go to, and what else is taken.
_REFUSABLE: tuple[tuple[str, str, Json], ...] = (
    ("match_conditions", "conditions", ()),
    ("webhook_namespace_selector", "namespace_selector", None),
    ("webhook_object_selector", "object_selector", None),
)
_RESOURCES = frozenset({RESOURCE_VALIDATING, RESOURCE_MUTATING})


def build_webhooks_loop(
    context: ControllerContext, healthy: Callable[[], bool]
) -> tuple[ReconcileLoop, WebhookReadiness]:
    """The loop of the admission server's webhooks, and the readiness of policies.

    `healthy`: whether the heartbeat came through the webhook recently. If not, no requests are sent
    to the webhooks.
    """
    reconciler = WebhookReconciler(context, healthy)
    loop = ReconcileLoop(
        "webhook-controller",
        reconciler.reconcile,
        interval=_INTERVAL,
        caches=reconciler.writer.caches,
    )
    context.store.listen(loop.wake)
    context.settings.listen(loop.wake)
    reconciler.discovery.listen(loop.wake)
    return loop, reconciler.state


class WebhookReconciler:
    """Computes the desired configurations, and writes them."""

    def __init__(
        self,
        context: ControllerContext,
        healthy: Callable[[], bool],
        *,
        spread: float = _SPREAD,
    ) -> None:
        self.state = WebhookReadiness()
        self.discovery = Discovery(context.client)
        self.writer = ConfigurationWriter(context)
        self._context = context
        self._healthy = healthy
        self._spread = spread
        self._evaluate = WebhookDryRun(context.client, context.names.prefix)
        self._plan: _Plan | None = None
        self._told: frozenset[str] = frozenset()
        self._patience = _FIRST_PATIENCE
        self._timer: asyncio.TimerHandle | None = None
        for cache in context.store.caches:
            if cache.resource == CUSTOM_RESOURCE_DEFINITION:
                self.discovery.follow(cache)
                cache.listen(self._hope)

    async def reconcile(self) -> None:
        """Write the configurations, and publish which policies they serve."""
        address = self.writer.find_address()
        await self.discovery.ensure()
        plan = await self._make_plan()
        by_hand = not self._context.flags.auto_update_webhooks
        changed = await self.writer.write(
            self._assemble(plan),
            address,
            plan.settings,
            only_authority=_RESOURCES if by_hand else frozenset(),
        )
        if changed:
            await asyncio.sleep(self._spread)
        self._show(plan)
        self._log(plan)
        self._look_again(plan.unknown)

    async def _make_plan(self) -> "_Plan":
        base = _Base(
            self._context.store.policies if self._healthy() else (),
            self._context.settings.current,
            self.discovery.resources,
        )
        if self._plan is not None and self._plan.base.is_same(base):
            return self._plan
        plan = self._draft(base)
        # Each round dry-runs what the one before produced.
        for _ in range(_MOST_ROUNDS):
            if not await self._evaluate.learn():
                break
            plan = self._draft(base)
        self._plan = plan
        return plan

    def _draft(self, base: "_Base") -> "_Plan":
        self._evaluate.begin()
        settings, dropped = self._check_settings(base.settings)
        unknown: set[str] = set()

        def find(text: str) -> tuple[ServedResource, ...]:
            found = self.discovery.find(text)
            if not found:
                unknown.add(text)
            return found

        names, flags = self._context.names, self._context.flags
        exemptions = build_exemptions(names, settings, self.discovery.find)
        context = DraftContext(names, flags, settings, exemptions, find, self._evaluate.explain)
        return _Plan(
            base,
            settings,
            tuple(_draft_stage(base.policies, context, mutating=True)),
            tuple(_draft_stage(base.policies, context, mutating=False)),
            frozenset(unknown),
            dropped,
        )

    def _check_settings(self, settings: Settings) -> tuple[Settings, tuple[str, ...]]:
        """The settings without what the API server refuses, and the reasons."""
        dropped = []
        for field, part, default in _REFUSABLE:
            value = getattr(settings, field)
            if value and (why := self._evaluate.explain(self._probe(part, value))):
                settings = msgspec.structs.replace(settings, **{field: default})
                dropped.append(f"{field}: {why}")
        return settings, tuple(dropped)

    def _probe(self, part: str, value: Json) -> WebhookDraft:
        rules = [make_rule("", "v1", ["pods"], ["CREATE"])]
        name = self._context.names.webhook_entry("settings")
        probe = WebhookDraft(name, "/validate", "Ignore", rules, timeout=1)
        return msgspec.structs.replace(
            probe, **{part: list(value) if isinstance(value, tuple) else value}
        )

    def _assemble(self, plan: "_Plan") -> list[ConfigurationDraft]:
        taken = [
            tuple(draft for draft in drafts if not draft.refusal)
            for drafts in (plan.mutating, plan.validating)
        ]
        return [
            ConfigurationDraft(RESOURCE_MUTATING, mutating=True, drafts=taken[0]),
            ConfigurationDraft(RESOURCE_VALIDATING, mutating=False, drafts=taken[1]),
            *build_fixed(self._context.names, self._context.flags, plan.settings),
        ]

    def _show(self, plan: "_Plan") -> None:
        refused = {
            identify_policy(policy): draft.refusal
            for draft in (*plan.mutating, *plan.validating)
            if draft.refusal
            for policy in draft.policies
        }
        ready = {
            identify_policy(policy): policy.uid
            for policy in plan.base.policies
            if is_served(policy) and identify_policy(policy) not in refused
        }
        self.state.show(ready, refused)

    def _log(self, plan: "_Plan") -> None:
        problems = {f"setting ignored: {why}" for why in plan.dropped}
        problems |= {f"kind not served: {kind}" for kind in plan.unknown}
        problems |= {f"{key} refused: {why}" for key, why in self.state.refused.items()}
        for problem in sorted(problems - self._told):
            log.warning("webhook incomplete", extra={"why": problem[:500]})
        self._told = frozenset(problems)

    def _look_again(self, unknown: frozenset[str]) -> None:
        """Discover kinds that are not served yet again, with growing pauses."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if unknown:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._patience, self.discovery.mark_stale)
            self._patience = min(self._patience * 2, _LONGEST_PATIENCE)
        else:
            self._patience = _FIRST_PATIENCE

    def _hope(self, _: Change) -> None:
        self._patience = _FIRST_PATIENCE


class _Base(msgspec.Struct, frozen=True):
    """The inputs of a plan."""

    policies: tuple[StoredPolicy, ...]
    settings: Settings
    resources: tuple[ServedResource, ...]

    def is_same(self, other: "_Base") -> bool:
        """Would both give the same plan?"""
        return (
            self.settings is other.settings
            and self.resources is other.resources
            and len(self.policies) == len(other.policies)
            and all(map(_is_same_policy, self.policies, other.policies))
        )


def _is_same_policy(left: StoredPolicy, right: StoredPolicy) -> bool:
    """Status updates do not change webhooks."""
    return left is right or (
        left.uid == right.uid
        and left.generation == right.generation
        and left.is_native == right.is_native
        # Pod controllers are chosen by an annotation, which is no change of generation.
        and left.document["metadata"].get("annotations")
        == right.document["metadata"].get("annotations")
    )


class _Plan(msgspec.Struct, frozen=True):
    """The desired webhooks."""

    base: _Base
    settings: Settings
    mutating: tuple[WebhookDraft, ...]
    validating: tuple[WebhookDraft, ...]
    unknown: frozenset[str]
    dropped: tuple[str, ...]


def _draft_stage(
    policies: tuple[StoredPolicy, ...], context: DraftContext, *, mutating: bool
) -> Iterator[WebhookDraft]:
    if not context.flags.auto_update_webhooks:
        yield from draft_everything(context, mutating=mutating)
        return
    yield from draft_classic(policies, context, mutating=mutating)
    for kind in list_path_kinds(mutating=mutating):
        yield from draft_named(policies, kind, context, mutating=mutating)
