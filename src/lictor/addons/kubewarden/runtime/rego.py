"""Rego compiled to Wasm as a policy: Kubewarden's modes `opa` and `gatekeeper`.

What a module gives back is read strictly: an answer of another shape is a GuestError, never an
acceptance.
"""

import base64
import binascii
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec
import orjson

from lictor.addons.kubewarden.runtime.native_calls import CallbackTable, StoppedError
from lictor.addons.kubewarden.runtime.rego_data import RegoData
from lictor.addons.kubewarden.runtime.rego_instance import RegoInstance, check_module
from lictor.addons.kubewarden.runtime.sandbox import count_ticks, trap_error
from lictor.core.errors import (
    FunctionError,
    GuestError,
    LictorError,
    ModuleError,
    TooLargeError,
)
from lictor.core.lang.patch.json_patch import apply_json_patch
from lictor.core.lang.rego import STRICT, BuiltinRun, Function, find_builtins
from lictor.core.lang.rego.values import RegoValue, sort_key, write_value
from lictor.core.lang.wasm_module import WasmModule
from lictor.core.lang.wasm_records import (
    ExecutionMode,
    GuestAnswer,
    GuestLimits,
    HostCalls,
    SettingsAnswer,
    time_error,
)
from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record

# More than this above its data, and an instance is not kept: others need the memory too.
_KEPT_BYTES = 16 * 1024 * 1024
_KEPT_INSTANCES = 4

# Of all policies together, those that are larger than this hold no more than that.
_LARGE_BYTES = 1024 * 1024
_KEPT_BYTES_OF_ALL = 256 * 1024 * 1024

_Numbered: TypeAlias = dict[int, tuple[str, Function]]


class RegoGuest:
    """A Rego module in the sandbox of one policy; used by any thread."""

    def __init__(
        self, module: WasmModule, mode: ExecutionMode, limits: GuestLimits, host: HostCalls
    ) -> None:
        self._module = module
        self._limits = limits
        self._host = host
        self._is_gatekeeper = mode is ExecutionMode.GATEKEEPER
        self._data = RegoData(host, is_gatekeeper=self._is_gatekeeper)
        self._builtins: _Numbered = {}
        # Taken and given back by each evaluation; a list does both in one step.
        self._idle: list[_Runner] = []
        check_module(module.native)
        first = self._start()
        with first.running():
            self._builtins.update(_number_builtins(first.instance.read_table("builtins")))
            _check_entrypoints(first.instance.read_table("entrypoints"))
        self._keep(first, first.instance.memory_bytes())

    def __del__(self) -> None:
        while self._idle:
            runner = self._idle.pop()
            _LARGE_RUNNERS.forget(runner)
            runner.close()

    def _start(self) -> "_Runner":
        return _Runner(self._module, self._limits, self._host, self._builtins)

    def validate_settings(self, settings: JsonObject) -> SettingsAnswer:
        """Rego policies do not validate their settings; they must only be readable."""
        try:
            self._data.read_settings(settings)
        except GuestError as error:
            return SettingsAnswer(valid=False, message=str(error))
        return SettingsAnswer(valid=True)

    def validate(self, request: Json, settings: JsonObject) -> GuestAnswer:
        prepared = self._data.prepare(settings)
        content = self._data.write_input(request, settings)
        try:
            runner = self._idle.pop()
            _LARGE_RUNNERS.forget(runner)
        except IndexError:
            runner = self._start()
        with runner.running():
            if runner.instance.data_key is not prepared:
                runner.instance.set_data(prepared.content, prepared)
            answer = runner.instance.evaluate(content)
        self._give_back(runner)
        read = _read_violations if self._is_gatekeeper else read_opa_answer
        return read(answer, request)

    def _give_back(self, runner: "_Runner") -> None:
        # Only here: one that trapped or was interrupted never comes back.
        # Objects of a large cluster are held once, not by each of them.
        size = runner.instance.memory_bytes()
        most = 1 if size > 2 * _KEPT_BYTES else _KEPT_INSTANCES
        if runner.instance.grown() <= _KEPT_BYTES and len(self._idle) < most:
            self._keep(runner, size)
        else:
            runner.close()

    def _keep(self, runner: "_Runner", size: int) -> None:
        self._idle.append(runner)
        if size > _LARGE_BYTES:
            _LARGE_RUNNERS.note(runner, self._idle, size)


