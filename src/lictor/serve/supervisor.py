"""The parent: starts the processes, replaces those that die or hang, and ends them in order.

It does nothing else, so that nothing can go wrong in it: no threads, no event loop, no policies.
"""

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

import msgspec

from lictor.serve.book import Book, read_tables
from lictor.serve.instruments import RECYCLED, RESTARTS
from lictor.serve.probe import Probe
from lictor.serve.slots import Flag, Slot

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
_WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Post(msgspec.Struct):
    """A process that must always be there, and the process that is there now."""

    name: str
    run: Callable[[Slot], None]
    slot: Slot
    # Seconds without a sign of life until it counts as hung; 0: it gives none.
    patience: float = 0.0
    # Asks the process; one that does not answer is replaced even if it gives signs of life.
    probe: Probe | None = None
    # Without it the others are of no use: it ends last, and all end where it does.
    is_vital: bool = False
    # Others need it to the end.
    ends_last: bool = False
    # Takes its place where it has grown too large; nobody has this one's slot meanwhile.
    successor: "Post | None" = None
    pid: int = 0
    started: float = 0.0
    failures: int = 0
    # Not before this moment.
    start_at: float = 0.0


class Supervisor:
    """Keeps posts manned until SIGTERM or SIGINT."""

    def __init__(
        self,
        posts: Iterable[Post],
        departed: Slot,
        *,
        grace: float = 30.0,
        is_ending: Flag | None = None,
    ) -> None:
        self._posts = list(posts)
        # One that is being started, and the one whose place it will take.
        self._change: tuple[Post, Post] | None = None
        self._change_after = 0.0
        # Those that finish what they have begun, and until when.
        self._retiring: list[tuple[Post, float]] = []
        self._departed = departed
        # What processes counted that are no more.
        self._book = Book()
        self._grace = grace
        self._is_ending = is_ending or Flag()

    def run(self) -> int:
        """Run until told to end; the exit code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        while True:
            self._start_missing()
            told = signal.sigtimedwait(_WATCHED, _TICK)
            if told is not None and told.si_signo != signal.SIGCHLD:
                # Whoever presses Ctrl-C does not want to wait for clients to go elsewhere.
                return self._end(waits_for_clients=told.si_signo == signal.SIGTERM)
            self._reap()
            if any(post.is_vital and not post.pid for post in self._posts):
                self._end()
                return 1
            self._replace_hung()
            self._replace_grown(time.monotonic())

    def _start_missing(self) -> None:
        for post in self._posts:
            if not post.pid and time.monotonic() >= post.start_at:
                _start(post)

    def _list_all(self) -> list[Post]:
        new = [] if self._change is None else [self._change[1]]
        return [*self._posts, *new, *(post for post, _ in self._retiring)]

    def _reap(self) -> None:
        for post in self._list_all():
            if not post.pid:
                continue
            pid, status = os.waitpid(post.pid, os.WNOHANG)
            if pid:
                self._note_end(post, os.waitstatus_to_exitcode(status))
        self._retiring = [(post, end) for post, end in self._retiring if post.pid]

    def _note_end(self, post: Post, code: int) -> None:
        if any(post is each for each, _ in self._retiring):
            log.info("process replaced", extra={"role": post.name, "child": post.pid})
            post.pid = 0
            self._inherit(post)
            return
        lived = time.monotonic() - post.started
        # One that someone has told to end has not failed.
        is_well = code == 0 or lived > 60
        post.failures = 0 if is_well else min(post.failures + 1, len(_PAUSES) - 1)
        post.start_at = time.monotonic() + _PAUSES[post.failures]
        log.error(
            "process ended",
            extra={"role": post.name, "child": post.pid, "code": code, "lived": round(lived, 1)},
        )
        post.pid = 0
        self._inherit(post)
        self._book.count(RESTARTS, (post.name,))
        self._departed.write(self._book.dump())

    def _inherit(self, post: Post) -> None:
        """Counters must not go back because a process is gone; levels go with it."""
        tables = read_tables(post.slot.read())
        if tables is not None:
            tables.levels.clear()
            self._book.merge(tables)
        post.slot.clear()

    def _replace_hung(self) -> None:
        now = time.monotonic()
        for post in self._posts:
            if not post.pid or not post.patience:
                continue
            beat = post.slot.last_beat
            limit = beat + post.patience if beat else post.started + _START_SECONDS
            if now > limit:
                log.error("process hangs", extra={"role": post.name, "child": post.pid})
                _kill(post.pid, signal.SIGKILL)
            elif beat and post.probe is not None and not _is_answering(post, post.probe, now):
                log.error(
                    "process does not answer",
                    extra={"role": post.name, "child": post.pid, "why": post.probe.trouble},
                )
                _kill(post.pid, signal.SIGKILL)

    def _replace_grown(self, now: float) -> None:
        """One at a time, and the new one first: requests always find somebody."""
        for post, end in self._retiring:
            if now > end:
                _kill(post.pid, signal.SIGKILL)
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
        for post in self._posts:
            new = post.successor
            if post.pid and new is not None and not new.pid and post.slot.has_grown:
                log.warning("process has grown", extra={"role": post.name, "child": post.pid})
                self._change_after = now + _CHANGE_SECONDS
                _start(new)
                self._change = (post, new)
                return

    def _finish_change(self, old: Post, new: Post, now: float) -> None:
        self._change = None
        self._posts = [new if post is old else post for post in self._posts]
        old.successor, new.successor = None, old
        self._book.count(RECYCLED, (old.name,))
        self._departed.write(self._book.dump())
        if old.pid:
            self._retiring.append((old, now + self._grace))
            _kill(old.pid, signal.SIGTERM)

    def _end(self, *, waits_for_clients: bool = False) -> int:
        log.info("ending")
        if waits_for_clients:
            self._is_ending.set()
        deadline = time.monotonic() + self._grace
        clean = True
        for is_last in (False, True):
            running = [
                p for p in self._list_all() if p.pid and (p.is_vital or p.ends_last) is is_last
            ]
            for post in running:
                _kill(post.pid, signal.SIGTERM)
            for post in running:
                code = _wait(post.pid, deadline)
                if code != 0:
                    clean = False
                    log.error("process did not end well", extra={"role": post.name, "code": code})
        return 0 if clean else 1


def _is_answering(post: Post, probe: Probe, now: float) -> bool:
    probe.step(now)
    return probe.is_answered(now, post.patience * _PROBE_PATIENCE)


def _start(post: Post) -> None:
    post.slot.clear()
    if post.probe is not None:
        post.probe.reset()
    post.started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _run_child(post)
    post.pid = pid
    log.info("process started", extra={"role": post.name, "child": pid})


def _run_child(post: Post) -> None:
    """The child's whole life; it never returns into the parent's code."""
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        _die_with_parent()
        post.run(post.slot)
        code = 0
    except KeyboardInterrupt:
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Exception:
        log.exception("process failed", extra={"role": post.name})
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _die_with_parent() -> None:
    """A child must not answer on when nobody watches over it."""
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
