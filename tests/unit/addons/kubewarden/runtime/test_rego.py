"""Rego in Wasm: what a module answers is read strictly, and whatever it does wrong is an error."""

import base64
import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from wat_guests import LOOP, assemble, data

from lictor.addons.kubewarden.runtime import open_guest
from lictor.addons.kubewarden.runtime.engine import compile_module
from lictor.addons.kubewarden.runtime.rego_data import RegoData
from lictor.core.errors import (
    GuestError,
    GuestTimeError,
    HostCallError,
    ModuleError,
    SlowRequestError,
)
from lictor.core.lang.wasm_records import (
    ContextResource,
    ExecutionMode,
    GuestLimits,
    NoHostCalls,
    brief_seconds,
)

GATEKEEPER, OPA = ExecutionMode.GATEKEEPER, ExecutionMode.OPA
FINE = '[{"result":[]}]'
STEPS = """
  (func (export "opa_eval_ctx_new") (result i32) (i32.const 64))
  (func (export "opa_eval_ctx_set_input") (param i32 i32))
  (func (export "opa_eval_ctx_set_data") (param i32 i32))
  (func (export "opa_eval_ctx_set_entrypoint") (param i32 i32))
  (func (export "opa_eval_ctx_get_result") (param i32) (result i32) (i32.const 4096))
"""


def rego(
    answer=FINE,
    code="",
    *,
    builtins="{}",
    version=(1, 2),
    whole=True,
    extra="",
    entrypoints='{"p/violation": 0}',
    memory=5,
):
    """A module with OPA's functions around `code`; texts are their own values."""
    evaluate = '(func (export "opa_eval") (param i32 i32 i32 i32 i32 i32 i32) (result i32)'
    return assemble(f"""(module
      (import "env" "memory" (memory {memory}))
      (import "env" "opa_abort" (func $abort (param i32)))
      (import "env" "opa_println" (func $println (param i32)))
      (import "env" "opa_builtin0" (func $builtin0 (param i32 i32) (result i32)))
      (import "env" "opa_builtin1" (func $builtin1 (param i32 i32 i32) (result i32)))
      (export "memory" (memory 0))
      (global (export "opa_wasm_abi_version") i32 (i32.const {version[0]}))
      (global (export "opa_wasm_abi_minor_version") i32 (i32.const {version[1]}))
      (global $heap (mut i32) (i32.const 65536))
      (global $calls (mut i32) (i32.const 0))
      {data(1024, builtins)} {data(2048, entrypoints)} {data(4096, answer)} {extra}
      (func (export "builtins") (result i32) (i32.const 1024))
      (func (export "entrypoints") (result i32) (i32.const 2048))
      (func (export "opa_malloc") (param i32) (result i32)
        (global.get $heap) (global.set $heap (i32.add (global.get $heap) (local.get 0))))
      (func (export "opa_json_parse") (param i32 i32) (result i32) (local.get 0))
      (func (export "opa_json_dump") (param i32) (result i32) (local.get 0))
      (func (export "opa_heap_ptr_get") (result i32) (global.get $heap))
      (func (export "opa_heap_ptr_set") (param i32) (global.set $heap (local.get 0)))
      {STEPS}
      (func $run (export "eval") (param i32) (result i32) {code} (i32.const 0))
      {evaluate + " (drop (call $run (i32.const 0))) (i32.const 4096))" if whole else ""})""")


def open_rego(content, engine, mode=GATEKEEPER, host=None, **limits):
    module = compile_module(content, engine)
    return open_guest(module, mode, GuestLimits(**limits), host or NoHostCalls())


def ask(engine, mode, result, request=None):
    text = json.dumps([{"result": result}])
    return open_rego(rego(text), engine, mode).validate(request or {"object": {"a": 1}}, {})


@pytest.mark.parametrize("version", [(1, 1), (1, 2), (1, 3)])
@pytest.mark.parametrize("whole", [True, False])
def test_all_versions_of_the_protocol_are_spoken(engine, version, whole):
    content = rego('[{"result":[{"msg":"no"}]}]', version=version, whole=whole)
    answer = open_rego(content, engine).validate({}, {})
    assert (answer.accepted, answer.message, answer.code) == (False, "no", None)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([{"msg": "one"}], "one"),
        ([{"msg": "b"}, {"msg": "a"}], "a, b"),
        ([{"msg": "x", "details": {"a": 1}}], "x"),
        ([{"msg": None}], ""),
        ([{"other": 1}], ""),
    ],
)
def test_violations_refuse(engine, result, message):
    answer = ask(engine, GATEKEEPER, result)
    assert (answer.accepted, answer.message) == (False, message)


