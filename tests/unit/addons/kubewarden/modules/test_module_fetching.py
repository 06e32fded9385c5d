"""Modules come beside other work: nobody waits, nobody is held up by somebody else's registry."""

import asyncio
import threading
import time

import pytest

from lictor.addons.kubewarden.modules.module_fetching import FetchedModules, RequestedModules
from lictor.core.errors import LookupFailedError, ModuleError, NotYetError
from lictor.core.lang.wasm_module import WasmModule
from lictor.policies.policy_compiler import CompileTask, PolicyCompiler
from lictor.policies.trials import Job, TrialResult


class Source:
    """Modules by address; those that are held come when they are let go."""

    def __init__(self):
        self.held = {}
        self.asked = []
        self.failing = {}

    def load(self, address, namespace=""):
        self.asked.append((address, namespace))
        if address in self.held:
            assert self.held[address].wait(60)
        if address in self.failing:
            raise self.failing[address]
        return WasmModule(digest=address, metadata=None, native=None, engine=None)

    def hold(self, address):
        self.held[address] = threading.Event()


class Scene:
    def __init__(self):
        self.source = Source()
        self.now = 0.0
        self.news = threading.Semaphore(0)
        self.modules = FetchedModules(
            lambda _: self.source, self.news.release, clock=lambda: self.now
        )

    def wait(self):
        assert self.news.acquire(timeout=60)

    def count_asked(self, namespace):
        return sum(each == namespace for _, each in self.source.asked)

    def ask(self, address, namespace=""):
        with pytest.raises(NotYetError):
            self.modules.load(address, namespace)


@pytest.fixture
def scene():
    made = Scene()
    yield made
    for event in made.source.held.values():
        event.set()


def test_the_first_to_ask_is_told_to_come_again(scene):
    scene.ask("registry://a")
    scene.wait()
    module = scene.modules.load("registry://a")
    assert module.digest == "registry://a"
    assert scene.modules.load("registry://a") is module
    assert len(scene.source.asked) == 1


def test_a_module_that_nobody_runs_is_fetched_again(scene):
    scene.ask("registry://a")
    scene.wait()
    scene.modules.load("registry://a")
    scene.ask("registry://a")
    scene.wait()
    assert len(scene.source.asked) == 2


@pytest.mark.parametrize("error", [LookupFailedError("away"), ModuleError("no module")])
def test_a_failure_is_told_until_it_is_worth_another_try(scene, error):
    scene.source.failing["registry://a"] = error
    scene.ask("registry://a")
    scene.wait()
    asked = RequestedModules(scene.modules)
    with pytest.raises(type(error)):
        asked.load("registry://a")
    assert asked.has_failed is isinstance(error, LookupFailedError)
    assert 0 < scene.modules.find_pause(asked.keys) <= 5
    scene.now = 10.0
    scene.source.failing.clear()
    scene.ask("registry://a")
    scene.wait()
    assert scene.modules.load("registry://a")


def test_a_slow_registry_holds_up_its_own_namespace_only(scene):
    for number in range(4):
        scene.source.hold(f"registry://slow/{number}")
        scene.ask(f"registry://slow/{number}", "red")
    scene.ask("registry://fast", "blue")
    scene.ask("registry://fast")
    scene.wait()
    scene.wait()
    assert scene.modules.load("registry://fast", "blue")
    assert scene.modules.load("registry://fast")
    deadline = time.monotonic() + 60
    while scene.count_asked("red") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # No more than two of one namespace at the same time.
    assert scene.count_asked("red") == 2


def test_no_namespace_fills_the_line_without_end(scene):
    scene.source.hold("registry://0")
    scene.source.hold("registry://1")
    for number in range(66):
        scene.ask(f"registry://{number}", "red")
        deadline = time.monotonic() + 60
        while number < 2 and len(scene.source.asked) <= number:
            assert time.monotonic() < deadline
    with pytest.raises(LookupFailedError, match="too many modules of namespace red"):
        scene.modules.load("registry://66", "red")
    scene.ask("registry://66", "blue")


def test_what_no_policy_names_is_forgotten(scene):
    scene.ask("registry://a")
    scene.wait()
    scene.modules.keep({("registry://b", "")})
    scene.ask("registry://a")


def test_while_it_is_tried_again_the_last_reason_is_told(scene):
    scene.source.failing["registry://a"] = LookupFailedError("away")
    scene.ask("registry://a")
    scene.wait()
    scene.now = 1000.0
    with pytest.raises(NotYetError, match="away; module registry://a is being fetched again"):
        scene.modules.load("registry://a")


class _NoTrials:
    async def try_policies(self, jobs):
        return [TrialResult() for _ in jobs]


@pytest.mark.parametrize(("is_early", "waits"), [(True, False), (False, True)])
def test_news_that_comes_while_a_policy_is_compiled_counts(is_early, waits):
    """A module may fail to come before its policy has begun to wait for it."""
    compiler = PolicyCompiler(_NoTrials())

    def compile_policy():
        if is_early:
            compiler.stop_waiting()
        raise NotYetError("module a is being fetched", patience=30.0)

    task = CompileTask("uid", "mark", Job({}), compile_policy, lambda _: ())
    asyncio.run(compiler.prepare([task]))
    assert compiler.is_current("uid", "mark") is waits
