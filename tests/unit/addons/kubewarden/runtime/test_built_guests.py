"""Policies as their authors build them, in Go and Rust: right answers, and limits that hold."""

import threading
import time

import pytest
from built_guests import build_guest

from lictor.addons.kubewarden.runtime import open_guest
from lictor.addons.kubewarden.runtime.engine import compile_module
from lictor.core.errors import GuestError, GuestTimeError, HostCallError
from lictor.core.lang.wasm_records import ExecutionMode, GuestAnswer, GuestLimits, NoHostCalls

_POD = {"object": {"kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}}}
_MODES = {"wapc": ExecutionMode.WAPC, "wasi": ExecutionMode.WASI}


@pytest.fixture(scope="module")
def open_built(engine):
    modules = {}

    def open_one(name, host=None, **limits):
        if name not in modules:
            modules[name] = compile_module(build_guest(name), engine)
        mode = _MODES[name.partition("_")[2]]
        return open_guest(modules[name], mode, GuestLimits(**limits), host or NoHostCalls())

    return open_one


@pytest.mark.parametrize("name", ["go_wapc", "go_wasi"])
def test_go(name, open_built):
    guest = open_built(name)
    assert guest.validate_settings({"required": ["app"]}).valid
    assert not guest.validate_settings({"required": "app"}).valid
    assert guest.validate(_POD, {"required": ["app"]}) == GuestAnswer(accepted=True)
    assert guest.validate(_POD, {"required": ["team"]}) == GuestAnswer(
        accepted=False, message="label team is missing", code=403
    )
    changed = guest.validate(_POD, {"added": {"seen": "yes"}}).mutated_object
    assert changed["metadata"] == {"name": "web", "labels": {"app": "web", "seen": "yes"}}


@pytest.mark.parametrize("name", ["go_wapc", "go_wasi"])
def test_faults_in_go(name, open_built):
    guest = open_built(name, seconds=0.5)
    with pytest.raises(GuestTimeError):
        guest.validate(_POD, {"fault": "loop"})
    with pytest.raises(GuestError, match="a bug of the policy"):
        guest.validate(_POD, {"fault": "panic"})
    assert guest.validate(_POD, {}).accepted


def test_go_wasi_finds_nothing(open_built):
    guest = open_built("go_wasi", seconds=0.5)
    assert guest.validate(_POD, {"look": True}).message == (
        "[policy.wasm validate] 0 true true true true"
    )
    with pytest.raises(GuestError, match=r"^gave up$"):
        guest.validate(_POD, {"fault": "exit"})
    with pytest.raises(GuestError, match="a bug of the policy"):
        guest.validate(_POD, {"fault": "panic"})
    assert guest.validate(_POD, {"fault": "nap"}).accepted
    start = time.monotonic()
    with pytest.raises(GuestTimeError):
        guest.validate(_POD, {"fault": "sleep"})
    assert time.monotonic() - start < 30


class Namespaces(NoHostCalls):
    def call(self, namespace, operation, payload):
        if b'"shop"' not in payload:
            raise HostCallError("there is no such Namespace")
        return b'{"kind":"Namespace"}'


def test_go_wapc_asks_its_host(open_built):
    guest = open_built("go_wapc", host=Namespaces())
    assert guest.validate(_POD, {"ask": "shop"}) == GuestAnswer(
        accepted=True, message='{"kind":"Namespace"}'
    )
    assert guest.validate(_POD, {"ask": "else"}) == GuestAnswer(
        accepted=False, message="there is no such Namespace"
    )


def test_go_wapc_stays_warm(open_built):
    guest = open_built("go_wapc", seconds=1.0, memory_bytes=64 << 20)
    counted = [guest.validate(_POD, {"fault": "count"}).message for _ in range(3)]
    assert counted == ["1", "2", "3"]
    with pytest.raises(GuestError):
        guest.validate(_POD, {"fault": "memory"})
    assert guest.validate(_POD, {"fault": "count"}).message == "1"


@pytest.mark.parametrize("name", ["rust_wapc", "rust_wasi"])
def test_rust(name, open_built):
    guest = open_built(name, seconds=0.5, memory_bytes=32 << 20)
    assert guest.validate_settings({"word": "x"}).valid
    assert guest.validate_settings({}).message == "word is missing"
    assert guest.validate(_POD, {"word": "db"}) == GuestAnswer(accepted=True)
    assert guest.validate(_POD, {"word": "web"}) == GuestAnswer(
        accepted=False, message="web is not allowed", code=403
    )
    for word, error in (("panic", GuestError), ("loop", GuestTimeError), ("deep", GuestError)):
        with pytest.raises(error):
            guest.validate(_POD, {"word": word})
    had = int(guest.validate(_POD, {"word": "memory"}).message.partition(" ")[0])
    assert 24 <= had < 32
    assert guest.validate(_POD, {"word": "db"}).accepted


def test_others_answer_while_one_loops(open_built):
    """The guest runs without Python's lock: whoever loops holds up nobody."""
    looping, good = open_built("rust_wapc", seconds=1.0), open_built("rust_wasi")
    failures = []

    def loop():
        try:
            looping.validate(_POD, {"word": "loop"})
        except GuestTimeError as error:
            failures.append(error)

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for thread in threads:
        thread.start()
    answered = 0
    while any(thread.is_alive() for thread in threads):
        assert good.validate(_POD, {"word": "db"}).accepted
        answered += 1
    assert len(failures) == 2
    assert answered > 20


def test_many_threads_use_one_guest(open_built):
    guest = open_built("go_wapc")
    wrong = []

    def ask(name):
        for _ in range(20):
            told = guest.validate(_POD, {"required": [name]}).message
            if told != f"label {name} is missing":
                wrong.append(told)

    threads = [threading.Thread(target=ask, args=(f"label-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
