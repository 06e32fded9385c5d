"""A waPC policy is heard as it speaks; one that traps, loops or lies is an error, whatever it does."""

import gc
import json
import time

import pytest
from wat_guests import ACCEPT, LOOP, WAPC_IMPORTS, assemble, data, wapc

from lictor.addons.kubewarden.runtime import open_guest
from lictor.addons.kubewarden.runtime.engine import compile_module, make_engine
from lictor.addons.kubewarden.runtime.wapc import WARM_INSTANCES, WarmInstance, WarmInstances
from lictor.core.errors import (
    GuestError,
    GuestTimeError,
    HostCallError,
    ModuleError,
    SlowRequestError,
)
from lictor.core.lang.wasm_records import (
    ExecutionMode,
    GuestAnswer,
    GuestLimits,
    NoHostCalls,
    SettingsAnswer,
    brief_seconds,
)


def open_wapc(content, engine, *, host=None, **limits):
    module = compile_module(content, engine)
    return open_guest(module, ExecutionMode.WAPC, GuestLimits(**limits), host or NoHostCalls())


def say(text: str, at: int = 4096) -> dict[str, str]:
    """A guest that answers with `text`, whatever that is."""
    return {
        "validate": f"(call $respond (i32.const {at}) (i32.const {len(text.encode())}))"
        " (return (i32.const 1))",
        "extra": data(at, text),
    }


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (ACCEPT, GuestAnswer(accepted=True)),
        ('  {"accepted": false, "message": "no", "code": 403}\n', GuestAnswer(accepted=False, message="no", code=403)),
        ('{"accepted":true,"message":null,"code":null,"mutated_object":null}', GuestAnswer(accepted=True)),
        ('{"accepted":true,"other":1}', GuestAnswer(accepted=True)),
        ('{"accepted":true,"mutated_object":{"accepted":false}}',
         GuestAnswer(accepted=True, mutated_object={"accepted": False})),
        ('{"accepted":true,"warnings":["a"],"audit_annotations":{"b":"c"}}',
         GuestAnswer(accepted=True, warnings=["a"], audit_annotations={"b": "c"})),
        ('{"accepted":true,"message":"\\u0061"}', GuestAnswer(accepted=True, message="a")),
        (' {"message": "\\u0061", "accepted" :true, "other": {"accepted":1, "message":1}} ',
         GuestAnswer(accepted=True, message="a")),
    ],
)  # fmt: skip
def test_answers(text, answer, engine):
    guest = open_wapc(wapc(**say(text)), engine)
    assert guest.validate({}, {}) == answer
    assert guest.validate_settings({}) == SettingsAnswer(valid=True)


@pytest.mark.parametrize(
    "text",
    ["", "no", "null", "[]", "[true]", "7", '"x"', "{}", '{"accepted":null}', '{"accepted":"true"}',
     '{"accepted":1}', ACCEPT + ACCEPT, ACCEPT[:-1], '{"accepted":true,"accepted":true}',
     '{"accepted":false,"\\u0061ccepted":true}', '{"accepted":true,"code":65536}',
     '{"accepted":true,"code":-1}', '{"accepted":true,"code":"403"}', '{"accepted":true,"code":1.5}',
     '{"accepted":true,"warnings":"w"}', '{"accepted":true,"warnings":[1]}',
     '{"accepted":true,"audit_annotations":{"a":1}}', '{"accepted":true,"message":7}',
     '{"accepted":true,"mutated_object":' + "[" * 5000,
     '{"accepted":true,"mutated_object":' + "[" * 502 + "]" * 502 + "}"],
)  # fmt: skip
def test_what_is_no_answer(text, engine):
    with pytest.raises(GuestError):
        open_wapc(wapc(**say(text)), engine).validate({}, {})


def test_what_cannot_be_told_to_a_guest(engine):
    guest = open_wapc(wapc(), engine)
    for request in (nest(3000), nest(501), "\ud800", object()):
        with pytest.raises(GuestError, match="cannot be encoded"):
            guest.validate(request, {})
    # Numbers of any size can.
    assert guest.validate({"a": 2**80}, {}).accepted
    assert guest.validate(nest(498), {}).accepted


def nest(levels):
    deep = None
    for _ in range(levels):
        deep = [deep]
    return deep