@pytest.mark.parametrize(
    "result",
    [[{"msg": 5}], [{"msg": "good"}, {"msg": ["bad"]}], ["text"], [None], {"msg": "x"}, True, None, "", 0, {}],
)  # fmt: skip
def test_violations_of_another_shape_are_an_error(engine, result):
    with pytest.raises(GuestError):
        ask(engine, GATEKEEPER, result)


@pytest.mark.parametrize("mode", [GATEKEEPER, OPA])
@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "[1]", "[{}]", '[{"result":[]},{"result":[]}]', "no", "[{"]
)
def test_an_answer_that_cannot_be_read_is_an_error(engine, mode, text):
    with pytest.raises(GuestError):
        open_rego(rego(text), engine, mode).validate({}, {})


def test_only_the_empty_set_accepts(engine):
    assert open_rego(rego(FINE), engine).validate({}, {}).accepted
    assert open_rego(rego('[{"result": []}]'), engine).validate({}, {}).accepted


def test_gatekeeper_takes_requests_of_kubernetes_only(engine):
    with pytest.raises(GuestError, match="requests of Kubernetes only"):
        open_rego(rego(), engine).validate("raw", {})


def test_a_response_of_opa_is_the_answer(engine):
    response = {
        "uid": "ignored",
        "allowed": False,
        "status": {"message": "no", "code": 403},
        "warnings": ["careful"],
        "auditAnnotations": {"k": "v"},
    }
    answer = ask(engine, OPA, {"kind": "AdmissionReview", "response": response})
    assert (answer.accepted, answer.message, answer.code) == (False, "no", 403)
    assert (answer.warnings, answer.audit_annotations) == (["careful"], {"k": "v"})


def test_a_patch_of_opa_becomes_the_object(engine):
    patch = base64.b64encode(b'[{"op":"add","path":"/b","value":2}]').decode()
    response = {"uid": "", "allowed": True, "patch": patch, "patchType": "JSONPatch"}
    assert ask(engine, OPA, {"response": response}).mutated_object == {"a": 1, "b": 2}


def _encode(text):
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "response",
    [
        {},
        None,
        {"allowed": True},
        {"uid": "", "allowed": "true"},
        {"uid": "", "allowed": 1},
        {"uid": "", "allowed": True, "status": "no"},
        {"uid": "", "allowed": True, "status": {"code": 70000}},
        {"uid": "", "allowed": True, "status": {"message": 5}},
        {"uid": "", "allowed": True, "warnings": "x"},
        {"uid": "", "allowed": True, "patch": "no base64"},
        {"uid": "", "allowed": True, "patch": _encode("{}")},
        {"uid": "", "allowed": True, "patch": _encode('[{"op":"remove","path":"/x"}]')},
        {"uid": "", "allowed": True, "patch": _encode('[{"op":"test","path":"/a","value":2}]')},
        {"uid": "", "allowed": True, "patch": _encode("[]"), "patchType": "Merge"},
    ],
)
def test_a_response_of_another_shape_is_an_error(engine, response):
    with pytest.raises(GuestError):
        ask(engine, OPA, {"response": response})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (rego(version=(2, 0)), "another version"),
        (rego(version=(1, 4)), "another version"),
        (rego(entrypoints="{}"), "no entrypoint"),
        (rego(entrypoints="[]"), "no entrypoint"),
        (rego(builtins="[]"), "does not list the builtins"),
        (rego(builtins='{"x.y": 0}'), "unsupported builtins: x.y"),
        (rego(builtins='{"http.send": 0}'), "uses the network"),
        (rego(memory=8192), "more memory"),
        (assemble("(module)"), "no function"),
        (assemble('(module (import "env" "x" (func)))'), "no Rego policy"),
        (assemble('(module (import "env" "opa_abort" (func (param i64))))'), "not the type"),
        (assemble('(module (func (export "eval") (param i64) (result i32) (i32.const 0)) (func (export "builtins") (result i64) (i64.const 0)))'), "not the type"),
    ],
)  # fmt: skip
def test_what_is_no_policy_in_rego_is_not_loaded(engine, content, told):
    with pytest.raises(ModuleError, match=told):
        open_rego(content, engine)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("(unreachable)", "gave up"),
        ("(call $abort (i32.const 4096))", "ended itself"),
        ("(drop (i32.load (i32.const 99999999)))", "outside of its memory"),
        ("(drop (call $builtin0 (i32.const 9) (i32.const 0)))", "did not name"),
        (
            "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) (unreachable)",
            "of the 256 MiB",
        ),
    ],
)
def test_a_module_that_fails_gives_no_answer(engine, code, told):
    guest = open_rego(rego(code=code), engine)
    for _ in range(2):
        with pytest.raises(GuestError, match=told):
            guest.validate({}, {})


