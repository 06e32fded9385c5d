"""Which loops are there, which controller do they belong to, and how are they built?"""

from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Protocol, TypeAlias

import msgspec

from lictor.cluster.discovery import Discovery
from lictor.control.background.wiring import build_background
from lictor.control.certificates.rotation import build_certificates_loop
from lictor.control.cleanup.wiring import build_policies_loop, build_ttl_loops
from lictor.control.context import Workplace
from lictor.control.loop import Loop
from lictor.control.native_policies.reconcile import build_native_loop
from lictor.control.reports.aggregation import BackgroundReports
from lictor.control.reports.wiring import build_reports
from lictor.control.status.global_context import build_global_context_loop
from lictor.control.status.policies import build_status_loop
from lictor.control.webhooks.configurations import build_webhooks_loop
from lictor.control.webhooks.heartbeat import Heartbeat, build_heartbeat
from lictor.control.webhooks.ownership import build_ownership_loop
from lictor.control.webhooks.writer import remove_webhooks
from lictor.errors import UsageError
from lictor.report.events import Event

Farewell: TypeAlias = Callable[[], Awaitable[object]]
Tell: TypeAlias = Callable[[Event], None]

# Loops by controller: what `lictor control NAME` may name.
CONTROLLERS: dict[str, tuple[str, ...]] = {
    "admission": ("certificates", "heartbeat", "ownership", "policies"),
    "background": ("background",),
    "cleanup": ("cleanup-policies", "ttl"),
    "reports": ("reports",),
}


class Runner(Protocol):
    """A loop, or several that stand for one."""

    name: str
    leader_only: bool

    async def run(self) -> None: ...


class Crew(msgspec.Struct, frozen=True):
    """The loops of one controller, which elect one leader together."""

    controller: str
    lease: str
    loops: tuple[Runner, ...]
    # What runs beside the loops on every replica.
    attendants: tuple[Callable[[], Coroutine[None, None, None]], ...] = ()
    # What the leader does last when the installation goes away for good.
    farewell: Farewell | None = None


def choose_loops(which: Collection[str]) -> frozenset[str]:
    """The loops that are meant: all, those of the named controllers, or the named ones."""
    everything = frozenset(name for names in CONTROLLERS.values() for name in names)
    unknown = sorted(set(which) - everything - CONTROLLERS.keys())
    if unknown:
        known = ", ".join(dict.fromkeys((*sorted(CONTROLLERS), *sorted(everything))))
        raise UsageError(f"unknown controller {unknown[0]!r}; there are {known}")
    if not which:
        return everything
    return frozenset(name for given in which for name in CONTROLLERS.get(given, (given,)))


def build_crews(workplace: Workplace, chosen: Collection[str], tell: Tell) -> tuple[Crew, ...]:
    """All chosen loops, by the controller they belong to; `tell` takes events."""
    crews = (
        _build_admission(workplace, chosen, tell),
        _build_background(workplace, chosen, tell),
        _build_cleanup(workplace, chosen, tell),
        _build_reports(workplace, chosen, tell),
    )
    return tuple(crew for crew in crews if crew.loops)


def _build_admission(workplace: Workplace, chosen: Collection[str], tell: Tell) -> Crew:
    loops: list[Runner] = []
    if "certificates" in chosen:
        loops.append(build_certificates_loop(workplace))
    if "ownership" in chosen:
        loops.append(build_ownership_loop(workplace))
    heartbeat, beating = build_heartbeat(workplace)
    if "heartbeat" in chosen:
        loops.append(beating)
    farewell = None
    if "policies" in chosen:
        loops += _build_policies(workplace, heartbeat, tell)
        loops.append(build_global_context_loop(workplace))
        farewell = _say_farewell(workplace)
    return Crew("admission", workplace.names.lease(), tuple(loops), farewell=farewell)


def _build_background(workplace: Workplace, chosen: Collection[str], tell: Tell) -> Crew:
    lease = workplace.names.lease("background")
    if "background" not in chosen:
        return Crew("background", lease, ())
    results = BackgroundReports(workplace.client, workplace.flags, workplace.store)
    discovery = Discovery(workplace.client)
    loop = build_background(workplace, discovery, tell=tell, add_report=results.add)
    return Crew("background", lease, (loop,), (results.run,))


def _build_reports(workplace: Workplace, chosen: Collection[str], tell: Tell) -> Crew:
    lease = workplace.names.lease("reports")
    flags = workplace.flags
    if "reports" not in chosen or not (flags.policy_reports and flags.aggregate_reports):
        return Crew("reports", lease, ())
    reports = build_reports(workplace, Discovery(workplace.client), tell)
    return Crew("reports", lease, (reports,))


def _build_cleanup(workplace: Workplace, chosen: Collection[str], tell: Tell) -> Crew:
    loops: list[Runner] = []
    if "cleanup-policies" in chosen:
        loops.append(build_policies_loop(workplace, lookups=workplace.lookups, tell=tell))
    if "ttl" in chosen:
        loops += build_ttl_loops(workplace)
    lease = workplace.names.lease("cleanup")
    return Crew("cleanup", lease, tuple(loops))


def _build_policies(workplace: Workplace, heartbeat: Heartbeat, tell: Tell) -> list[Loop]:
    """Webhooks, native policies and statuses: each must know what the others found."""
    # The admission server answers about cleanup policies and TTL labels too.
    webhooks, ready = build_webhooks_loop(workplace, healthy=heartbeat.healthy, cleanup=True)
    heartbeat.listen(webhooks.wake)
    native, made = build_native_loop(workplace, ready, tell)
    return [webhooks, native, build_status_loop(workplace, ready, made)]


def _say_farewell(workplace: Workplace) -> Farewell:
    return lambda: remove_webhooks(workplace.client, workplace.names)
