"""Rules that take long to compile when they are first asked: who waits for them, and who does not?"""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import lictor
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.errors import DeadlineError, SlowRequestError, TooSlowError
from lictor.core.garbage import keeping_garbage
from lictor.core.load.policies import load_documents
from lictor.core.model.program import (
    Bounds,
    Case,
    Check,
    CompiledRule,
    DeferredCheck,
    Phase,
    Program,
)
from lictor.core.model.request import Request
from lictor.core.model.result import PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.admission_response import AnswerOptions
from lictor.kubernetes.compile_turns import CompileTurns
from lictor.policies.policy_compiler import CompileTask, PolicyCompiler
from lictor.policies.trials import Job
from lictor.webhook.counters import Counters
from lictor.webhook.evaluator import Evaluator
from lictor.webhook.interrupts import SignalAlarm
from lictor.webhook.policy_sets import PolicySet
from lictor.webhook.post_admission import AdmissionOutcome, PostAdmission
from lictor.webhook.webhook_routes import WebhookRoute, read_path

# For what happens at once; only a mistake takes as long.
PATIENCE = 90.0


def make_pod(namespace: str) -> JsonObject:
    metadata = {"name": "web", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def make_request(namespace: str) -> Request:
    pod = make_pod(namespace)
    return lictor.Request(
        lictor.GroupVersionKind("", "v1", "Pod"), pod, admission={"namespace": namespace}
    )


def make_program(
    namespace: str, compile_check: Callable[[], Check], phase: Phase = Phase.VALIDATE
) -> Program:
    """A policy of a namespace about its Pods."""
    policy = PolicyRef(f"of-{namespace}", namespace=namespace, kind="Policy")

    def select(*_: object) -> Callable[[Request], bool]:
        return lambda request: request.resource["metadata"]["namespace"] == namespace

    check = DeferredCheck(compile_check)
    rule = CompiledRule("r", phase, select, check, bounds=Bounds(home=namespace))
    return Program(policy, (rule,))


def give(status: Status, patched: JsonObject | None = None) -> Check:
    result = Result(PolicyRef("p"), "r", RuleType.MUTATION, status, patched=patched)
    return lambda _: (result,)


FAILING = give(Status.FAIL)


def test_slow_policies_of_one_namespace_hold_up_no_other() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hang() -> Check:
        begun.set()
        may_end.wait(PATIENCE)
        return give(Status.PASS)

    engine = Engine([make_program("red", hang), make_program("blue", lambda: give(Status.FAIL))])

    async def run() -> list[Status]:
        evaluator, deadline = Evaluator(), time.monotonic() + PATIENCE
        slow = [
            asyncio.create_task(evaluator.evaluate(engine, make_request("red"), deadline))
            for _ in range(50)
        ]
        await asyncio.to_thread(begun.wait, PATIENCE)
        verdict = await evaluator.evaluate(engine, make_request("blue"), deadline)
        assert not any(task.done() for task in slow)
        may_end.set()
        verdicts = [verdict, *await asyncio.gather(*slow)]
        evaluator.close()
        return [result.status for verdict in verdicts for result in verdict.results]

    assert asyncio.run(run()) == [Status.FAIL] + [Status.PASS] * 50


class Heard:
    """Whose requests were followed to the end."""

    wants_passes = takes_triggers = True

    def __init__(self) -> None:
        self.namespaces: list[str] = []
        self.of_blue = asyncio.Event()

    def take(self, outcome: AdmissionOutcome) -> None:
        namespace = outcome.request.resource["metadata"]["namespace"]
        self.namespaces.append(namespace)
        if namespace == "blue":
            self.of_blue.set()


def make_audit(engine: Engine) -> PolicySet:
    route = read_path("/validate/fail")
    assert isinstance(route, WebhookRoute)
    none = Engine([])
    options = AnswerOptions(route.style, lambda _: True, frozenset(), frozenset())
    return PolicySet(route, options, none, engine, none, needs_roles=False, fails_closed=True)


def test_what_follows_requests_of_others_does_not_wait_either() -> None:
    may_end = threading.Event()

    def hang() -> Check:
        may_end.wait(PATIENCE)
        return FAILING

    engine = Engine([make_program("red", hang), make_program("blue", lambda: FAILING)])
    audit = make_audit(engine)

    async def run() -> list[str]:
        heard, evaluator = Heard(), Evaluator()
        queue = PostAdmission(evaluator, [heard], Counters(), capacity=1000, workers=2)
        for namespace in ["red"] * 100 + ["blue"]:
            request = make_request(namespace)
            verdict = Verdict(request, (), patched=None)
            queue.follow(
                audit, AdmissionOutcome(request, allowed=True, mutating=False, verdict=verdict)
            )
        working = asyncio.create_task(queue.run())
        async with asyncio.timeout(PATIENCE):
            await heard.of_blue.wait()
        assert heard.namespaces == ["blue"]
        may_end.set()
        await queue.drain(PATIENCE)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        evaluator.close()
        return heard.namespaces

    assert sorted(asyncio.run(run())) == ["blue"] + ["red"] * 100


@pytest.mark.parametrize(("namespace", "is_refused"), [("red", True), ("green", False)])
def test_who_writes_slow_policies_gets_past_no_other_policy(
    namespace: str, *, is_refused: bool
) -> None:
    """A TooSlowError is refused whatever the failure policy says."""
    may_end = threading.Event()

    def hang() -> Check:
        may_end.wait(PATIENCE)
        return give(Status.PASS)

    everyone = CompiledRule("r", Phase.VALIDATE, lambda *_: lambda _: True, DeferredCheck(hang))
    of_all = Program(PolicyRef("all", kind="ClusterPolicy"), (everyone,))
    engine = Engine([of_all, make_program("red", lambda: give(Status.PASS))])

    async def run() -> type[Exception]:
        evaluator = Evaluator()
        with pytest.raises(DeadlineError) as told:
            await evaluator.evaluate(engine, make_request(namespace), time.monotonic() + 0.05)
        may_end.set()
        evaluator.close()
        return told.type

    assert asyncio.run(run()) is (TooSlowError if is_refused else DeadlineError)


@pytest.fixture
def alarm() -> Iterator[SignalAlarm]:
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGPROF)
    yield SignalAlarm()
    signal.signal(signal.SIGALRM, before[0])
    signal.signal(signal.SIGPROF, before[1])


