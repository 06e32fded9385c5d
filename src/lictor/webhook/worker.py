"""One webhook process: its own event loop, caches and engines, on a socket that all share."""

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TypeAlias

from lictor.core.errors import DeadlineError
from lictor.http.limits import MAX_CUT_REVIEW, ListenerLimits
from lictor.http.server import HttpServer, serve_port
from lictor.http.serving_certificate import LiveCertificate
from lictor.kubernetes.metrics import CONNECTIONS, CONNECTIONS_DROPPED, MEMORY
from lictor.policies.trial_jobs import start_trials
from lictor.webhook.app import App
from lictor.webhook.capacity import ProcessMemory, offer_to_kernel
from lictor.webhook.components import Components, build_components
from lictor.webhook.counters import Counters
from lictor.webhook.interrupts import SignalAlarm
from lictor.webhook.metrics import list_rules, show_counters
from lictor.webhook.metrics_page import MetricsPage
from lictor.webhook.options import Inherited, ServeOptions
from lictor.webhook.payload_log import build_payload_log
from lictor.webhook.policy_webhooks import run_review
from lictor.webhook.serving_process import DRAIN_SECONDS, ServingProcess, run_event_loop
from lictor.webhook.slots import ProcessSlot
from lictor.webhook.tracing import TRACE_HEADERS, Tracer, build_tracer

SideTask: TypeAlias = Callable[[], Coroutine[None, None, None]]

# A rule that waits for an outside answer has its own limits; a thread beyond this is lost.
_LOST_THREAD = 120.0
_TURN_SECONDS = 0.02
_PROBE_CONNECTIONS = 8
_METRICS_CONNECTIONS = 64
_OPEN_FILES = 65536
# If all of a worker's memory were for connections.
_MEMORY_OF_CONNECTION = 64 * 1024
# Of a worker's memory, for bodies that are on their way.
_SHARE_OF_BODIES = 8
_LEAST_PLACES, _MOST_PLACES = 256, 4096


def run_worker(
    options: ServeOptions,
    inherited: Inherited,
    slot: ProcessSlot,
    side_task: SideTask | None = None,
) -> None:
    """Serve until SIGTERM; raises what makes it impossible to go on.

    `side_task`: what else runs on this process's event loop, until it is cancelled.
    """
    memory = ProcessMemory(inherited.memory_limit)
    if inherited.is_for_slow:
        offer_to_kernel()
    # Before there are threads.
    if inherited.policies is None:
        start_trials(run_review, inherited.trials_address)
    run_event_loop(lambda: _Worker(options, inherited, slot, memory, side_task).run())


