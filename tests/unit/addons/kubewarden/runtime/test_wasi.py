"""A WASI policy reads stdin and writes stdout, and finds nothing else; what it does wrong is an error."""

import json
import re
import time

import pytest
from wat_guests import LOOP, WASI_IMPORTS, assemble, data, wasi

from lictor.addons.kubewarden.runtime import open_guest
from lictor.addons.kubewarden.runtime.engine import compile_module, make_engine
from lictor.addons.kubewarden.runtime.preview1 import WASI_FUNCTIONS
from lictor.core.errors import (
    GuestError,
    GuestTimeError,
    HostCallError,
    ModuleError,
    SlowRequestError,
)
from lictor.core.lang.wasm_records import ExecutionMode, GuestLimits, NoHostCalls, brief_seconds


def open_wasi(content, engine, *, host=None, **limits):
    module = compile_module(content, engine)
    return open_guest(module, ExecutionMode.WASI, GuestLimits(**limits), host or NoHostCalls())


def failing(code: int, told: str) -> bytes:
    return wasi(
        f"(call $print (i32.const 2) (i32.const 2048) (i32.const {len(told.encode())}))"
        f" (call $exit (i32.const {code}))",
        extra=data(2048, told),
    )


def test_answers(engine):
    guest = open_wasi(wasi(), engine)
    assert guest.validate({}, {}).accepted
    assert guest.validate_settings({}).valid
    refusing = open_wasi(wasi(answer='{"accepted":false,"message":"no","valid":false}'), engine)
    answer = refusing.validate({}, {})
    assert (answer.accepted, answer.message) == (False, "no")
    assert not refusing.validate_settings({}).valid


def test_an_exit_is_an_answer_only_with_0(engine):
    text = '{"accepted":true}'
    code = f"(call $print (i32.const 1) (i32.const 2048) (i32.const {len(text)})) (call $exit (i32.const %d))"
    assert open_wasi(wasi(code % 0, extra=data(2048, text)), engine).validate({}, {}).accepted
    with pytest.raises(GuestError, match="exit code 3"):
        open_wasi(wasi(code % 3, extra=data(2048, text)), engine).validate({}, {})
    with pytest.raises(GuestError, match=r"^it broke$"):
        open_wasi(failing(42, " it broke \n"), engine).validate({}, {})
    with pytest.raises(GuestError, match=r"^settings$"):
        open_wasi(failing(1, "settings"), engine).validate_settings({})


# What the program sees goes into the text of its failure.
_ECHO = """
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))"""


def test_arguments_and_stdin(engine):
    text = f"""(module {_ECHO} {WASI_IMPORTS} (memory (export "memory") 2)
      (func $print (param $address i32) (param $length i32)
        (i32.store (i32.const 0) (local.get $address)) (i32.store (i32.const 4) (local.get $length))
        (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8))))
      (func (export "_start")
        (drop (call $sizes (i32.const 16) (i32.const 20)))
        (drop (call $args (i32.const 32) (i32.const 1024)))
        (call $print (i32.const 1024) (i32.load (i32.const 20)))
        ;; two buffers at a time, the second of no length
        (loop $more
          (i32.store (i32.const 0) (i32.const 2048)) (i32.store (i32.const 4) (i32.const 7))
          (i32.store (i32.const 8) (i32.const 2055)) (i32.store (i32.const 12) (i32.const 0))
          (drop (call $read (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 16)))
          (if (i32.load (i32.const 16)) (then
            (call $print (i32.const 2048) (i32.load (i32.const 16))) (br $more))))
        (call $exit (i32.const 1))))"""
    guest = open_wasi(assemble(text), engine)
    with pytest.raises(GuestError) as caught:
        guest.validate({"uid": "ä"}, {"a": 1})
    assert str(caught.value) == (
        'policy.wasm\0validate\0{"request":{"uid":"ä"},"settings":{"a":1}}'
    )
    with pytest.raises(GuestError) as caught:
        guest.validate_settings({"a": 1})
    assert str(caught.value) == 'policy.wasm\0validate-settings\0{"a":1}'


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("unreachable", "unreachable"),
        ("(call $exit (i32.const -1))", "exit code 4294967295"),
        ("(call $deep)", "stack"),
        ("(drop (call $write (i32.const 1) (i32.const -8) (i32.const 1) (i32.const 8)))", "outside"),
        ("(call $print (i32.const 1) (i32.const 524280) (i32.const 64))", "outside"),
        ("(call $print (i32.const 1) (i32.const 16) (i32.const -1))", "writes more"),
        ("(drop (call $write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const -1)))", "outside"),
        ("(drop (call $read (i32.const 0) (i32.const 600000) (i32.const 1) (i32.const 8)))", "outside"),
        ("(i32.store (i32.const 0) (i32.const 600000)) (i32.store (i32.const 4) (i32.const 64))"
         "(drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))", "outside"),
        ("(loop $l (call $print (i32.const 1) (i32.const 0) (i32.const 65536)) (br $l))", "writes more"),
        ("(loop $l (call $print (i32.const 2) (i32.const 0) (i32.const 65536)) (br $l))", "writes more"),
    ],
)  # fmt: skip
def test_faults(code, told, engine):
    guest = open_wasi(wasi(code, extra="(func $deep (call $deep))"), engine)
    for _ in range(2):
        with pytest.raises(GuestError, match=told):
            guest.validate({}, {})


