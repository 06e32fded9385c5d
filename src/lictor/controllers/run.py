"""Runs the chosen loops: caches first, then an election for each controller, until stopped."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Collection
from contextlib import suppress
from http import HTTPStatus

from lictor.controllers.context import ControllerContext, build_context
from lictor.controllers.controllers import Controller, build_controllers, choose_loops
from lictor.controllers.quarantine import build_quarantine_loop
from lictor.core.errors import ApiError
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.raw import JsonObject
from lictor.core.release import VERSION
from lictor.http.limits import ListenerLimits
from lictor.http.listener import Listener, open_port
from lictor.http.messages import TEXT, HttpRequest, HttpResponse
from lictor.http.server import HttpServer
from lictor.kubernetes.client import Client, TokenBucket
from lictor.kubernetes.events import EventSink
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.lease import Leadership, choose_identity
from lictor.kubernetes.metrics import INFO, open_gauge
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import DEPLOYMENT, NAMESPACE, Resource
from lictor.policies.trial_jobs import start_trials

# Only kubelets and Prometheus connect here.
_MAX_CONNECTIONS = 64
_LIMITS = ListenerLimits(silent=64, silent_per_address=32, waiting=64)


class Health:
    """Answers GET /health/liveness, /health/readiness and /metrics."""

    def __init__(self, flags: Flags) -> None:
        self.is_ready = False
        self._shows_metrics = not flags.disable_metrics
        self._rendering = asyncio.Lock()

    async def serve(self, bound: socket.socket) -> None:
        """Answer on a port until cancelled."""
        server = HttpServer(self._answer, max_body=0, max_connections=_MAX_CONNECTIONS)
        log.info("health served", extra={"port": bound.getsockname()[1]})
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(Listener(bound, server, limits=_LIMITS).run())
                group.create_task(server.sweep())
        finally:
            await server.drain(0)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED)
        if request.path == "/health/liveness" or (
            request.path == "/health/readiness" and self.is_ready
        ):
            return HttpResponse(HTTPStatus.OK, b"ok")
        if request.path == "/health/readiness":
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready")
        if request.path == "/metrics" and self._shows_metrics:
            return await self._render_metrics()
        return HttpResponse(HTTPStatus.NOT_FOUND, b"not found", TEXT)

    async def _render_metrics(self) -> HttpResponse:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        open_gauge(INFO).labels(VERSION).set(1)
        async with self._rendering:
            body = await asyncio.to_thread(generate_latest)
        return HttpResponse(HTTPStatus.OK, body, CONTENT_TYPE_LATEST.encode())


def open_health_port(flags: Flags) -> socket.socket:
    """The port of the metrics; OSError where it is taken."""
    return open_port(flags.metrics_host, flags.metrics_port)


log = logging.getLogger(__name__)

# The end of a process must not wait for an API server that does not answer.
_UNINSTALL_LIMIT = 10.0
# Where cores are short, requests are answered before anything is reconciled; see nice(1).
_GIVES_WAY = 5


def run_control_process(
    flags: Flags,
    names: Names,
    which: Collection[str] = (),
    *,
    health_port: socket.socket | None = None,
) -> None:
    """Run the loops in this process until SIGTERM or SIGINT; serve health on a port if given."""
    os.nice(_GIVES_WAY)
    start_trials()
    asyncio.run(run_control(which, flags, names, health_port=health_port))


async def run_control(
    which: Collection[str],
    flags: Flags,
    names: Names,
    *,
    health_port: socket.socket | None = None,
    heeds_signals: bool = True,
) -> None:
    """Run the loops until SIGTERM or SIGINT comes, or the task is cancelled.

    With `heeds_signals` False, it leaves signals to the process that runs it.
    """
    chosen = choose_loops(which)
    rate = TokenBucket(flags.client_rate_limit_qps, flags.client_rate_limit_burst)
    client = Client(load_config(flags.kubeconfig, flags.context), rate=rate)
    context = build_context(client, flags, names, choose_identity())
    events = EventSink(client, flags, lambda: context.settings.current, instance=context.identity)
    controllers = build_controllers(context, chosen, events.emit)
    try:
        process = _Process(context, events, controllers, health_port)
        await (_run_until_told(process) if heeds_signals else process.run())
    finally:
        await client.close()


async def _run_until_told(process: "_Process") -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    work = asyncio.create_task(process.run())
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        process.is_stopping = stop.is_set()
    finally:
        waiting.cancel()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


class _Process:
    """Everything that runs in this process."""

    def __init__(
        self,
        context: ControllerContext,
        events: EventSink,
        controllers: tuple[Controller, ...],
        health_port: socket.socket | None,
    ) -> None:
        self.is_stopping = False
        self._context = context
        self._events = events
        self._controllers = controllers
        self._health_port = health_port
        self._quarantine = build_quarantine_loop(context)
        period = parse_duration(context.flags.leader_election_retry_period) / NANOSECONDS
        self._retry_period = max(period, 0.1)

    async def run(self) -> None:
        health = Health(self._context.flags)
        async with asyncio.TaskGroup() as group:
            if self._health_port is not None:
                group.create_task(health.serve(self._health_port))
            group.create_task(self._context.run())
            group.create_task(self._events.run())
            group.create_task(self._quarantine.run())
            await self._context.wait()
            health.is_ready = True
            log.info("controllers started", extra={"identity": self._context.identity})
            for controller in self._controllers:
                group.create_task(self._run_controller(controller))

    async def _run_controller(self, controller: Controller) -> None:
        context = self._context
        leadership = Leadership(
            context.client,
            controller.lease,
            context.names.namespace,
            context.identity,
            self._retry_period,
        )

        async def lead() -> None:
            try:
                await _run_loops(controller, leader=True)
            finally:
                if self.is_stopping and await self._clean_up(controller):
                    # A new leader would create again what was just deleted.
                    leadership.release_at_end = False

        async with asyncio.TaskGroup() as group:
            group.create_task(_run_loops(controller, leader=False))
            for task in controller.background_tasks:
                group.create_task(task())
            # Without loops for the leader there is no election.
            if any(loop.leader_only for loop in controller.loops):
                group.create_task(leadership.run(lead))

    async def _clean_up(self, controller: Controller) -> bool:
        """Delete the webhooks if the installation is being removed; returns whether it was."""
        if controller.on_uninstall is None:
            return False
        try:
            async with asyncio.timeout(_UNINSTALL_LIMIT):
                if not await self._is_leaving(controller):
                    return False
                await controller.on_uninstall()
        except (ApiError, TimeoutError) as error:
            log.warning("webhooks not removed", extra={"why": str(error)[:200]})
        return True

    async def _is_leaving(self, controller: Controller) -> bool:
        if self._context.flags.auto_delete_webhooks:
            return True
        context = self._context
        pod = os.environ.get("POD_NAME", "")
        return await is_going_down(context.client, context.names, pod, controller.name)


async def _run_loops(controller: Controller, *, leader: bool) -> None:
    loops = [loop for loop in controller.loops if loop.leader_only is leader]
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop.run())


POD = Resource("", "v1", "pods", "Pod")


async def is_going_down(client: Client, names: Names, pod: str, controller: str) -> bool:
    """Whether this installation is being removed, not just restarted.

    True if the Namespace or the Deployment is deleted or being deleted, or has no replicas; False
    if unknown, as outside of a Pod.
    """
    try:
        if not pod or await client.find(POD, pod, names.namespace) is None:
            return False
        namespace = await client.find(NAMESPACE, names.namespace)
        deployment = await client.find(DEPLOYMENT, names.controller(controller), names.namespace)
    except ApiError:
        return False
    if _is_leaving(namespace) or _is_leaving(deployment):
        return True
    return deployment is not None and (deployment.get("spec") or {}).get("replicas") == 0


def _is_leaving(item: JsonObject | None) -> bool:
    return item is None or bool(item["metadata"].get("deletionTimestamp"))
