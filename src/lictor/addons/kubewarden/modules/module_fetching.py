"""Modules of Wasm policies, fetched in the background: a caller gets NotYetError until then.

Each namespace has separate threads, and few: a registry that is slow delays the policies of
that namespace, and no others.
"""

import logging
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lictor.addons.kubewarden.modules.server_modules import ServerSources
from lictor.core.errors import LictorError, LookupFailedError, ModuleError, NotYetError

if TYPE_CHECKING:
    from lictor.core.lang.wasm_module import Modules, WasmModule

log = logging.getLogger(__name__)

# Address, namespace of the policy that names it, and its server (None: lictor itself).
ModuleKey: TypeAlias = tuple[str, str, ServerSources | None]
OpenModules: TypeAlias = "Callable[[ServerSources | None], Modules]"

_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 300.0
# At the same time, for policies of one namespace; for those of the whole cluster; and for all.
_MOST_OF_A_NAMESPACE = 2
_MOST_OF_THE_CLUSTER = 8
_MOST = 24
# So many more of a namespace wait for their turn.
_MOST_IN_LINE = 64
# How long a caller should wait before it retries; a notification may come earlier.
_PATIENCE = 30.0


class _Fetch(msgspec.Struct):
    """What became of a module: on its way, there, or not to be had for now."""

    is_running: bool = False
    # Until it is requested; then its user keeps it.
    arrived: "WasmModule | None" = None
    known: "weakref.ref[WasmModule] | None" = None
    error: LictorError | None = None
    retry_at: float = 0.0
    failures: int = 0


class FetchedModules:
    """Implements `core.lang.wasm_module.Modules` without blocking."""

    def __init__(
        self,
        open_modules: "OpenModules",
        on_news: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_news` is called, on some thread, whenever a fetch has ended."""
        self._open = open_modules
        # What one server may fetch is nothing to the policies of another.
        self._opened: dict[ServerSources | None, Modules] = {}
        self._on_news = on_news
        self._clock = clock
        self._fetches: dict[ModuleKey, _Fetch] = {}
        self._lines: defaultdict[str, deque[ModuleKey]] = defaultdict(deque)
        self._running: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def load(
        self, address: str, namespace: str = "", server: ServerSources | None = None
    ) -> "WasmModule":
        """The module where it is there; NotYetError where it is on its way."""
        key = (address, namespace, server)
        with self._lock:
            fetch = self._fetches.setdefault(key, _Fetch())
            module = _take(fetch)
            if module is not None:
                return module
            if not fetch.is_running:
                if fetch.error is not None and self._clock() < fetch.retry_at:
                    raise fetch.error
                self._stand_in_line(key, fetch)
            # While it is tried again, why it could not be had before is all that is known.
            last = fetch.error
        self._start_some()
        reason = f"module {address} is being fetched"
        raise NotYetError(reason if last is None else f"{last}; {reason} again", patience=_PATIENCE)

    def keep(self, live: set[ModuleKey]) -> None:
        """Forget modules that are no longer requested."""
        with self._lock:
            gone = [key for key in self._fetches.keys() - live if not self._fetches[key].is_running]
            for key in gone:
                del self._fetches[key]
            servers = {server for _, _, server in self._fetches}
            self._opened = {one: each for one, each in self._opened.items() if one in servers}

    def find_pause(self, keys: set[ModuleKey]) -> float:
        """Seconds until one of these that could not be had is worth another try."""
        with self._lock:
            found = (self._fetches.get(key) for key in keys)
            times = [each.retry_at for each in found if each is not None and each.error is not None]
        return max(min(times, default=0.0) - self._clock(), 1.0)

    def _stand_in_line(self, key: ModuleKey, fetch: _Fetch) -> None:
        line = self._lines[key[1]]
        if len(line) >= _MOST_IN_LINE:
            where = f"namespace {key[1]}" if key[1] else "the cluster"
            raise LookupFailedError(f"too many modules of {where} are being fetched: try again")
        fetch.is_running = True
        line.append(key)

    def _start_some(self) -> None:
        with self._lock:
            for namespace, line in list(self._lines.items()):
                most = _MOST_OF_A_NAMESPACE if namespace else _MOST_OF_THE_CLUSTER
                while line and self._running[namespace] < most and self._has_capacity(namespace):
                    self._running[namespace] += 1
                    self._start(line.popleft())
                if not line:
                    del self._lines[namespace]

    def _has_capacity(self, namespace: str) -> bool:
        # Policies of the whole cluster never wait for those of namespaces.
        return not namespace or sum(self._running.values()) - self._running[""] < _MOST

    def _start(self, key: ModuleKey) -> None:
        # Not a pool: its threads would be waited for when the process ends.
        thread = threading.Thread(target=self._run, args=(key,), name="module", daemon=True)
        thread.start()

    def _run(self, key: ModuleKey) -> None:
        module, error = self._try(key)
        with self._lock:
            self._running[key[1]] -= 1
            if not self._running[key[1]]:
                del self._running[key[1]]
            self._settle(key, module, error)
        self._start_some()
        self._on_news()

    def _settle(
        self, key: ModuleKey, module: "WasmModule | None", error: LictorError | None
    ) -> None:
        fetch = self._fetches.setdefault(key, _Fetch())
        fetch.is_running = False
        fetch.arrived, fetch.error = module, error
        if error is not None:
            fetch.failures += 1
            pause = min(_FIRST_PAUSE * 2 ** (fetch.failures - 1), _LONGEST_PAUSE)
            fetch.retry_at = self._clock() + pause
        else:
            fetch.failures = 0

    def _try(self, key: ModuleKey) -> "tuple[WasmModule | None, LictorError | None]":
        try:
            address, namespace, server = key
            return self._find_modules(server).load(address, namespace), None
        except LictorError as error:
            log.warning("module not fetched", extra={"address": key[0], "why": str(error)[:500]})
            return None, error
        except Exception as error:
            # An internal error in one module must not leave its policy waiting for ever.
            log.exception("module broke the fetcher", extra={"address": key[0]})
            reason = f"{key[0]}: this should not have happened ({type(error).__name__})"
            return None, ModuleError(reason)

    def _find_modules(self, server: ServerSources | None) -> "Modules":
        with self._lock:
            found = self._opened.get(server)
        if found is None:
            # Two threads may both open one: the first is kept. Those of others need not wait.
            opened = self._open(server)
            with self._lock:
                found = self._opened.setdefault(server, opened)
        return found


def _take(fetch: _Fetch) -> "WasmModule | None":
    if fetch.arrived is not None:
        module, fetch.arrived = fetch.arrived, None
        fetch.known = weakref.ref(module)
        return module
    return fetch.known() if fetch.known is not None else None


class RequestedModules:
    """The modules of one policy, and whether one of them could not be fetched."""

    def __init__(self, modules: FetchedModules, server: ServerSources | None = None) -> None:
        self._modules = modules
        self._server = server
        self.keys: set[ModuleKey] = set()
        # Was one requested that may be available later?
        self.has_failed = False
        # Is there one that there is no module for, now or ever?
        self.is_missing = False

    def load(self, address: str, namespace: str = "") -> "WasmModule":
        """The same as without being watched."""
        self.keys.add((address, namespace, self._server))
        try:
            return self._modules.load(address, namespace, self._server)
        except LictorError as error:
            self.is_missing = True
            self.has_failed = self.has_failed or isinstance(error, LookupFailedError)
            raise