def _allow_many_files() -> int:
    """A connection is an open file: how many may there be?"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted if soft < wanted else soft


def _limit_silent() -> ListenerLimits:
    """Silent connections leave most files to those who speak."""
    usual = ListenerLimits()
    silent = min(usual.silent, _allow_many_files() // 4)
    return ListenerLimits(
        silent=silent, silent_per_address=min(usual.silent_per_address, silent // 2)
    )


class _Worker(ServingProcess):
    # Built on the event loop.
    _components: Components

    def __init__(
        self,
        options: ServeOptions,
        inherited: Inherited,
        slot: ProcessSlot,
        memory: ProcessMemory,
        side_task: SideTask | None,
    ) -> None:
        super().__init__(slot, memory, inherited.is_ending, Counters())
        self._side_task = side_task
        self._options = options
        self._inherited = inherited
        show_counters(self._counters)
        self._certificate = LiveCertificate(options.client_authorities)
        self._told = Counter[str]()

    async def run(self) -> None:
        """From the first sign of life to the last answer."""
        self._begin()
        self._certificate.load(self._inherited.certificate, self._inherited.key)
        components = self._components = build_components(
            self._options, self._inherited, self._counters, self._certificate, SignalAlarm()
        )
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(self._beat()),
                group.create_task(components.run()),
            ]
            if self._side_task is not None:
                background.append(group.create_task(self._side_task()))
            await self._serve(components)
            for task in background:
                task.cancel()
        components.evaluator.close()
        await components.close()

    async def _leave_requests_to_others(self) -> None:
        """Until this process knows the policies, as long as another one of this port does."""
        others = [
            slot for slot in self._inherited.slots if slot.probe_socket and slot is not self._slot
        ]
        while not (self._stop.is_set() or self._is_ready()):
            if not any(slot.is_ready for slot in others):
                return
            await asyncio.sleep(_TURN_SECONDS)

    async def _serve(self, components: Components) -> None:
        # Its libraries take seconds to import on a busy machine: signs of life go on meanwhile.
        tracer = await asyncio.to_thread(build_tracer, self._options.flags)
        app = self._build_app(components, tracer)
        tasks: list[asyncio.Task[None]] = []
        if self._slot.probe_socket is not None:
            tasks.append(asyncio.create_task(self._answer_probes(app, self._slot.probe_socket)))
        await self._leave_requests_to_others()
        tasks += map(asyncio.create_task, self._open_port(app))
        page = asyncio.create_task(self._show_metrics(components))
        await self._stop.wait()
        await self._finish_requests(self._options.shutdown_delay)
        page.cancel()
        await components.drain(DRAIN_SECONDS)
        self._publish()
        for task in tasks:
            task.cancel()
        await asyncio.gather(page, *tasks, return_exceptions=True)
        if tracer is not None:
            # It sends what is left, and waits for that.
            await asyncio.to_thread(tracer.close)

    def _open_port(self, app: App) -> tuple[Coroutine[None, None, None], ...]:
        """What must run as long as the port is served."""
        share = self._inherited.memory_limit
        # Those who come to the process for slow requests were accepted by another worker.
        is_inside = self._inherited.is_for_slow
        server = HttpServer(
            app,
            max_body=self._options.max_body,
            max_connections=min(max(share // _MEMORY_OF_CONNECTION, _LEAST_PLACES), _MOST_PLACES),
            knows_clients=bool(self._options.client_authorities) and not is_inside,
            keeps_headers=TRACE_HEADERS if self._options.flags.enable_tracing else frozenset(),
        )
        server.max_read = MAX_CUT_REVIEW
        server.max_held = max(share // _SHARE_OF_BODIES, 2 * self._options.max_body)
        context = None if is_inside else self._certificate.context
        listener = self._listen(self._inherited.listener, server, context, _limit_silent())
        return listener.run(), server.sweep()

    async def _show_metrics(self, components: Components) -> None:
        if self._inherited.metrics is not None:
            store = components.state.policies
            page = MetricsPage(
                self._inherited.slots,
                lambda: components.backend.metrics,
                lambda: list_rules(store.policies, store.programs),
            )
            server = HttpServer(page, max_body=0, max_connections=_METRICS_CONNECTIONS)
            await serve_port(self._inherited.metrics, server)

    def _build_app(self, components: Components, tracer: Tracer | None) -> App:
        flags = self._options.flags
        return App(
            components.admission,
            components.internal_webhooks,
            self._counters,
            is_ready=self._is_ready,
            is_alive=self._is_listening,
            timeout=float(flags.webhook_timeout),
            max_in_flight=self._options.max_in_flight,
            tracer=tracer,
            payload_log=build_payload_log(payload=flags.dump_payload, patches=flags.dump_patches),
            make_room=self._memory.give_reserve,
        )

    async def _answer_probes(self, app: App, probe_socket: socket.socket) -> None:
        """By the same handler, on a socket that other clients cannot block."""
        server = HttpServer(app, max_body=0, max_connections=_PROBE_CONNECTIONS)
        await serve_port(probe_socket, server, self._certificate.context)

    def _is_listening(self) -> bool:
        if self._stop.is_set() or self._listener is None:
            return True
        return self._listener.is_accepting

    def _is_ready(self) -> bool:
        if self._stop.is_set():
            return False
        return self._components.is_ready(is_temporary=self._inherited.is_temporary)

    def _note_turn(self) -> None:
        if self._components.evaluator.oldest >= _LOST_THREAD:
            raise DeadlineError("a thread has been evaluating one request for too long")

    def _measure(self) -> None:
        """Connections and memory: for the metrics, and for the parent."""
        super()._measure()
        if self._server is None or self._listener is None:
            return
        self._counters.set_gauge(MEMORY, self._memory.used)
        self._counters.set_gauge(CONNECTIONS, self._server.count)
        counts = self._listener.counts
        self._count_dropped("silent", counts.dropped_silent)
        self._count_dropped("handshake", counts.failed_handshakes)
        self._count_dropped("evicted", self._server.evicted)

    def _count_dropped(self, reason: str, total: int) -> None:
        self._counters.count(CONNECTIONS_DROPPED, (reason,), total - self._told[reason])
        self._told[reason] = total

    def _publish(self) -> None:
        self._components.post_admission.measure()
        self._components.backend.measure()
        super()._publish()