class _Runner:
    """An instance and what its builtins need; used by one thread at a time."""

    def __init__(
        self, module: WasmModule, limits: GuestLimits, host: HostCalls, builtins: _Numbered
    ) -> None:
        import wasmtime

        self._limits = limits
        self._builtins = builtins
        self._run = BuiltinRun(limits, host)
        self._store = wasmtime.Store(module.engine)
        self._store.set_limits(
            memory_size=limits.memory_bytes,
            table_elements=100_000,
            instances=1,
            tables=4,
            memories=1,
        )
        self._functions = CallbackTable(self._store)
        self._held: Callable[[], int] = lambda: 0
        with self.running():
            self.instance = RegoInstance(
                module.native,
                self._functions,
                self._dispatch,
                self._run.log,
                output_bytes=limits.output_bytes,
            )
        self._held = self.instance.memory_bytes

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the time limit; what stops the guest becomes an error with the reason."""
        limits = self._limits
        self._store.set_epoch_deadline(count_ticks(limits.seconds))
        self._functions.raised = None
        self._run.begin(time.time_ns(), limits.seconds)
        is_done = False
        try:
            yield
            is_done = True
        except StoppedError as stop:
            raise self._explain(str(stop)) from stop
        finally:
            if not is_done:
                self.close()

    def close(self) -> None:
        """Give its memory back at once: collecting garbage would take its time."""
        self._store.close()

    def _explain(self, told: str) -> BaseException:
        raised, limits = self._functions.raised, self._limits
        if isinstance(raised, StoppedError):
            # Stopped in a function of the guest that a builtin had called.
            raised, told = None, str(raised)
        if isinstance(raised, LictorError):
            return raised
        if isinstance(raised, Exception):
            return GuestError(f"a builtin of the policy failed: {raised!r}")
        if raised is not None:
            return raised
        if told == "INTERRUPT":
            return time_error(limits.seconds)
        return trap_error(told, self._held(), limits.memory_bytes)

    def _dispatch(self, number: int, arguments: list[RegoValue]) -> tuple[RegoValue] | None:
        found = self._builtins.get(number)
        if found is None:
            raise GuestError(
                f"the policy called a builtin of number {number}, which it did not name"
            )
        name, function = found
        try:
            return (function(self._run, arguments),)
        except FunctionError as error:
            if name in STRICT:
                raise GuestError(f"the builtin {name} failed: {error}") from error
            return None
        except (ValueError, ArithmeticError, RecursionError, TooLargeError) as error:
            raise GuestError(f"the builtin {name} failed: {error}") from error


class _LargeRunners:
    """The large instances that wait, of all policies; those that waited longest are given up.

    Many policies of one module that takes much memory would else take all of it.
    """

    def __init__(self) -> None:
        # By identity: the instance, the list it waits in, and its bytes.
        self._waiting: dict[int, tuple[_Runner, list[_Runner], int]] = {}

    def note(self, runner: _Runner, idle: list[_Runner], size: int) -> None:
        """It waits from now on."""
        self._waiting[id(runner)] = (runner, idle, size)
        waiting = list(self._waiting.values())
        total = sum(size for _, _, size in waiting)
        for oldest, place, held in waiting[:-1]:
            if total <= _KEPT_BYTES_OF_ALL:
                return
            total -= held
            self.forget(oldest)
            try:
                # One step: the thread that takes it out owns it.
                place.remove(oldest)
            except ValueError:
                continue
            oldest.close()

    def forget(self, runner: _Runner) -> None:
        """It waits no more."""
        self._waiting.pop(id(runner), None)


_LARGE_RUNNERS = _LargeRunners()


def _number_builtins(table: RegoValue) -> _Numbered:
    if not isinstance(table, dict) or not all(type(each) is int for each in table.values()):
        raise ModuleError("the module does not list the builtins that it needs")
    functions = find_builtins(table)
    return {number: (name, functions[name]) for name, number in table.items()}


def _check_entrypoints(table: RegoValue) -> None:
    if not isinstance(table, dict) or 0 not in table.values():
        raise ModuleError("the module has no entrypoint")


# --- what a policy answered, as a GuestAnswer

_NO_VIOLATION = b'[{"result":[]}]'
_ACCEPTED = GuestAnswer(accepted=True)


def _read_violations(content: bytes, _request: Json) -> GuestAnswer:
    """Gatekeeper's answer: a set of violations, each an object with a message."""
    if content == _NO_VIOLATION:
        return _ACCEPTED
    violations = _read_result(content)
    if not isinstance(violations, list):
        raise GuestError(f"the policy's violations are no set, but {_describe(violations)}")
    if len(violations) > 1:
        violations.sort(key=sort_key)
    if not violations:
        return _ACCEPTED
    return GuestAnswer(accepted=False, message=", ".join([_message(each) for each in violations]))


