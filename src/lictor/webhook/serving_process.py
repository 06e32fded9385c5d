"""One of the processes behind a port: signs of life, memory, connections, and its end."""

import asyncio
import gc
import logging
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Coroutine

from lictor.http.limits import ListenerLimits
from lictor.http.listener import Listener
from lictor.http.server import HttpServer
from lictor.webhook.capacity import ProcessMemory
from lictor.webhook.counters import Counters
from lictor.webhook.slots import ProcessSlot, SharedFlag

log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.001
_BEAT_SECONDS = 0.25
_PUBLISHED_EVERY = 4
# A signal to the whole group may reach us before the parent.
_PARENT_SECONDS = 0.1
# For clients that were accepted and have not sent a request yet.
_HANDSHAKE_SECONDS = 1.0
DRAIN_SECONDS = 15.0


def run_event_loop(run: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run the event loop of a process that was forked from its parent."""
    # Requests must not wait long for the interpreter while threads compile, evaluate or add up.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # What was there before the fork is shared: collecting it would copy its pages.
    gc.freeze()
    _log_cheaply()
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def _log_cheaply() -> None:
    """Leave line, thread and process out of log records: finding them is not free."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # As described in the logging HOWTO.
    logging._srcfile = None  # noqa: SLF001


class ServingProcess:
    """What the supervisor needs of a process; subclasses answer the requests."""

    def __init__(
        self, slot: ProcessSlot, memory: ProcessMemory, is_ending: SharedFlag, counters: Counters
    ) -> None:
        self._slot = slot
        self._memory = memory
        self._is_ending = is_ending
        self._counters = counters
        self._stop = asyncio.Event()
        self._server: HttpServer | None = None
        self._listener: Listener | None = None

    def _is_ready(self) -> bool:
        """Can it answer requests?"""
        raise NotImplementedError

    def _note_turn(self) -> None:
        """Called before each sign of life; an error ends the process."""

    def _begin(self) -> None:
        """Give the first sign of life, and end on signals."""
        self._slot.beat()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    def _listen(
        self,
        bound: socket.socket,
        server: HttpServer,
        context: ssl.SSLContext | None,
        limits: ListenerLimits | None = None,
    ) -> Listener:
        listener = Listener(bound, server, context, limits)
        self._server, self._listener = server, listener
        server.on_count = listener.on_count = self._note_connections
        return listener

    def _note_connections(self) -> None:
        """Each of them, also before the end of its handshake, has buffers."""
        if self._server is not None and self._listener is not None:
            self._memory.note_connections(self._server.count + self._listener.handshakes)

    async def _beat(self) -> None:
        """Signs of life, as long as the loop turns."""
        turn = 0
        while True:
            self._note_turn()
            self._slot.beat()
            if turn % _PUBLISHED_EVERY == 0:
                self._measure()
                self._publish()
            turn += 1
            await asyncio.sleep(_BEAT_SECONDS)

    def _measure(self) -> None:
        """For the parent: a process that has grown is replaced."""
        if self._server is not None:
            is_ready = self._is_ready()
            now = time.monotonic()
            grown = self._memory.has_grown(now, self._server.count, is_ready=is_ready)
            self._slot.tell(is_ready=is_ready, has_grown=grown or self._slot.has_grown)

    def _publish(self) -> None:
        if not self._slot.write(self._counters.dump()):
            log.warning("too many metrics to show")

    async def _finish_requests(self, delay: float) -> None:
        """Go on, not ready, until clients have learned of other replicas; then answer the rest.

        Where only this process ends, the others of the same port take over at once.
        """
        if self._server is None or self._listener is None:
            return
        await asyncio.sleep(_PARENT_SECONDS)
        if self._is_ending.is_set:
            await asyncio.sleep(delay / 2)
            # Those who still come here on old connections must reconnect.
            self._server.is_draining = True
            await asyncio.sleep(delay / 2)
        self._listener.stop(for_all=self._is_ending.is_set)
        await self._listener.finish(_HANDSHAKE_SECONDS)
        await self._server.drain(DRAIN_SECONDS)
