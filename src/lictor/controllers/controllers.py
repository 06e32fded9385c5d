"""The loops, the controllers they belong to, and how they are built."""

from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Protocol, TypeAlias

import msgspec

from lictor.controllers.background_wiring import build_background
from lictor.controllers.certificates import build_certificates_loop
from lictor.controllers.cleanup.schedule import build_policies_loop
from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.family_controllers import WebhookHealth, list_family_controllers
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.native_policies.reconcile import build_native_loop
from lictor.controllers.reports.aggregation import BackgroundReports
from lictor.controllers.reports.reconcile import build_reports
from lictor.controllers.status.global_context import build_global_context_loop
from lictor.controllers.status.policies import build_status_loop, follow_changes
from lictor.controllers.ttl import build_ttl_loops
from lictor.controllers.webhook_configuration.configurations import build_webhooks_loop
from lictor.controllers.webhook_configuration.heartbeat import Heartbeat, build_heartbeat
from lictor.controllers.webhook_configuration.writer import (
    ConfigurationWriter,
    build_ownership_loop,
    remove_webhooks,
)
from lictor.core.errors import UsageError
from lictor.kubernetes.discovery import Discovery

OnUninstall: TypeAlias = Callable[[], Awaitable[object]]

# Loops by controller: what `lictor control NAME` may name.
CONTROLLERS: dict[str, tuple[str, ...]] = {
    "admission": ("certificates", "heartbeat", "ownership", "policies"),
    "background": ("background",),
    "cleanup": ("cleanup-policies", "ttl"),
    "reports": ("reports",),
}


class Runner(Protocol):
    """A loop, or several as one."""

    name: str
    leader_only: bool

    async def run(self) -> None: ...


class Controller(msgspec.Struct, frozen=True):
    """The loops of one controller, which elect one leader together."""

    name: str
    lease: str
    loops: tuple[Runner, ...]
    # What runs on every replica besides the loops.
    background_tasks: tuple[Callable[[], Coroutine[None, None, None]], ...] = ()
    # What the leader does when the installation is removed.
    on_uninstall: OnUninstall | None = None


def choose_loops(which: Collection[str]) -> frozenset[str]:
    """The chosen loops: all, those of the named controllers, or the named ones."""
    everything = frozenset(name for names in CONTROLLERS.values() for name in names)
    unknown = sorted(set(which) - everything - CONTROLLERS.keys())
    if unknown:
        known = ", ".join(dict.fromkeys((*sorted(CONTROLLERS), *sorted(everything))))
        raise UsageError(f"unknown controller {unknown[0]!r}; there are {known}")
    if not which:
        return everything
    return frozenset(name for given in which for name in CONTROLLERS.get(given, (given,)))


def build_controllers(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> tuple[Controller, ...]:
    """The chosen loops, by controller; `emit` takes events."""
    controllers = (
        _build_admission(context, chosen, emit),
        _build_background(context, chosen, emit),
        _build_cleanup(context, chosen, emit),
        _build_reports(context, chosen, emit),
    )
    return tuple(controller for controller in controllers if controller.loops)


def _build_admission(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> Controller:
    loops: list[Runner] = []
    if "certificates" in chosen:
        loops.append(build_certificates_loop(context))
    if "ownership" in chosen:
        loops.append(build_ownership_loop(context))
    heartbeat, beating = build_heartbeat(context)
    if "heartbeat" in chosen:
        loops.append(beating)
    on_uninstall = None
    if "policies" in chosen:
        loops += _build_policies(context, heartbeat, emit)
        loops.append(build_global_context_loop(context))
        on_uninstall = _clean_up(context)
    return Controller("admission", context.names.lease(), tuple(loops), on_uninstall=on_uninstall)


def _build_background(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> Controller:
    lease = context.names.lease("background")
    if "background" not in chosen:
        return Controller("background", lease, ())
    results = BackgroundReports(context.client, context.flags, context.store)
    discovery = Discovery(context.client)
    loop = build_background(context, discovery, emit=emit, add_report=results.add)
    return Controller("background", lease, (loop,), (results.run,))


def _build_reports(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> Controller:
    lease = context.names.lease("reports")
    flags = context.flags
    if "reports" not in chosen or not (flags.policy_reports and flags.aggregate_reports):
        return Controller("reports", lease, ())
    reports = build_reports(context, Discovery(context.client), emit)
    return Controller("reports", lease, (reports,))


def _build_cleanup(
    context: ControllerContext, chosen: Collection[str], emit: EmitEvent
) -> Controller:
    loops: list[Runner] = []
    if "cleanup-policies" in chosen:
        loops.append(build_policies_loop(context, emit))
    if "ttl" in chosen:
        loops += build_ttl_loops(context)
    lease = context.names.lease("cleanup")
    return Controller("cleanup", lease, tuple(loops))


def _build_policies(
    context: ControllerContext, heartbeat: Heartbeat, emit: EmitEvent
) -> list[ReconcileLoop]:
    """Webhooks, native policies and statuses, which share their results."""
    webhooks, ready = build_webhooks_loop(context, heartbeat.healthy)
    heartbeat.listen(webhooks.wake)
    follow_changes(context.store)
    native, made = build_native_loop(context, ready, emit)
    health = WebhookHealth(ConfigurationWriter(context).find_address, heartbeat.healthy)
    loops = [webhooks, native, build_status_loop(context, ready, made, emit)]
    for controllers in list_family_controllers():
        for loop in controllers.build_loops(context, health, emit):
            heartbeat.listen(loop.wake)
            loops.append(loop)
    return loops


def _clean_up(context: ControllerContext) -> OnUninstall:
    async def clean_up() -> None:
        await remove_webhooks(context.client, context.names)
        for controllers in list_family_controllers():
            await controllers.clean_up(context.client, context.names)

    return clean_up