def test_what_it_wrote_before_it_trapped_is_told(engine):
    text = "panicked at policy.rs:7"
    code = f"(call $print (i32.const 2) (i32.const 2048) (i32.const {len(text)})) unreachable"
    with pytest.raises(GuestError, match=rf"^{re.escape(text)}$"):
        open_wasi(wasi(code, extra=data(2048, text)), engine).validate({}, {})


def test_what_it_writes_to_stderr_is_logged(engine):
    lines = []

    class Listener(NoHostCalls):
        def call(self, namespace, operation, payload):
            lines.append((namespace, operation, json.loads(payload)))
            return b""

    code = "(call $print (i32.const 2) (i32.const 2048) (i32.const 4))"
    content = wasi(code, extra=data(2048, "hint"))
    assert open_wasi(content, engine, host=Listener()).validate({}, {}).accepted
    assert lines == [("tracing", "log", {"level": "warn", "message": "hint"})]
    assert open_wasi(content, engine).validate({}, {}).accepted


def test_time(engine):
    for content in (wasi(LOOP), wasi(extra=f"(func $first {LOOP}) (start $first)")):
        with pytest.raises(GuestTimeError):
            open_wasi(content, engine, seconds=0.05).validate({}, {})
        with pytest.raises(GuestTimeError):
            open_wasi(content, engine, seconds=0.05).validate_settings({})
    token = brief_seconds.set(0.02)
    try:
        with pytest.raises(SlowRequestError):
            open_wasi(wasi(LOOP), engine).validate({}, {})
    finally:
        brief_seconds.reset(token)


def test_a_guest_that_asks_for_much_at_once_does_not_hold_up_the_host(engine):
    # Lists of buffers without end, and of nothing: refused, so that the guest goes on.
    many = "(if (i32.ne (call ${} (i32.const {}) (i32.const 0) (i32.const 65535) (i32.const 8)) (i32.const 28)) (then unreachable))"
    assert (
        open_wasi(wasi(many.format("write", 1) + many.format("read", 0)), engine)
        .validate({}, {})
        .accepted
    )


_POLL = '(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))'


def sleeper(nanoseconds: int, rounds: int) -> bytes:
    text = f"""(module {_POLL} {WASI_IMPORTS} (memory (export "memory") 1) {data(1024, '{"accepted":true}')}
      (func (export "_start") (local $n i32)
        (i64.store (i32.const 64) (i64.const 7)) (i32.store (i32.const 80) (i32.const 1))
        (i64.store (i32.const 88) (i64.const {nanoseconds}))
        (loop $again
          (if (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)) (then unreachable))
          ;; one event, of the clock that was asked for
          (if (i32.ne (i32.load (i32.const 512)) (i32.const 1)) (then unreachable))
          (if (i64.ne (i64.load (i32.const 256)) (i64.const 7)) (then unreachable))
          (local.set $n (i32.add (local.get $n) (i32.const 1)))
          (br_if $again (i32.lt_u (local.get $n) (i32.const {rounds}))))
        (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 17))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"""
    return assemble(text)


def test_sleep(engine):
    start = time.monotonic()
    assert open_wasi(sleeper(30_000_000, 1), engine).validate({}, {}).accepted
    assert time.monotonic() - start >= 0.03
    # One that sleeps for an hour, again and again, is stopped as one that loops.
    start = time.monotonic()
    with pytest.raises(GuestTimeError):
        open_wasi(sleeper(3_600_000_000_000, 100), engine, seconds=0.1).validate({}, {})
    assert time.monotonic() - start < 30


def test_time_is_over_also_where_no_epoch_is_counted():
    # While nobody computes, the engine may be ticked seldom: a guest that waits does not compute.
    start = time.monotonic()
    with pytest.raises(GuestTimeError):
        open_wasi(sleeper(3_600_000_000_000, 100), make_engine(), seconds=0.1).validate({}, {})
    assert time.monotonic() - start < 30


