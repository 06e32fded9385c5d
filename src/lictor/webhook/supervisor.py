"""The parent: starts the processes, replaces those that die or hang, and ends them in order.

It does nothing else, so that nothing can go wrong in it: no threads, no event loop, no policies.
"""

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import NoReturn

import msgspec

from lictor.core.evaluations import EVALUATIONS
from lictor.kubernetes.metrics import RECYCLED, RESTARTS
from lictor.webhook.counters import Counters, read_tables
from lictor.webhook.probe import Probe
from lictor.webhook.slots import ProcessSlot, SharedFlag

log = logging.getLogger(__name__)

_TICK = 0.25
# A process that starts may read thousands of policies before its loop turns.
_START_SECONDS = 120.0
# An answer takes more of a busy process than a sign of life.
_PROBE_PATIENCE = 2.0
_PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0)
# Between two processes that have grown; and after one that could not be replaced.
_CHANGE_SECONDS = 10.0
_CHANGE_RETRY_SECONDS = 300.0
# Of what a process that crashed wrote about its threads; the one that crashed comes last.
_TRACE_SIZE = 8192
_WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class SupervisedProcess(msgspec.Struct):
    """A process that must always be there, and the process that is there now."""

    name: str
    run: Callable[[ProcessSlot], None]
    slot: ProcessSlot
    # Seconds without a sign of life until it counts as hung; 0: it gives none.
    patience: float = 0.0
    # Probes the process; one that does not answer is replaced even if it gives signs of life.
    probe: Probe | None = None
    # Without it the others are of no use: it ends last, and all end where it does.
    is_vital: bool = False
    # Started again after a death by a signal, even if it is vital.
    survives_signals: bool = False
    # Others need it to the end.
    ends_last: bool = False
    # How far it gives way to the others where cores are short, as nice(1) counts.
    niceness: int = 0
    # Takes its place where it has grown too large; this one's slot is free meanwhile.
    successor: "SupervisedProcess | None" = None
    pid: int = 0
    started: float = 0.0
    failures: int = 0
    # Not before this moment.
    start_at: float = 0.0
    # The exit code of the last process, negative for a signal.
    code: int = 0

    @property
    def has_ended_all(self) -> bool:
        """Must the others end because this one has?"""
        is_restarted = self.survives_signals and self.code < 0
        return self.is_vital and not self.pid and not is_restarted


