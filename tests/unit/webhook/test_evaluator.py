"""Where rules run: on the loop, or on a thread where they ask the outside world; and for how long."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.errors import DeadlineError, LookupFailedError, SlowRequestError
from lictor.core.model.program import (
    Bounds,
    Case,
    Check,
    CompiledRule,
    DeferredCheck,
    Needs,
    Phase,
    Program,
)
from lictor.core.model.request import Request
from lictor.core.model.result import PolicyRef, Result, RuleType, Status
from lictor.core.ports import DEFAULT_ACCESS, NoLookups, RegistryAccess
from lictor.core.raw import JsonObject
from lictor.images.registries import RemoteRegistries
from lictor.webhook import evaluator as judging
from lictor.webhook.evaluator import Evaluator
from lictor.webhook.file_policies import FilePolicies
from lictor.webhook.guarded_lookups import GuardedLookups
from lictor.webhook.interrupts import SignalAlarm

POD: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}


class SlowWorld(NoLookups):
    """One ConfigMap, and where it was asked for."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.threads: list[int] = []

    def config_map(self, namespace: str, name: str) -> JsonObject:
        self.threads.append(threading.get_ident())
        time.sleep(self.seconds)
        return {"metadata": {"namespace": namespace, "name": name}, "data": {"mode": "closed"}}


class AskingPolicies(FilePolicies):
    """Policies that may ask."""

    def __init__(self, folder: Path, lookups: GuardedLookups) -> None:
        super().__init__(folder)
        self._lookups = lookups

    def programs(self, policy):
        return compile_documents([policy.record], lookups=self._lookups)


def _make_asking(folder: Path, state: SlowWorld) -> Bench:
    rule = require_label("x")
    rule["context"] = [{"name": "map", "configMap": {"name": "m", "namespace": "shop"}}]
    condition = {"key": "{{map.data.mode}}", "operator": "Equals", "value": "closed"}
    rule["validate"] = {
        "failureAction": "Enforce",
        "message": "closed",
        "deny": {"conditions": {"any": [condition]}},
    }
    write_policies(folder, make_policy("asking", rule))
    guard = GuardedLookups(state)
    return Bench(AskingPolicies(folder, guard), guard=guard)


def test_rules_that_ask_run_on_threads(tmp_path: Path) -> None:
    state = SlowWorld()
    bench = _make_asking(tmp_path, state)
    for _ in range(3):
        response = bench.ask("/validate/fail", make_review())
        assert "closed" in response["status"]["message"]
    assert len(state.threads) == 3
    assert threading.get_ident() not in state.threads


def test_other_requests_are_answered_meanwhile(tmp_path: Path) -> None:
    bench = _make_asking(tmp_path, SlowWorld(1.0))

    async def run() -> float:
        began = time.monotonic()
        await asyncio.gather(*(bench.post("/validate/fail", make_review()) for _ in range(8)))
        return time.monotonic() - began

    # One after the other they take eight seconds.
    assert asyncio.run(run()) < 6


def test_answers_from_outside_have_a_deadline(tmp_path: Path) -> None:
    bench = _make_asking(tmp_path, SlowWorld(6.0))

    async def run() -> tuple[float, bytes]:
        began = time.monotonic()
        reply = await bench.post("/validate/fail", make_review(), b"timeout=1s")
        return time.monotonic() - began, reply.body

    seconds, body = asyncio.run(run())
    assert seconds < 5.5
    assert b"no answer from outside in time" in body


class SilentRegistries(NoLookups):
    """Registries that answer when they are told to; counts who waits for them."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.waiting = 0

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        self.waiting += 1
        self.may_answer.wait(60)
        return {}


def test_those_who_wait_for_registries_hold_up_nobody_else() -> None:
    silent, state = SilentRegistries(), SlowWorld()
    registries, lookups = GuardedLookups(silent), GuardedLookups(state)

    def ask_registry(case: Case) -> tuple[Result, ...]:
        registries.image_data("app")
        return _pass(case)

    def query_cluster(case: Case) -> tuple[Result, ...]:
        lookups.config_map("shop", "m")
        return _pass(case)

    images = _make_engine(ask_registry, needs=Needs.IMAGES)
    asking = _make_engine(query_cluster, needs=Needs.LOOKUPS)

    async def run() -> float:
        evaluator, deadline = Evaluator(registries), time.monotonic() + 60
        hanging = [
            asyncio.create_task(evaluator.evaluate(images, Request.of(POD), deadline))
            for _ in range(100)
        ]
        while silent.waiting < 100:  # noqa: ASYNC110  # threads set no asyncio.Event
            await asyncio.sleep(0.01)
        began = time.monotonic()
        await evaluator.evaluate(asking, Request.of(POD), deadline)
        seconds = time.monotonic() - began
        silent.may_answer.set()
        await asyncio.gather(*hanging)
        evaluator.close()
        return seconds

    assert asyncio.run(run()) < 20
    assert len(state.threads) == 1


def test_what_is_known_of_images_is_answered_on_the_loop() -> None:
    threads: list[int] = []

    def know(case: Case) -> tuple[Result, ...]:
        threads.append(threading.get_ident())
        return _pass(case)

    engine = _make_engine(know, needs=Needs.IMAGES)
    evaluator = Evaluator(GuardedLookups(NoLookups()))
    asyncio.run(evaluator.evaluate(engine, Request.of(POD), time.monotonic() + 60))
    assert threads == [threading.get_ident()]


def test_policies_from_files_ask_registries_on_threads(tmp_path: Path) -> None:
    write_policies(tmp_path, make_policy("plain", require_label("x")))
    guard = FilePolicies(tmp_path).guard
    with pytest.raises(LookupFailedError):
        guard.registries()
    assert guard.was_used
    guard.was_used = False
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(guard.registries).result(), RemoteRegistries)
    assert not guard.was_used


def test_computing_of_image_rules_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first verification loads libraries: that must not send all Pods to another process."""
    monkeypatch.setattr(judging, "_QUICK_THREAD_SECONDS", 0.02)
    monkeypatch.setattr(judging, "_LOOK_EVERY", 0.01)
    guard = GuardedLookups(SlowWorld())

    def compute(case: Case) -> tuple[Result, ...]:
        guard.config_map("shop", "m")
        until = time.thread_time() + 0.1
        while time.thread_time() < until:
            pass
        return _pass(case)

    async def judge(needs: Needs) -> None:
        evaluator = Evaluator(guard, SignalAlarm(), hands_over=True)
        engine = _make_engine(compute, needs=needs)
        await evaluator.evaluate(engine, Request.of(POD), time.monotonic() + 60)

    asyncio.run(judge(Needs.IMAGES))
    with pytest.raises(SlowRequestError):
        asyncio.run(judge(Needs.LOOKUPS))