def test_bytes_that_are_no_text(engine):
    guest = wapc(
        "(i32.store8 (i32.const 1040) (i32.const 255))", answer='{"accepted":true,"message":"x"}'
    )
    with pytest.raises(GuestError):
        open_wapc(guest, engine).validate({}, {})


def test_settings(engine):
    guest = open_wapc(wapc(valid='{"valid":false,"message":"no such field"}'), engine)
    assert guest.validate_settings({"a": 1}) == SettingsAnswer(valid=False, message="no such field")
    for text in ('{"valid":1}', "{}", "", '{"valid":true,"valid":false}'):
        with pytest.raises(GuestError):
            open_wapc(wapc(valid=text), engine).validate_settings({})


def test_the_guest_gets_request_and_settings(engine):
    echo = wapc("(call $complain (i32.const 65536) (local.get $payload)) (return (i32.const 0))")
    with pytest.raises(GuestError) as caught:
        open_wapc(echo, engine).validate({"uid": "ä", "kind": {"b": 1, "a": 2}}, {"b": [1]})
    assert str(caught.value) == (
        '{"request":{"kind":{"a":2,"b":1},"uid":"ä"},"settings":{"b":[1]}}'
    )


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("(return (i32.const 0))", "neither an answer nor an error"),
        ("(return (i32.const 1))", "neither an answer nor an error"),
        ("(call $respond (i32.const 1024) (i32.const 17)) (return (i32.const 0))", "neither"),
        ("unreachable", "unreachable"),
        ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "zero"),
        ("(drop (i32.load (i32.const -4)))", "outside of its memory"),
        ("(call $deep)", "stack"),
        ("(call $respond (i32.const -16) (i32.const 64))", "outside of its memory"),
        ("(call $respond (i32.const 524280) (i32.const 64))", "outside of its memory"),
        ("(call $respond (i32.const 16) (i32.const -1))", "bytes"),
        ("(call $request (i32.const 0) (i32.const 524288))", "outside of its memory"),
        ("(call $request (i32.const -1) (i32.const 0))", "outside of its memory"),
        ("(call $take_response (i32.const -1)) (call $take_error (i32.const 600000))", "outside"),
        ("(drop (call $ask (i32.const 0) (i32.const 900000) (i32.const 0) (i32.const 0) (i32.const 0)"
         " (i32.const 0) (i32.const 0) (i32.const 0)))", "outside of its memory"),
        ("(loop $l (call $log (i32.const 0) (i32.const 65536)) (br $l))", "writes more"),
    ],
)  # fmt: skip
def test_faults(code, told, engine):
    guest = open_wapc(wapc(code, extra="(func $deep (call $deep))"), engine)
    for _ in range(2):
        with pytest.raises(GuestError, match=told):
            guest.validate({}, {})
    # Others of the same module go on, and so does this one.
    assert guest.validate_settings({}).valid


def test_a_guest_that_loops_is_stopped(engine):
    for content in (
        wapc(LOOP),
        wapc(extra=f'(func (export "_start") {LOOP})'),
        wapc(extra=f'(func (export "wapc_init") {LOOP})'),
        wapc(extra=f"(func $start {LOOP}) (start $start)"),
    ):
        with pytest.raises(GuestTimeError, match=r"time limit of 0\.05 seconds"):
            open_wapc(content, engine, seconds=0.05).validate({}, {})
    with pytest.raises(GuestTimeError):
        open_wapc(wapc(settings=LOOP), engine, seconds=0.05).validate_settings({})


def test_whoever_serves_others_asks_for_less_time(engine):
    token = brief_seconds.set(0.02)
    try:
        for seconds in (2.0, None):
            with pytest.raises(SlowRequestError):
                open_wapc(wapc(LOOP), engine, seconds=seconds).validate({}, {})
        with pytest.raises(GuestTimeError):
            open_wapc(wapc(LOOP), engine, seconds=0.01).validate({}, {})
        assert open_wapc(wapc(), engine).validate({}, {}).accepted
    finally:
        brief_seconds.reset(token)


