"""Where rules run: on the loop, or on a thread where they ask the outside world; and for how long."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.assembly import compile_documents
from lictor.engine import Engine
from lictor.errors import DeadlineError, LookupFailedError
from lictor.model.program import Case, CompiledRule, Phase, Program
from lictor.model.request import Request
from lictor.model.result import PolicyRef, Result, RuleType, Status
from lictor.ports import NoLookups
from lictor.raw import JsonObject
from lictor.serve import evaluator as judging
from lictor.serve.evaluator import Evaluator
from lictor.serve.file_policies import FilePolicies
from lictor.serve.guarded_lookups import GuardedLookups
from lictor.serve.interrupts import SignalAlarm

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
    bench = _make_asking(tmp_path, SlowWorld(0.3))

    async def run() -> float:
        began = time.monotonic()
        await asyncio.gather(*(bench.post("/validate/fail", make_review()) for _ in range(8)))
        return time.monotonic() - began

    asyncio.run(run())
    assert asyncio.run(run()) < 2.2


def test_answers_from_outside_have_a_deadline(tmp_path: Path) -> None:
    bench = _make_asking(tmp_path, SlowWorld(4.0))

    async def run() -> tuple[float, bytes]:
        began = time.monotonic()
        reply = await bench.post("/validate/fail", make_review(), b"timeout=1s")
        return time.monotonic() - began, reply.body

    seconds, body = asyncio.run(run())
    assert seconds < 3.5
    assert b"no answer from outside in time" in body


def test_the_loop_is_never_kept_waiting() -> None:
    guard = GuardedLookups(SlowWorld(), lambda name: {"metadata": {"name": name}})
    with pytest.raises(LookupFailedError):
        guard.config_map("shop", "m")
    assert guard.take_asked()
    assert not guard.take_asked()
    # Watched anyway.
    assert guard.resource("v1", "Namespace", "", "shop") == {"metadata": {"name": "shop"}}
    assert not guard.take_asked()


def _make_engine(*checks: Callable[[Case], tuple[Result, ...]]) -> Engine:
    policy = PolicyRef("endless")
    rules = tuple(
        CompiledRule(f"rule-{number}", Phase.VALIDATE, lambda *_: lambda _: True, check)
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
    assert time.monotonic() - began < 5