def test_the_loop_is_never_kept_waiting() -> None:
    guard = GuardedLookups(SlowWorld(), lambda name: {"metadata": {"name": name}})
    with pytest.raises(LookupFailedError):
        guard.config_map("shop", "m")
    assert guard.was_used
    guard.was_used = False
    # Watched anyway.
    assert guard.resource("v1", "Namespace", "", "shop") == {"metadata": {"name": "shop"}}
    assert not guard.was_used


def _make_engine(
    *checks: Callable[[Case], tuple[Result, ...]], needs: Needs = Needs.NOTHING
) -> Engine:
    policy = PolicyRef("endless")
    rules = tuple(
        CompiledRule(
            f"rule-{number}", Phase.VALIDATE, lambda *_: lambda _: True, check, needs=needs
        )
        for number, check in enumerate(checks)
    )
    return Engine([Program(policy, rules)])


def _spin(_: Case) -> tuple[Result, ...]:
    while True:
        pass


def _pass(_: Case) -> tuple[Result, ...]:
    return (Result(PolicyRef("endless"), "rule", RuleType.VALIDATION, Status.PASS),)


@pytest.mark.parametrize("checks", [(_spin,), (_spin, _pass)])
def test_a_rule_that_takes_for_ever_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, checks: tuple[Callable[[Case], tuple[Result, ...]], ...]
) -> None:
    monkeypatch.setattr(judging, "LOOP_SECONDS", 0.2)
    evaluator = Evaluator(alarm=SignalAlarm())
    began = time.monotonic()
    try:
        verdict = asyncio.run(
            evaluator.evaluate(_make_engine(*checks), Request.of(POD), began + 60)
        )
    except DeadlineError as error:
        assert "endless" in str(error)  # noqa: PT017  (either is right)
    else:
        assert [result.status for result in verdict.results] == [Status.ERROR]
    assert time.monotonic() - began < 30


def _make_deferred(name: str, namespace: str, threads: list[str]) -> Program:
    """A policy about Pods of one namespace that notes which thread compiles it."""
    policy = PolicyRef(name)

    def compile_check() -> Check:
        threads.append(threading.current_thread().name)
        return lambda _: (Result(policy, "r", RuleType.VALIDATION, Status.PASS),)

    rule = CompiledRule(
        "r",
        Phase.VALIDATE,
        lambda kind, *_: (lambda request: True) if kind.kind == "Pod" else None,
        DeferredCheck(compile_check),
        bounds=Bounds(namespaces=frozenset((namespace,))),
    )
    return Program(policy, (rule,))


def test_rules_are_compiled_once_and_not_on_the_thread_that_answers() -> None:
    threads: list[str] = []
    engine = Engine([_make_deferred(f"p-{name}", name, threads) for name in ("a", "b")])
    pod = Request.of({**POD, "metadata": {"name": "web", "namespace": "a"}})

    async def ask() -> list[str]:
        evaluator = Evaluator()
        verdicts = [await evaluator.evaluate(engine, pod, time.monotonic() + 60) for _ in range(2)]
        evaluator.close()
        return [result.policy.name for verdict in verdicts for result in verdict.results]

    assert asyncio.run(ask()) == ["p-a", "p-a"]
    # Nobody has asked for those of the other namespace.
    assert [name.partition("_")[0] for name in threads] == ["compile"]


def test_a_new_engine_has_compiled_what_was_asked_of_the_one_before() -> None:
    threads: list[str] = []
    before = Engine([_make_deferred("old", "a", threads)])
    pods = {
        name: Request.of({**POD, "metadata": {"name": "w", "namespace": name}}) for name in "ab"
    }
    before.prepare(pods["a"])
    new = [_make_deferred(f"new-{name}", name, threads) for name in "ab"]
    engine = Engine(new)
    assert engine.find_known_needs(pods["a"]) is None
    engine.prepare_like(before, lambda: False)
    assert engine.find_known_needs(pods["a"]) is Needs.NOTHING
    assert engine.find_known_needs(pods["b"]) is None
    assert len(threads) == 2