def test_memory_is_limited(engine):
    grow = "(if (i32.eq (memory.grow (i32.const 64)) (i32.const -1)) (then unreachable))"
    assert open_wapc(wapc(grow), engine).validate({}, {}).accepted
    with pytest.raises(GuestError, match="unreachable"):
        open_wapc(wapc(grow), engine, memory_bytes=2 << 20).validate({}, {})
    with pytest.raises(GuestError, match="memory"):
        open_wapc(wapc(), engine, memory_bytes=65536).validate({}, {})


def test_an_answer_is_limited(engine):
    assert open_wapc(wapc(), engine, output_bytes=17).validate({}, {}).accepted
    with pytest.raises(GuestError, match="more than the 16 bytes"):
        open_wapc(wapc(), engine, output_bytes=16).validate({}, {})


_ORDER = (
    "(global $order (mut i32) (i32.const 0))"
    + "".join(
        f'(func (export "{name}") (global.set $order'
        f" (i32.add (i32.mul (global.get $order) (i32.const 10)) (i32.const {digit}))))"
        for name, digit in (("_start", 1), ("wapc_init", 2))
    )
)  # fmt: skip


def test_what_is_run_before_the_first_call(engine):
    # _start, then wapc_init; _initialize only where there is no _start.
    check = "(if (i32.ne (global.get $order) (i32.const 12)) (then unreachable))"
    spoilt = '(func (export "_initialize") (global.set $order (i32.const 900)))'
    assert open_wapc(wapc(check, extra=_ORDER + spoilt), engine).validate({}, {}).accepted


# Writes into its answer how often it was called.
_COUNTER = """(global $calls (mut i32) (i32.const 48))
  (func $count (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.store8 (i32.const 1052) (global.get $calls)))"""
_COUNTED = {"validate": "(call $count)", "answer": '{"accepted":true,"message":"0"}'}


def test_no_request_leaves_anything_behind(engine):
    guest = open_wapc(wapc(**_COUNTED, extra=_COUNTER), engine)
    assert [guest.validate({}, {}).message for _ in range(3)] == ["1", "1", "1"]


def test_reactors_stay_warm(engine):
    initialize = '(func (export "_initialize") (global.set $calls (i32.const 53)))'
    content = wapc(**_COUNTED, extra=_COUNTER + initialize)
    guest, other = open_wapc(content, engine), open_wapc(content, engine)
    assert [guest.validate({}, {}).message for _ in range(3)] == ["6", "7", "8"]
    # Another policy of the same module has an instance of its own.
    assert other.validate({}, {}).message == "6"


def test_a_reactor_that_failed_is_not_kept(engine):
    initialize = '(func (export "_initialize") (global.set $calls (i32.const 53)))'
    third = "(call $count) (if (i32.eq (global.get $calls) (i32.const 56)) (then unreachable))"
    guest = open_wapc(wapc(third, answer=_COUNTED["answer"], extra=_COUNTER + initialize), engine)
    assert [guest.validate({}, {}).message for _ in range(2)] == ["6", "7"]
    with pytest.raises(GuestError):
        guest.validate({}, {})
    assert guest.validate({}, {}).message == "6"


class Host(NoHostCalls):
    """Answers with what it was asked."""

    def call(self, namespace, operation, payload):
        if operation == "broken":
            raise RuntimeError("a bug of the host")
        if operation == "refused":
            raise HostCallError("not for you")
        return f"{namespace} {operation} {payload.decode()}".encode()


def ask(operation: str, binding: str = "kubewarden") -> bytes:
    """Asks the host, and complains with what it hears."""
    texts = {2048: binding, 2100: "kubernetes", 2200: operation, 2300: "{}"}
    places = " ".join(f"(i32.const {at}) (i32.const {len(text)})" for at, text in texts.items())
    code = f"""(if (call $ask {places})
      (then (call $take_response (i32.const 8192))
        (call $complain (i32.const 8192) (call $response_len)))
      (else (call $take_error (i32.const 8192))
        (call $complain (i32.const 8192) (call $error_len))))
      (return (i32.const 0))"""
    return wapc(code, extra=" ".join(data(at, text) for at, text in texts.items()))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (ask("list"), "kubernetes list {}"),
        (ask("refused"), "not for you"),
        (ask("list", binding="other"), "unknown binding: other"),
    ],
)
def test_host_calls(content, told, engine):
    with pytest.raises(GuestError) as caught:
        open_wapc(content, engine, host=Host()).validate({}, {})
    assert str(caught.value) == told