@pytest.mark.parametrize("hands_over", [True, False])
def test_what_a_mutation_leads_to_is_not_compiled_on_the_loop(
    alarm: SignalAlarm, *, hands_over: bool
) -> None:
    threads: list[threading.Thread] = []

    def compile_of_blue() -> Check:
        threads.append(threading.current_thread())
        return give(Status.FAIL)

    programs = [
        make_program("red", lambda: give(Status.PASS, make_pod("blue")), Phase.MUTATE),
        make_program("blue", compile_of_blue, Phase.MUTATE),
    ]
    engine = Engine(programs)

    async def run() -> list[Status]:
        evaluator = Evaluator(alarm=alarm, hands_over=hands_over)
        verdict = await evaluator.evaluate(engine, make_request("red"), time.monotonic() + PATIENCE)
        evaluator.close()
        return [result.status for result in verdict.results]

    assert asyncio.run(run()) == [Status.PASS, Status.FAIL]
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


POLICY = b"""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: healthy}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Pod]}}]}
    preconditions: {all: [{key: "{{ request.object.metadata.name }}", operator: Equals, value: web}]}
    validate: {message: m, deny: {}}
"""


@pytest.mark.parametrize("interruption", [SlowRequestError("slow"), TooSlowError("late")])
def test_an_interruption_is_not_taken_for_a_mistake_in_the_policy(
    interruption: Exception,
) -> None:
    pending = [interruption]

    def watch(path: str, closure: Check) -> Check:
        if path.startswith("preconditions") and pending:
            raise pending.pop()
        return closure

    records = load_documents(POLICY, "policy.yaml").records
    programs = compile_documents(records, is_lazy=True, watch_rule=lambda _: watch)
    engine = Engine(programs)
    with pytest.raises(type(interruption)):
        engine.prepare(make_request("red"))
    results = engine.evaluate(make_request("red")).results
    assert [result.status for result in results] == [Status.FAIL]


def test_a_mistake_of_ours_over_one_policy_costs_no_other_its_verdict() -> None:
    def break_down() -> Check:
        raise TypeError("ours")

    broken, healthy = make_program("red", break_down), make_program("red", lambda: FAILING)
    task = CompileTask("uid", "1", Job({}), compile=lambda: (broken,), fail=lambda _: ())
    compiler = PolicyCompiler(None)
    asyncio.run(compiler.prepare([task]))
    engine = Engine([*compiler.compiled["uid"].programs, healthy])
    results = engine.evaluate(make_request("red")).results
    assert [result.status for result in results] == [Status.ERROR, Status.FAIL]
    assert "TypeError" in results[0].message


