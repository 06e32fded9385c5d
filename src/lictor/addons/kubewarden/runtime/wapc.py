"""Guests that speak waPC: an operation with a payload goes in, an answer or an error comes out."""

import itertools
from typing import Final, NamedTuple

from lictor.addons.kubewarden.runtime.linking import HostFunction, HostFunctions, LinkedModule
from lictor.addons.kubewarden.runtime.preview1 import WASI_FUNCTIONS, CommandRun
from lictor.addons.kubewarden.runtime.sandbox import ExitError, Sandbox
from lictor.core.errors import GuestError, HostCallError, ModuleError
from lictor.core.lang.wasm_module import WasmModule
from lictor.core.lang.wasm_records import (
    GuestAnswer,
    GuestLimits,
    HostCalls,
    SettingsAnswer,
    read_answer,
    read_settings_answer,
    write_payload,
)
from lictor.core.raw import Json, JsonObject

# Of all policies together: fewer than an engine has memories, so that others can start.
_KEPT_INSTANCES: Final = 100
_KEPT_BYTES: Final = 96 * 1024 * 1024
# Of one instance. What leaks in a guest ends with its instance.
_LARGEST_BYTES: Final = 32 * 1024 * 1024
_CALLS: Final = 1_000


class WarmInstance(NamedTuple):
    """A started instance, whose it is, and how often it was called."""

    owner: int
    sandbox: Sandbox
    calls: int = 0