class Listener(NoHostCalls):
    def __init__(self):
        self.lines = []

    def call(self, namespace, operation, payload):
        self.lines.append((namespace, operation, json.loads(payload)))
        return b""


def test_what_is_said_on_the_console_is_logged(engine):
    host = Listener()
    text = "half way"
    code = f"(call $log (i32.const 2048) (i32.const {len(text)}))" * 2
    assert (
        open_wapc(wapc(code, extra=data(2048, text)), engine, host=host).validate({}, {}).accepted
    )
    line = {"level": "info", "message": "half way\nhalf way"}
    assert host.lines == [("tracing", "log", line)]
    # A host that grants nothing does not change the answer; and why it trapped is told.
    assert open_wapc(wapc(code, extra=data(2048, text)), engine).validate({}, {}).accepted
    with pytest.raises(GuestError, match=r"unreachable\): half way"):
        open_wapc(wapc(code + "unreachable", extra=data(2048, text)), engine).validate({}, {})


def test_a_bug_of_the_host_is_not_hidden(engine):
    with pytest.raises(RuntimeError, match="a bug"):
        open_wapc(ask("broken"), engine, host=Host()).validate({}, {})


def test_host_calls_are_counted(engine):
    arguments = "(i32.const 0) " * 8
    often = wapc(f"(loop $l (drop (call $ask {arguments})) (br $l))")
    with pytest.raises(GuestError, match="more than 5 host calls"):
        open_wapc(often, engine, host=Host(), host_calls=5).validate({}, {})


class SlowHost(NoHostCalls):
    def call(self, namespace, operation, payload):
        time.sleep(0.1)
        return b""


def test_time_goes_on_while_the_host_is_asked():
    with pytest.raises(GuestTimeError):
        open_wapc(ask("list"), make_engine(), host=SlowHost(), seconds=0.05).validate({}, {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(module)", "exports no __guest_call"),
        ('(module (func (export "__guest_call")))', "type that no host can call"),
        ('(module (memory (export "__guest_call") 1))', "type that no host can call"),
        (
            '(module (func (export "__guest_call") (param i32 i32) (result i32) (i32.const 1)))',
            "exports no memory",
        ),
        ('(module (import "wapc" "__else" (func)))', "needs wapc.__else"),
        ('(module (import "env" "memory" (memory 1)))', "needs env.memory"),
        ('(module (import "wapc" "__guest_error" (func (param i64))))', "does not fit"),
        (f'(module {WAPC_IMPORTS} (import "wapc" "__guest_error" (func (param i32))))', "not fit"),
    ],
)
def test_modules_that_are_no_policies(text, told, engine):
    with pytest.raises(ModuleError, match=told):
        open_wapc(assemble(text), engine)


def test_warm_instances_are_bounded(engine):
    class Kept:
        def __init__(self, size):
            self.memory_bytes = self.known_bytes = size
            self.is_open = True

        def close(self):
            self.is_open = False

    kept = WarmInstances(most=3, most_bytes=50)
    sandboxes = [Kept(size) for size in (10, 10, 10, 10, 45)]
    owners = [kept.new_owner() for _ in sandboxes]
    for owner, sandbox in zip(owners[:4], sandboxes, strict=False):
        kept.keep(WarmInstance(owner, sandbox))
    # The oldest goes; then all that are too much beside a large one.
    assert [sandbox.is_open for sandbox in sandboxes] == [False, True, True, True, True]
    kept.keep(WarmInstance(owners[4], sandboxes[4]))
    assert [sandbox.is_open for sandbox in sandboxes] == [False, False, False, False, True]
    assert kept.take(owners[3]) is None
    assert kept.take(owners[4]).sandbox is sandboxes[4]
    assert kept.take(owners[4]) is None
    kept.keep(WarmInstance(owners[4], sandboxes[4], calls=998))
    kept.keep(kept.take(owners[4]))
    assert not sandboxes[4].is_open


def test_a_policy_that_is_gone_keeps_nothing(engine):
    initialize = '(func (export "_initialize"))'
    guest = open_wapc(wapc(extra=initialize), engine)
    guest.validate({}, {})
    owner = guest._owner
    del guest
    gc.collect()
    assert WARM_INSTANCES.take(owner) is None
