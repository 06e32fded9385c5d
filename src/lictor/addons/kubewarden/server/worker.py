"""One process of a policy server: its own event loop, modules and policies, on ports all share."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from pathlib import Path

import msgspec

from lictor.addons.kubewarden.family.entries import (
    POLICIES_PATH,
    LoadReport,
    merge_reports,
    read_report,
    write_report,
)
from lictor.addons.kubewarden.server.app import PolicyServerApp
from lictor.addons.kubewarden.server.certificates import CertificateFiles, open_certificates
from lictor.addons.kubewarden.server.environment import PolicyEnvironment, open_environment
from lictor.addons.kubewarden.server.metrics import EvaluationMetrics, EvaluationsPage
from lictor.addons.kubewarden.server.options import PolicyServerOptions
from lictor.addons.kubewarden.server.otlp import MetricsSender
from lictor.addons.kubewarden.server.policies import PolicyOpener, ServedPolicies
from lictor.addons.kubewarden.server.runner import PolicyRunner
from lictor.addons.kubewarden.server.spans import SpanSink
from lictor.http.limits import MAX_CUT_REVIEW, MAX_REVIEW
from lictor.http.messages import JSON, HttpRequest, HttpResponse
from lictor.http.server import HttpServer, serve_port
from lictor.webhook.capacity import ProcessMemory
from lictor.webhook.serving_process import ServingProcess, run_event_loop
from lictor.webhook.slots import ProcessSlot, SharedFlag

log = logging.getLogger(__name__)

_PROBE_CONNECTIONS = 64
# For clients to hear elsewhere that this server is ending.
_FAREWELL_SECONDS = 2.0
_COMPILING_SECONDS = 40.0
_TURN_SECONDS = 0.05
_HELD_BYTES = 128 * 1024 * 1024


class ReportSlot(msgspec.Struct, frozen=True):
    """Where one process reports the state of its policies."""

    # Whether it answers requests.
    life: ProcessSlot
    report: ProcessSlot


class PolicyServerSockets(msgspec.Struct, frozen=True):
    """What the parent made for all its processes."""

    main: socket.socket
    readiness: socket.socket
    metrics: socket.socket | None
    # Two for each process, first those of the first ones.
    slots: tuple[ProcessSlot, ...]
    # Bytes of memory that one of them may take.
    share: int
    # For each of them how far its policies are.
    reports: tuple[ReportSlot, ...]
    is_ending: SharedFlag
    # Where processes leave the last policies.yml that was right.
    fallback: Path | None


def run_policy_worker(
    options: PolicyServerOptions, sockets: PolicyServerSockets, slot: ProcessSlot
) -> None:
    """Serve until SIGTERM; raises what makes it impossible to go on."""
    memory = ProcessMemory(sockets.share)
    run_event_loop(lambda: _PolicyWorker(options, sockets, slot, memory).run())


async def check_policies(options: PolicyServerOptions) -> None:
    """Open everything as a worker does, and close it again; raises what speaks against serving."""
    open_certificates(options)
    async with open_environment(options) as environment:
        await asyncio.to_thread(_build_policies(options, environment).check)


def _build_policies(
    options: PolicyServerOptions,
    environment: PolicyEnvironment,
    metrics: EvaluationMetrics | None = None,
    fallback: Path | None = None,
) -> ServedPolicies:
    opener = PolicyOpener(environment.modules, environment.make_host, options.limits)
    return ServedPolicies(
        options.policies,
        opener,
        continues_on_errors=options.continues_on_errors,
        fallback=fallback,
        note_failure=metrics.note_failure if metrics is not None else lambda *_: None,
    )


class _PolicyWorker(ServingProcess):
    def __init__(
        self,
        options: PolicyServerOptions,
        sockets: PolicyServerSockets,
        slot: ProcessSlot,
        memory: ProcessMemory,
    ) -> None:
        self._metrics = EvaluationMetrics()
        super().__init__(slot, memory, sockets.is_ending, self._metrics.counters)
        self._options = options
        self._sockets = sockets
        # Or the process that replaces it.
        slots = sockets.slots
        self._is_first = slot in (slots[0], slots[len(slots) // 2])
        self._report = next(each.report for each in sockets.reports if each.life is slot)
        self._policies: ServedPolicies | None = None
        self._told = LoadReport()
        self._is_serving = False

    async def run(self) -> None:
        """From the first sign of life to the last answer."""
        self._begin()
        beats = asyncio.create_task(self._beat())
        certificates = open_certificates(self._options)
        async with open_environment(self._options) as environment:
            policies = _build_policies(
                self._options, environment, self._metrics, self._sockets.fallback
            )
            await self._leave_compiling_to_first()
            await asyncio.to_thread(policies.load)
            self._policies = policies
            await self._serve(policies, certificates)
        beats.cancel()
        self._publish()

    async def _leave_compiling_to_first(self) -> None:
        """One process fetches and compiles, for a while; the others find what it left."""
        deadline = time.monotonic() + _COMPILING_SECONDS
        slots = self._sockets.slots
        while not (self._is_first or any(s.is_ready for s in slots) or self._stop.is_set()):
            if time.monotonic() > deadline or not self._options.continues_on_errors:
                return
            await asyncio.sleep(_TURN_SECONDS)

    async def _serve(
        self,
        policies: ServedPolicies,
        certificates: CertificateFiles | None,
    ) -> None:
        runner = PolicyRunner()
        spans = SpanSink() if self._options.sends_traces else None
        app = PolicyServerApp(
            policies,
            runner,
            self._metrics,
            accepted_namespace=self._options.accepted_namespace,
            spans=spans,
            make_room=self._memory.give_reserve,
        )
        server = HttpServer(app, max_body=MAX_REVIEW)
        server.max_read, server.max_held = MAX_CUT_REVIEW, _HELD_BYTES
        context = None if certificates is None else certificates.live.context
        listener = self._listen(self._sockets.main, server, context)
        beside = [policies.follow(), *self._list_pages()]
        if certificates is not None:
            beside.append(certificates.follow())
        tasks = [asyncio.create_task(each) for each in (listener.run(), server.sweep(), *beside)]
        self._is_serving = True
        self._note_turn()
        self._measure()
        log.info("ready", extra={"policies": len(policies.table.opened)})
        await self._wait_for_end(tasks)
        self._is_serving = False
        await self._finish_requests(_FAREWELL_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        runner.close()
        if spans is not None:
            await asyncio.to_thread(spans.close)

    def _list_pages(self) -> list[Coroutine[None, None, None]]:
        """What else is served and sent."""
        pages = ProbePages(self._sockets.reports, self._is_ready)
        probes = HttpServer(pages, max_body=0, max_connections=_PROBE_CONNECTIONS)
        found = [serve_port(self._sockets.readiness, probes)]
        if self._sockets.metrics is not None:
            page = EvaluationsPage(self._sockets.slots)
            metrics = HttpServer(page, max_body=0, max_connections=_PROBE_CONNECTIONS)
            found.append(serve_port(self._sockets.metrics, metrics))
        if self._options.sends_metrics and self._is_first:
            found.append(MetricsSender(self._sockets.slots).run())
        return found

    async def _wait_for_end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Until a signal to end; a part that ends early ends the process."""
        stop = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait((stop, *tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stop}:
            task.result()

    def _is_ready(self) -> bool:
        return self._is_serving

    def _note_turn(self) -> None:
        """How far the policies are; before the process counts as one that answers, not after."""
        report = self._told if self._policies is None else self._policies.report
        known = report.policies is self._told.policies and report.refused == self._told.refused
        if not known and not self._report.write(write_report(report)):
            log.warning("too many policies to report")
            self._report.write(b"")
        self._told = report


class ProbePages:
    """Answers from any process, for all of them."""

    def __init__(self, slots: Sequence[ReportSlot], is_ready: Callable[[], bool]) -> None:
        self._slots = tuple(slots)
        self._is_ready = is_ready
        self._shown: tuple[tuple[bytes, ...], bytes] = ((), b"")

    async def __call__(self, call: HttpRequest) -> HttpResponse:
        """A page; both are read-only, and need no authentication."""
        if call.path not in ("/readiness", POLICIES_PATH):
            return HttpResponse(HTTPStatus.NOT_FOUND)
        if call.method not in ("GET", "HEAD"):
            allowed = ((b"allow", b"GET,HEAD"),)
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, headers=allowed)
        if not self._is_ready():
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE)
        if call.path == "/readiness":
            return HttpResponse(HTTPStatus.OK)
        return HttpResponse(HTTPStatus.OK, self.render(), JSON)

    def render(self) -> bytes:
        """What is true of all processes that answer requests."""
        told = tuple(slot.report.read() for slot in self._slots if slot.life.is_ready)
        if told != self._shown[0]:
            # Built anew only after a change: any client may request it, at any rate.
            self._shown = (told, write_report(merge_reports([_read(page) for page in told])))
        return self._shown[1]


def _read(page: bytes) -> LoadReport:
    """A process without a report has no policies yet."""
    return read_report(page) if page else LoadReport()