def _message(violation: Json) -> str:
    if not isinstance(violation, dict):
        raise GuestError(f"a violation of the policy is no object, but {_describe(violation)}")
    message = violation.get("msg")
    if message is None:
        return ""
    if not isinstance(message, str):
        raise GuestError(f"the msg of a violation is no text, but {_describe(message)}")
    return message


class _Status(msgspec.Struct):
    message: str | None = None
    code: int | None = None


class _Response(msgspec.Struct, rename="camel"):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch: str | None = None
    patch_type: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: list[str] | None = None


class _Review(msgspec.Struct):
    response: _Response


# Made now, not when threads first read one at the same time: msgspec would crash.
msgspec.json.Decoder(_Review)


def read_opa_answer(content: bytes, request: Json) -> GuestAnswer:
    """OPA's answer: an object with the response of an AdmissionReview."""
    result = _read_result(content)
    try:
        response = convert_record(result, _Review).response
    except msgspec.ValidationError as error:
        raise GuestError(f"the policy's answer is no AdmissionReview: {error}") from error
    status = response.status or _Status()
    if status.code is not None and not 0 <= status.code <= 65535:
        raise GuestError(f"the policy's answer has the code {status.code}, which is none")
    return GuestAnswer(
        accepted=response.allowed,
        message=status.message,
        code=status.code,
        mutated_object=_apply_patch(response, request),
        audit_annotations=response.audit_annotations,
        warnings=response.warnings,
    )


def _apply_patch(response: _Response, request: Json) -> Json:
    if response.patch is None:
        return None
    if response.patch_type not in (None, "JSONPatch"):
        raise GuestError(f"the policy's patch is of type {response.patch_type}, not JSONPatch")
    given = request.get("object") if isinstance(request, dict) else None
    if given is None:
        raise GuestError("the policy gave a patch for a request without an object")
    try:
        operations = orjson.loads(base64.b64decode(response.patch, validate=True))
        if not isinstance(operations, list):
            raise GuestError("the policy's patch is no list of operations")
        return apply_json_patch(given, operations, must_pass_tests=True)
    except (binascii.Error, ValueError, LictorError) as error:
        raise GuestError(f"the policy's patch cannot be used: {error}") from error


def _read_result(content: bytes) -> Json:
    """The value of the one result; nothing at all is nothing that can be read."""
    try:
        results = orjson.loads(content)
    except orjson.JSONDecodeError:
        results = _read_odd(content)
    if not isinstance(results, list) or len(results) > 1:
        raise GuestError("the policy's answer cannot be read")
    if not results:
        raise GuestError("the policy's answer is undefined: its entrypoint gave no value")
    first = results[0]
    if not isinstance(first, dict) or "result" not in first:
        raise GuestError("the policy's answer has no result")
    return first["result"]


def _read_odd(content: bytes) -> Json:
    # Halves of surrogate pairs, which Go and Wasm let through.
    try:
        from lictor.core.lang.go_number import decode_json

        return decode_json(content.decode(errors="replace"))
    except (ValueError, json.JSONDecodeError) as error:
        raise GuestError(f"the policy's answer is no JSON: {error}") from error


def _describe(value: Json) -> str:
    text = write_value(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