def call_all(name: str, parameters: str) -> bytes:
    kinds = {"i": "i32", "I": "i64"}
    declared = " ".join(kinds[letter] for letter in parameters)
    values = " ".join(f"({kinds[letter]}.const 3)" for letter in parameters)
    return assemble(f"""(module
      (import "wasi_snapshot_preview1" "{name}" (func $call (param {declared}) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") 1)
      (func (export "_start") (call $exit (i32.add (i32.const 1000) (call $call {values})))))""")


_HARMLESS = {"args_get", "args_sizes_get", "environ_get", "environ_sizes_get", "clock_res_get",
             "clock_time_get", "random_get", "sched_yield",
             "poll_oneoff"}  # fmt: skip


@pytest.mark.parametrize("name", sorted({name for _, name in WASI_FUNCTIONS} - {"proc_exit"}))
def test_there_are_no_files(name, engine):
    parameters = WASI_FUNCTIONS["wasi_snapshot_preview1", name].parameters
    with pytest.raises(GuestError, match="exit code") as caught:
        open_wasi(call_all(name, parameters), engine).validate({}, {})
    code = int(str(caught.value).rpartition(" ")[2]) - 1000
    assert (code == 0) == (name in _HARMLESS), f"{name} answered {code}"


def test_environment_is_empty_and_random_is_random(engine):
    text = f"""(module {WASI_IMPORTS}
      (import "wasi_snapshot_preview1" "environ_sizes_get" (func $env (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "_start")
        (i64.store (i32.const 64) (i64.const -1))
        (drop (call $env (i32.const 64) (i32.const 68)))
        (if (i64.ne (i64.load (i32.const 64)) (i64.const 0)) (then unreachable))
        (drop (call $random (i32.const 64) (i32.const 4)))
        (call $exit (i32.load (i32.const 64)))))"""
    guest = open_wasi(assemble(text), engine)
    told = set()
    for _ in range(3):
        with pytest.raises(GuestError, match="exit code") as caught:
            guest.validate({}, {})
        told.add(str(caught.value))
    assert len(told) == 3


class Host(NoHostCalls):
    def call(self, namespace, operation, payload):
        if operation == "refused":
            raise HostCallError("not for you")
        return f"{namespace} {operation} {payload.decode()}".encode()


@pytest.mark.parametrize("module", ["host", "kubewarden:javy/host"])
@pytest.mark.parametrize(
    ("operation", "binding", "told"),
    [
        ("list", "kubewarden", "0 kubernetes list {}"),
        ("refused", "kubewarden", "1 not for you"),
        ("list", "other", "1 unknown binding: other"),
    ],
)
def test_host_calls(module, operation, binding, told, engine):
    texts = {2048: binding, 2100: "kubernetes", 2200: operation, 2300: "{}"}
    places = " ".join(f"(i32.const {at}) (i32.const {len(text)})" for at, text in texts.items())
    # The answer comes after the rest of stdin.
    text = f"""(module {WASI_IMPORTS}
      (import "{module}" "call" (func $ask (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 2) {" ".join(data(at, text) for at, text in texts.items())}
      (func $take (param $at i32)
        (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (i32.const 8192))
        (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16))))
      (func (export "_start")
        (call $take (i32.const 16384))
        (i32.store8 (i32.const 32768) (i32.add (i32.const 48) (call $ask {places})))
        (i32.store8 (i32.const 32769) (i32.const 32))
        (call $take (i32.const 32770))
        (i32.store (i32.const 0) (i32.const 32768))
        (i32.store (i32.const 4) (i32.add (i32.const 2) (i32.load (i32.const 16))))
        (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
        (call $exit (i32.const 1))))"""
    with pytest.raises(GuestError) as caught:
        open_wasi(assemble(text), engine, host=Host()).validate({}, {})
    assert str(caught.value) == told


class Generous(NoHostCalls):
    def call(self, namespace, operation, payload):
        return bytes(1 << 20)


def test_answers_that_are_not_read_do_not_pile_up(engine):
    text = f"""(module {WASI_IMPORTS}
      (import "host" "call" (func $ask (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1) {data(0, "kubewarden")}
      (func (export "_start") (loop $again
        (drop (call $ask (i32.const 0) (i32.const 10) {"(i32.const 0) " * 6})) (br $again))))"""
    with pytest.raises(GuestError, match="more data than it reads"):
        open_wasi(assemble(text), engine, host=Generous(), memory_bytes=8 << 20).validate({}, {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(module)", "exports no _start"),
        ('(module (func (export "_start")))', "exports no memory"),
        ('(module (func (export "_start") (param i32)))', "type that no host can call"),
        (
            '(module (import "wasi_snapshot_preview1" "magic" (func)))',
            "needs wasi_snapshot_preview1.magic",
        ),
    ],
)
def test_modules_that_are_no_policies(text, told, engine):
    with pytest.raises(ModuleError, match=told):
        open_wasi(assemble(text), engine)