def test_an_instance_that_failed_is_not_used_again(engine):
    # It counts its calls, and fails the second.
    code = """(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
      (if (i32.eq (global.get $calls) (i32.const 2)) (then (unreachable)))"""
    guest = open_rego(rego(code=code), engine)
    assert guest.validate({}, {}).accepted
    with pytest.raises(GuestError):
        guest.validate({}, {})
    assert guest.validate({}, {}).accepted


def test_time_is_limited(engine):
    guest = open_rego(rego(code=LOOP), engine, seconds=0.2)
    began = time.monotonic()
    with pytest.raises(GuestTimeError, match=r"time limit of 0\.2 seconds"):
        guest.validate({}, {})
    assert time.monotonic() - began < 30


def test_a_loop_while_starting_is_stopped(engine):
    content = rego(extra=f"(start $begin) (func $begin {LOOP})")
    with pytest.raises(GuestTimeError):
        open_rego(content, engine, seconds=0.2)


def test_a_thread_that_serves_others_is_not_held_up(engine):
    guest = open_rego(rego(code=LOOP), engine, seconds=30)
    token = brief_seconds.set(0.1)
    try:
        with pytest.raises(SlowRequestError):
            guest.validate({}, {})
    finally:
        brief_seconds.reset(token)


def test_an_answer_has_a_length_that_it_may_have(engine):
    long = json.dumps([{"result": [{"msg": "x" * 5000}]}])
    with pytest.raises(GuestError, match="more than the 1000 bytes"):
        open_rego(rego(long), engine, output_bytes=1000).validate({}, {})
    endless = rego(code="(memory.fill (i32.const 4096) (i32.const 120) (i32.const 323584))")
    with pytest.raises(GuestError, match="without an end"):
        open_rego(endless, engine).validate({}, {})


def test_an_input_that_does_not_fit_yet_is_allocated(engine):
    content = {"object": "x" * 1_000_000}
    # The stub does not grow its memory, which is an error and no crash.
    with pytest.raises(GuestError, match="outside of its memory"):
        open_rego(rego(), engine).validate(content, {})


CALL = "(drop (call $builtin1 (i32.const 7) (i32.const 0) (i32.const 8192)))"


def test_a_builtin_that_fails_refuses_as_in_kubewarden_or_is_undefined_as_in_opa(engine):
    broken = rego(builtins='{"hex.decode": 7}', code=CALL, extra=data(8192, '"zz"'))
    with pytest.raises(GuestError, match=r"builtin hex\.decode failed"):
        open_rego(broken, engine).validate({}, {})
    undefined = rego(builtins='{"crypto.x509.parse_certificates": 7}', code=CALL, extra=data(8192, '"zz"'))  # fmt: skip
    assert open_rego(undefined, engine).validate({}, {}).accepted
    # An argument that is no value.
    unreadable = rego(builtins='{"hex.decode": 7}', code=CALL, extra=data(8192, "{"))
    with pytest.raises(GuestError, match="cannot be read"):
        open_rego(unreadable, engine).validate({}, {})


class Host(NoHostCalls):
    def __init__(self, resources=(), fault=None):
        self.resources, self.fault, self.calls = resources, fault, []

    def call(self, namespace, operation, payload):
        self.calls.append((namespace, operation, json.loads(payload)))
        return b""

    def context(self):
        if self.fault:
            raise HostCallError(self.fault)
        return self.resources


