"""Guests that are WASI commands: the request on stdin, the answer on stdout."""

from typing import Final

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

_START: Final = "_start"
_PROGRAM: Final = b"policy.wasm"


def _host_call(run: CommandRun, *places: int) -> int:
    """The answer is appended to stdin; 0 means that it is one, the opposite of waPC."""
    try:
        run.append_input(run.call_host(places))
    except HostCallError as error:
        run.append_input(str(error).encode())
        return 1
    return 0


_HOST_CALL: Final = HostFunction("iiiiiiii", "i", _host_call)
_FUNCTIONS: Final[HostFunctions] = {
    ("host", "call"): _HOST_CALL,
    # Policies in JavaScript.
    ("kubewarden:javy/host", "call"): _HOST_CALL,
    **WASI_FUNCTIONS,
}


class WasiGuest:
    """A module that is a WASI command, for one policy."""

    def __init__(self, module: WasmModule, limits: GuestLimits, host: HostCalls) -> None:
        self._limits = limits
        self._host = host
        self._linked = LinkedModule(module, _FUNCTIONS, limits)
        if not self._linked.has_function(_START, "", ""):
            raise ModuleError(f"the module is no WASI policy: it exports no {_START}")
        self._linked.require_memory()
        self._closed: list[Sandbox] = []

    def validate(self, request: Json, settings: JsonObject) -> GuestAnswer:
        stdin = write_payload({"request": request, "settings": settings})
        return read_answer(self._run(b"validate", stdin))

    def validate_settings(self, settings: JsonObject) -> SettingsAnswer:
        stdin = write_payload(settings)
        return read_settings_answer(self._run(b"validate-settings", stdin))

    def _run(self, operation: bytes, stdin: bytes) -> bytes:
        run = CommandRun(self._limits, self._host, stdin)
        run.arguments = (_PROGRAM, operation)
        try:
            sandbox = self._closed.pop()
        except IndexError:
            sandbox = Sandbox(self._linked)
        try:
            sandbox.start(run)
            sandbox.call(run, _START.encode())
        except ExitError as error:
            if error.code:
                message = f"the policy ended without an answer: {error}"
                raise GuestError(run.read_stderr() or message) from error
        except GuestError as error:
            if not run.has_trapped:
                raise
            raise GuestError(run.read_stderr() or str(error)) from error
        finally:
            sandbox.close()
            self._closed.append(sandbox)
        if run.stderr:
            run.log("warn", run.read_stderr())
        return bytes(run.stdout)