class Supervisor:
    """Keeps processes running until SIGTERM or SIGINT."""

    def __init__(
        self,
        processes: Iterable[SupervisedProcess],
        departed: ProcessSlot,
        *,
        grace: float = 30.0,
        is_ending: SharedFlag | None = None,
    ) -> None:
        self._processes = list(processes)
        # One that is being started, and the one whose place it will take.
        self._change: tuple[SupervisedProcess, SupervisedProcess] | None = None
        self._change_after = 0.0
        # Those that finish what they have begun, and until when.
        self._retiring: list[tuple[SupervisedProcess, float]] = []
        self._departed = departed
        # What processes counted that are no more.
        self._counters = Counters()
        for process in self._processes:
            # From zero on, so that the first time is an increase.
            self._counters.count(RESTARTS, (process.name,), 0)
            self._counters.count(RECYCLED, (process.name,), 0)
        departed.write(self._counters.dump())
        self._grace = grace
        self._is_ending = is_ending or SharedFlag()
        # SIGTERM or SIGINT, where a thread other than the main one received it.
        self._received = 0

    def run(self) -> int:
        """Run until SIGTERM or SIGINT; returns the exit code."""
        # Threads of libraries do not block these signals: without handlers, a signal that one of
        # them receives ends this process at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_signal)
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        while True:
            self._start_missing()
            info = signal.sigtimedwait(_WATCHED, _TICK)
            # After SIGSTOP and SIGCONT, CPython returns a record that is not filled in.
            received = self._received or (info.si_signo if info else 0)
            if received in (signal.SIGTERM, signal.SIGINT):
                # After Ctrl-C, clients get no time to connect to another replica.
                return self._end(waits_for_clients=received == signal.SIGTERM)
            self._reap()
            ended = next((each for each in self._processes if each.has_ended_all), None)
            if ended is not None:
                self._end()
                return max(ended.code, 1)
            self._replace_hung()
            self._replace_grown(time.monotonic())

    def _note_signal(self, number: int, _: object) -> None:
        self._received = number

    def _start_missing(self) -> None:
        for process in self._processes:
            if not process.pid and time.monotonic() >= process.start_at:
                _start(process)

    def _list_all(self) -> list[SupervisedProcess]:
        new = [] if self._change is None else [self._change[1]]
        return [*self._processes, *new, *(process for process, _ in self._retiring)]

    def _reap(self) -> None:
        for process in self._list_all():
            if not process.pid:
                continue
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                self._note_end(process, os.waitstatus_to_exitcode(status))
        self._retiring = [(process, end) for process, end in self._retiring if process.pid]

    def _note_end(self, process: SupervisedProcess, code: int) -> None:
        trace = process.slot.take_trace()
        if EVALUATIONS.settle(process.pid, code, trace):
            log.error("policy quarantined", extra={"role": process.name, "child": process.pid})
        if trace:
            log.error(
                "process crashed", extra={"trace": trace[-_TRACE_SIZE:].decode("utf-8", "replace")}
            )
        if any(process is each for each, _ in self._retiring):
            log.info("process replaced", extra={"role": process.name, "child": process.pid})
            process.pid = 0
            self._inherit(process)
            return
        lived = time.monotonic() - process.started
        # One that was ended by a signal has not failed.
        is_well = code == 0 or lived > 60
        process.failures = 0 if is_well else min(process.failures + 1, len(_PAUSES) - 1)
        process.start_at = time.monotonic() + _PAUSES[process.failures]
        log.error(
            "process ended",
            extra={
                "role": process.name,
                "child": process.pid,
                "code": code,
                "lived": round(lived, 1),
            },
        )
        process.pid, process.code = 0, code
        self._inherit(process)
        self._counters.count(RESTARTS, (process.name,))
        self._departed.write(self._counters.dump())

    def _inherit(self, process: SupervisedProcess) -> None:
        """Counters must not go back because a process is gone; gauges go with it."""
        tables = read_tables(process.slot.read())
        if tables is not None:
            tables.gauges.clear()
            self._counters.merge(tables)
        process.slot.clear()

    def _replace_hung(self) -> None:
        now = time.monotonic()
        for process in self._processes:
            if not process.pid or not process.patience:
                continue
            beat = process.slot.last_beat
            limit = beat + process.patience if beat else process.started + _START_SECONDS
            if now > limit:
                log.error("process hangs", extra={"role": process.name, "child": process.pid})
                _kill(process.pid, signal.SIGKILL)
            elif (
                beat
                and process.probe is not None
                and not _is_answering(process, process.probe, now)
            ):
                log.error(
                    "process does not answer",
                    extra={
                        "role": process.name,
                        "child": process.pid,
                        "why": process.probe.trouble,
                    },
                )
                _kill(process.pid, signal.SIGKILL)

    def _replace_grown(self, now: float) -> None:
        """One at a time, and the new one first: requests always find a process."""
        for process, end in self._retiring:
            if now > end:
                _kill(process.pid, signal.SIGKILL)
        if self._change is None:
            if now >= self._change_after:
                self._begin_change(now)
            return
        old, new = self._change
        if new.pid and new.slot.is_ready:
            self._finish_change(old, new, now)
        elif not new.pid or now > new.started + _START_SECONDS:
            log.error("no new process for one that has grown", extra={"role": old.name})
            self._change_after = now + _CHANGE_RETRY_SECONDS
            if not new.pid:
                self._change = None
            else:
                _kill(new.pid, signal.SIGKILL)

    def _begin_change(self, now: float) -> None:
        for process in self._processes:
            new = process.successor
            if process.pid and new is not None and not new.pid and process.slot.has_grown:
                log.warning("process has grown", extra={"role": process.name, "child": process.pid})
                self._change_after = now + _CHANGE_SECONDS
                _start(new)
                self._change = (process, new)
                return

    def _finish_change(self, old: SupervisedProcess, new: SupervisedProcess, now: float) -> None:
        self._change = None
        self._processes = [new if process is old else process for process in self._processes]
        old.successor, new.successor = None, old
        self._counters.count(RECYCLED, (old.name,))
        self._departed.write(self._counters.dump())
        if old.pid:
            self._retiring.append((old, now + self._grace))
            _kill(old.pid, signal.SIGTERM)

    def _end(self, *, waits_for_clients: bool = False) -> int:
        log.info("ending")
        # A second signal means the same. Blocking it is not enough: threads of libraries that
        # were begun before would take it, and end this process at once.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if waits_for_clients:
            self._is_ending.set()
        deadline = time.monotonic() + self._grace
        clean = True
        for is_last in (False, True):
            running = [
                p for p in self._list_all() if p.pid and (p.is_vital or p.ends_last) is is_last
            ]
            for process in running:
                _kill(process.pid, signal.SIGTERM)
            for process in running:
                code = _wait(process.pid, deadline)
                if code != 0:
                    clean = False
                    log.error(
                        "process did not end well", extra={"role": process.name, "code": code}
                    )
        return 0 if clean else 1


def pair_processes(
    build: Callable[[int], SupervisedProcess], number: int
) -> list[SupervisedProcess]:
    """So many processes, each with one that may take its place."""
    processes = [build(place) for place in range(number)]
    for place, process in enumerate(processes):
        process.successor = build(number + place)
    return processes


def run_in_child(run: Callable[[], bytes]) -> tuple[bytes, int]:
    """The result of a function in a process that ends after it, and the exit code.

    What the function imports and allocates takes no memory here afterwards.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(writer, run())
            code = 0
        finally:
            _exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read()
    _, status = os.waitpid(pid, 0)
    return result, os.waitstatus_to_exitcode(status)


def _is_answering(process: SupervisedProcess, probe: Probe, now: float) -> bool:
    probe.step(now)
    return probe.is_answered(now, process.patience * _PROBE_PATIENCE)


def _start(process: SupervisedProcess) -> None:
    process.slot.clear()
    if process.probe is not None:
        process.probe.reset()
    process.started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _run_child(process)
    process.pid = pid
    log.info("process started", extra={"role": process.name, "child": pid})


def _run_child(process: SupervisedProcess) -> None:
    """The child's whole life; it never returns into the parent's code."""
    code = 1
    try:
        # Until it installs its own handler: it has begun nothing that it would have to finish.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        _die_with_parent()
        os.nice(process.niceness)
        faulthandler.enable(process.slot.trace)
        process.run(process.slot)
        code = 0
    except KeyboardInterrupt:
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Exception:
        log.exception("process failed", extra={"role": process.name})
    finally:
        _exit(code)


def _exit(code: int) -> NoReturn:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _die_with_parent() -> None:
    """A child must not go on without its parent."""
    import ctypes

    pr_set_pdeathsig = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait(pid: int, deadline: float) -> int:
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    _kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