def test_what_a_policy_prints_goes_to_its_log_and_is_bounded(engine):
    host = Host()
    print_often = f"(call $println (i32.const 8192)) {'(call $println (i32.const 8192))' * 20}"
    content = rego(code=print_often, extra=data(8192, "hello"))
    assert open_rego(content, engine, host=host, host_calls=5).validate({}, {}).accepted
    assert host.calls == [("tracing", "log", {"level": "info", "message": "hello"})] * 5


def test_a_host_that_cannot_tell_of_the_cluster_is_an_error(engine):
    with pytest.raises(GuestError, match="not granted"):
        open_rego(rego(), engine, host=Host(fault="not granted")).validate({}, {})


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}}


def test_objects_of_the_cluster_are_found_where_policies_look_for_them():
    host = Host(
        (
            ContextResource("v1", "Namespace", "namespaces", (NAMESPACE,)),
            ContextResource("v1", "Pod", "pods", (POD,)),
        )
    )
    inventory = json.loads(RegoData(host, is_gatekeeper=True).prepare({}).content)
    assert inventory == {
        "inventory": {
            "cluster": {"v1": {"Namespace": {"shop": NAMESPACE}}},
            "namespace": {"shop": {"v1": {"Pod": {"web": POD}}}},
        }
    }
    tree = json.loads(RegoData(host, is_gatekeeper=False).prepare({"a": 1}).content)
    assert tree == {"a": 1, "kubernetes": {"namespaces": {"shop": NAMESPACE}, "pods": {"shop": {"web": POD}}}}  # fmt: skip


def test_data_is_written_again_only_where_it_changes():
    host = Host((ContextResource("v1", "Pod", "pods", [POD]),))
    store = RegoData(host, is_gatekeeper=True)
    first = store.prepare({})
    assert store.prepare({}) is first
    host.resources = (ContextResource("v1", "Pod", "pods", [POD]),)
    # Listed anew, and the same.
    assert store.prepare({}) is first
    host.resources = (ContextResource("v1", "Pod", "pods", []),)
    assert store.prepare({}) is not first
    settings = {"x": 1}
    other = RegoData(Host(), is_gatekeeper=False)
    assert other.prepare(settings) is other.prepare(settings)
    assert other.prepare({"x": 2}).content == b'{"x":2}'


def test_settings_that_are_no_json_are_invalid(engine):
    guest = open_rego(rego(), engine)
    assert guest.validate_settings({"a": [1]}).valid
    assert not guest.validate_settings({"a": object()}).valid


def test_threads_do_not_see_each_other(engine):
    # It writes the number of its own call over its answer, and reads it again after a while.
    code = """(local $left i32) (local.set $left (i32.const 20000))
      (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
      (i32.store8 (i32.const 4116) (i32.add (i32.const 48) (i32.rem_u (global.get $calls) (i32.const 10))))
      (loop $wait (br_if $wait (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (if (i32.ne (i32.load8_u (i32.const 4116))
        (i32.add (i32.const 48) (i32.rem_u (global.get $calls) (i32.const 10)))) (then (unreachable)))"""
    guest = open_rego(rego('[{"result":[{"msg":"0"}]}]', code), engine)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: guest.validate({}, {}).message, range(400)))
    assert set(answers) <= set("0123456789")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells")
def test_memory_of_guests_that_failed_is_given_back_at_once(engine):
    code = "(drop (memory.grow (i32.const 1000))) (memory.fill (i32.const 65536) (i32.const 1) (i32.const 60000000)) (unreachable)"
    guest = open_rego(rego(code=code), engine)
    before = _resident_bytes()
    gc.disable()
    try:
        for _ in range(5):
            with pytest.raises(GuestError):
                guest.validate({}, {})
        held = _resident_bytes() - before
    finally:
        gc.enable()
    assert held < 130 << 20


def _resident_bytes():
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


def test_many_policies_of_a_module_that_takes_much_memory_share_what_there_is(engine):
    """Each has 32 MiB when it starts; all of them together keep no more than they may."""
    content = rego(memory=512)
    opened = [open_rego(content, engine) for _ in range(40)]
    kept = [len(guest._idle) for guest in opened]
    assert sum(kept) == 8
    # Those that were used last.
    assert kept[-8:] == [1] * 8
    for guest in (opened[0], opened[-1]):
        assert guest.validate({"object": {"a": 1}}, {}).accepted is True