class WarmInstances:
    """The started instances that wait for a request; used by any thread.

    The thread that takes one out of the table owns it, and taking out is one step: none closes what
    another uses.
    """

    def __init__(self, *, most: int = _KEPT_INSTANCES, most_bytes: int = _KEPT_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._numbers = itertools.count()
        # Those that were used longest ago come first.
        self._waiting: dict[int, WarmInstance] = {}

    def new_owner(self) -> int:
        """A name for a policy, under which its instances are kept."""
        return next(self._numbers)

    def take(self, owner: int) -> WarmInstance | None:
        """The one that this policy used last, if one waits."""
        for number, instance in reversed(list(self._waiting.items())):
            if instance.owner == owner and self._waiting.pop(number, None) is not None:
                return instance
        return None

    def keep(self, instance: WarmInstance) -> None:
        """Let it wait for the next request of its policy, or close it."""
        calls = instance.calls + 1
        if calls >= _CALLS or instance.sandbox.memory_bytes > _LARGEST_BYTES:
            instance.sandbox.close()
            return
        self._waiting[next(self._numbers)] = instance._replace(calls=calls)
        waiting = list(self._waiting.items())
        total = sum(instance.sandbox.known_bytes for _, instance in waiting)
        for place, (number, oldest) in enumerate(waiting):
            if len(waiting) - place <= self._most and total <= self._most_bytes:
                break
            total -= oldest.sandbox.known_bytes
            self._close(number)

    def drop(self, owner: int) -> None:
        """Close all instances of a policy that is no more."""
        for number, instance in list(self._waiting.items()):
            if instance.owner == owner:
                self._close(number)

    def _close(self, number: int) -> None:
        instance = self._waiting.pop(number, None)
        if instance is not None:
            instance.sandbox.close()


# One for the process: what matters is how much memory all policies hold together.
WARM_INSTANCES: Final = WarmInstances()


_MODULE: Final = "wapc"
_GUEST_CALL: Final = "__guest_call"
_START: Final = "_start"
_WAPC_INIT: Final = "wapc_init"
_INITIALIZE: Final = "_initialize"


class WapcRun(CommandRun):
    """One call of a guest, with its host calls and output."""

    def __init__(
        self, limits: GuestLimits, host: HostCalls, operation: bytes, payload: bytes
    ) -> None:
        super().__init__(limits, host)
        self.operation = operation
        self.payload = payload
        self.response: bytes | None = None
        self.error: bytes | None = None
        self.host_response = b""
        self.host_error = b""


def _guest_request(run: WapcRun, operation: int, payload: int) -> None:
    run.sandbox.write(operation, run.operation)
    run.sandbox.write(payload, run.payload)


def _guest_response(run: WapcRun, address: int, length: int) -> None:
    run.response = run.read_output(address, length)


def _guest_error(run: WapcRun, address: int, length: int) -> None:
    run.error = run.read_output(address, length)


def _host_call(run: WapcRun, *places: int) -> int:
    try:
        run.host_response = run.call_host(places)
    except HostCallError as error:
        run.host_error = str(error).encode()
        return 0
    return 1


def _host_response_len(run: WapcRun) -> int:
    return len(run.host_response)


def _host_response(run: WapcRun, address: int) -> None:
    run.sandbox.write(address, run.host_response)


def _host_error_len(run: WapcRun) -> int:
    return len(run.host_error)


def _host_error(run: WapcRun, address: int) -> None:
    run.sandbox.write(address, run.host_error)


def _console_log(run: WapcRun, address: int, length: int) -> None:
    run.stderr += run.read_output(address, length) + b"\n"


_FUNCTIONS: Final[HostFunctions] = {
    (_MODULE, "__guest_request"): HostFunction("ii", "", _guest_request),
    (_MODULE, "__guest_response"): HostFunction("ii", "", _guest_response),
    (_MODULE, "__guest_error"): HostFunction("ii", "", _guest_error),
    (_MODULE, "__host_call"): HostFunction("iiiiiiii", "i", _host_call),
    (_MODULE, "__host_response_len"): HostFunction("", "i", _host_response_len),
    (_MODULE, "__host_response"): HostFunction("i", "", _host_response),
    (_MODULE, "__host_error_len"): HostFunction("", "i", _host_error_len),
    (_MODULE, "__host_error"): HostFunction("i", "", _host_error),
    (_MODULE, "__console_log"): HostFunction("ii", "", _console_log),
    **WASI_FUNCTIONS,
}


class WapcGuest:
    """A module that speaks waPC, for one policy.

    Each call gets a new instance, so that no request leaves anything behind. Only modules that
    export `_initialize` and no `_start` (reactors of WASI) are kept: that export means they are
    made to be called many times, and runtimes like Go's take long to start.
    """

    def __init__(self, module: WasmModule, limits: GuestLimits, host: HostCalls) -> None:
        # First of all: it is dropped also where the module turns out to be no policy.
        self._owner = WARM_INSTANCES.new_owner()
        self._limits = limits
        self._host = host
        self._linked = linked = LinkedModule(module, _FUNCTIONS, limits)
        if not linked.has_function(_GUEST_CALL, "ii", "i"):
            raise ModuleError(f"the module is no waPC policy: it exports no {_GUEST_CALL}")
        linked.require_memory()
        starts = [name for name in (_START, _WAPC_INIT) if linked.has_function(name, "", "")]
        self._is_reactor = _START not in starts and linked.has_function(_INITIALIZE, "", "")
        if self._is_reactor:
            starts.insert(0, _INITIALIZE)
        self._starts = tuple(name.encode() for name in starts)
        self._closed: list[Sandbox] = []

    def __del__(self) -> None:
        WARM_INSTANCES.drop(self._owner)

    def validate(self, request: Json, settings: JsonObject) -> GuestAnswer:
        payload = write_payload({"request": request, "settings": settings})
        return read_answer(self.call(b"validate", payload))

    def validate_settings(self, settings: JsonObject) -> SettingsAnswer:
        return read_settings_answer(self.call(b"validate_settings", write_payload(settings)))

    def protocol_version(self) -> str:
        """The protocol version that the module reports, unchanged."""
        return self.call(b"protocol_version", b"").decode("utf-8", "replace")

    def call(self, operation: bytes, payload: bytes) -> bytes:
        """The guest's answer; GuestError where there is none."""
        run = WapcRun(self._limits, self._host, operation, payload)
        try:
            answer = self._call_warm(run) if self._is_reactor else self._call_new(run)
        except GuestError as error:
            # Runtimes write the reason of a panic there.
            if run.has_trapped and run.stderr:
                raise GuestError(f"{error}: {run.read_stderr()}") from error
            raise
        if run.stderr:
            run.log("info", run.read_stderr())
        return answer

    def _call_new(self, run: WapcRun) -> bytes:
        try:
            sandbox = self._closed.pop()
        except IndexError:
            sandbox = Sandbox(self._linked)
        try:
            self._start(sandbox, run)
            return self._finish(sandbox, run)
        finally:
            sandbox.close()
            self._closed.append(sandbox)

    def _call_warm(self, run: WapcRun) -> bytes:
        instance = WARM_INSTANCES.take(self._owner)
        if instance is None:
            instance = WarmInstance(self._owner, Sandbox(self._linked))
            self._start(instance.sandbox, run)
        else:
            instance.sandbox.set_deadline()
        # A guest that fails is not kept: its state is unknown.
        answer = self._finish(instance.sandbox, run)
        WARM_INSTANCES.keep(instance)
        return answer

    def _start(self, sandbox: Sandbox, run: WapcRun) -> None:
        sandbox.start(run)
        for name in self._starts:
            try:
                sandbox.call(run, name)
            except ExitError as error:
                if error.code:
                    raise GuestError(f"the policy ended while it started: {error}") from error

    def _finish(self, sandbox: Sandbox, run: WapcRun) -> bytes:
        lengths = (len(run.operation), len(run.payload))
        try:
            told = sandbox.call(run, _GUEST_CALL.encode(), lengths)
        except ExitError as error:
            run.has_trapped = True
            raise GuestError(f"the policy ended without an answer: {error}") from error
        if told and run.response is not None:
            return run.response
        if run.error is not None:
            raise GuestError(run.error.decode("utf-8", "replace"))
        raise GuestError("the policy gave neither an answer nor an error")