def test_who_changes_many_policies_holds_up_no_other_change() -> None:
    def make_task(namespace: str, number: int) -> CompileTask:
        policy = {"metadata": {"namespace": namespace}}
        uid = f"{namespace}-{number}"
        return CompileTask(uid, "1", Job(policy), compile=lambda: (), fail=lambda _: ())

    tasks = [make_task("red", number) for number in range(50)]
    tasks += [make_task("blue", 0), make_task("", 0)]
    compiler = PolicyCompiler(None)
    for made in ({"-0"}, {"-0", "red-0"}, {"-0", "red-0", "blue-0"}):
        left = [task for task in tasks if task.uid not in compiler.compiled]
        # The time is over after the first: whoever had it is not the first again.
        assert not asyncio.run(compiler.prepare(left, until=time.monotonic() - 1))
        assert set(compiler.compiled) == made
    assert asyncio.run(compiler.prepare(tasks, until=time.monotonic() + PATIENCE))
    assert len(compiler.compiled) == len(tasks)


def test_whoever_has_taken_least_compiles_next() -> None:
    turns, order = CompileTurns(), list[str]()
    has_begun, may_end = threading.Event(), threading.Event()

    def compile_one(namespace: str) -> None:
        with turns.take(namespace):
            order.append(namespace)

    def compile_slowly() -> None:
        with turns.take("red"):
            has_begun.set()
            began = time.thread_time()
            while time.thread_time() - began < 0.01 or not may_end.is_set():
                may_end.wait(0.001)

    slow = threading.Thread(target=compile_slowly)
    slow.start()
    has_begun.wait(PATIENCE)
    waiting = [
        threading.Thread(target=compile_one, args=(namespace,))
        for namespace in ("red", "red", "blue", "", "green")
    ]
    for thread in waiting:
        thread.start()
    while len(turns._waiting) < len(waiting):
        time.sleep(0.001)
    may_end.set()
    for thread in (slow, *waiting):
        thread.join(PATIENCE)
    assert order[-2:] == ["red", "red"]
    assert sorted(order[:3]) == ["", "blue", "green"]


def test_new_rules_are_in_force_before_all_that_was_asked_is_compiled() -> None:
    compiled: list[str] = []

    def note(name: str) -> Callable[[], Check]:
        def compile_check() -> Check:
            compiled.append(name)
            return give(Status.PASS)

        return compile_check

    names = ("a", "b", "c")
    before = Engine([make_program(name, note("old")) for name in names])
    for name in names:
        before.prepare(make_request(name))
    after = Engine([make_program(name, note(name)) for name in names])
    after.prepare_like(before, lambda: "a" in compiled)
    assert compiled.count("old") == 3
    assert compiled[3:] == ["a"]
    # The others are compiled when they are asked.
    assert after.evaluate(make_request("c")).results
    assert compiled[3:] == ["a", "c"]


PART_AND_COMPILE = """
import os, sys
from lictor.policies.trial_jobs import compile_alone
from lictor.policies.trials import Job
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.core.families.registry import registry
from lictor.webhook.options import ServeOptions
from lictor.webhook.service import _preload

_preload(ServeOptions(Flags(), Names()))
assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not be forked"
before = set(sys.modules)
for name in ("ValidatingPolicy", "ClusterPolicy"):
    compile_alone(Job(next(kind.sample for kind in registry().kinds if kind.kind == name)))
print(sorted(set(sys.modules) - before))
"""


def test_what_languages_need_is_there_before_processes_part() -> None:
    """A process that takes the place of another keeps no request waiting for it."""
    command = [sys.executable, "-c", PART_AND_COMPILE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_collector_is_on_again_whoever_ends_first() -> None:
    first, second = keeping_garbage(), keeping_garbage()
    assert gc.isenabled()
    with first:
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
    with keeping_garbage(), keeping_garbage():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_kinds_that_nobody_has_do_not_pile_up() -> None:
    rules = 500

    def check(_: Case) -> tuple[Result, ...]:
        return ()

    made = [
        CompiledRule(f"r{number}", Phase.VALIDATE, lambda *_: lambda _: True, check)
        for number in range(rules)
    ]
    engine = Engine([Program(PolicyRef("p"), tuple(made))])
    for number in range(600):
        pod = {"apiVersion": "v1", "kind": f"Kind{number}", "metadata": {"name": "a"}}
        engine.prepare(Request.of(pod))
    assert sum(plan.weight for plan in engine._plans.values()) <= 200_000 + 32 * 2 * rules
