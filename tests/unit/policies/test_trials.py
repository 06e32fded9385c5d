"""Policies are tried in a process of their own: what they do to it stays there, and is told."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lictor.core.assembly import compile_documents, fail_policy
from lictor.core.engine import Engine
from lictor.core.errors import CompileError
from lictor.core.load.policies import load_documents
from lictor.core.model.program import DeferredCheck, Program
from lictor.core.model.result import Status
from lictor.policies import compile_ledger
from lictor.policies.compile_ledger import LEDGER, CompileLedger
from lictor.policies.policy_compiler import CompileTask, PolicyCompiler
from lictor.policies.trial_jobs import start_helper
from lictor.policies.trial_server import serve_batches, serve_parent
from lictor.policies.trials import (
    HelperProcess,
    Job,
    JobBatch,
    JobOutcome,
    Limits,
    SharedHelper,
    TrialResult,
    Trials,
)

LIMITS = Limits(cpu_seconds=1, wall_seconds=300.0, memory=64 * 1024 * 1024)
RULE = {
    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
    "validate": {
        "failureAction": "Enforce",
        "message": "m",
        "pattern": {"metadata": {"labels": {"team": "?*"}}},
    },
}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"team": "a"}}}


def _policy(rules: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": f"r{number}", **RULE} for number in range(rules)]},
    }


def _spin() -> None:
    while True:
        pass


def _die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


DEEDS: dict[bytes, Callable[[], object]] = {
    b"fine": lambda: None,
    b"spin": _spin,
    b"sleep": lambda: time.sleep(60),
    b"linger": lambda: time.sleep(1),
    b"fill": lambda: [bytearray(1024 * 1024) for _ in range(10_000)],
    b"die": _die,
    b"break": lambda: 1 // 0,
    # Not from what others have left free.
    b"keep": lambda: _KEPT.append(mmap(-1, 40 << 20, MAP_PRIVATE | MAP_ANONYMOUS)),
}
_KEPT: list[mmap] = []


def _work(job: bytes) -> bytes:
    DEEDS[job]()
    return job


def _start(work: Callable[[bytes], bytes]) -> HelperProcess:
    return HelperProcess(lambda channel: serve_parent(channel, work))


def _run(*jobs: bytes, limits: Limits = LIMITS) -> list[tuple[bytes, str]]:
    helper = _start(_work)
    try:
        outcomes = asyncio.run(helper.run(jobs, limits))
    finally:
        helper.close()
    return [(outcome.result, outcome.failure) for outcome in outcomes]


def test_what_a_job_does_is_told_and_harms_no_other() -> None:
    outcomes = _run(b"fine", b"spin", b"fine", b"fill", b"die", b"fine", b"break", b"fine")
    told = [failure for _, failure in outcomes]
    assert told[0] == told[2] == told[5] == told[7] == ""
    assert told[1] == "it takes more than 1 s of CPU time"
    assert told[3] == "it needs more than 64 MiB of memory"
    assert "died (SIGSEGV)" in told[4]
    assert told[6].startswith("ZeroDivisionError")
    assert outcomes[7][0] == b"fine"


def test_one_child_does_many_jobs_until_one_is_the_end_of_it() -> None:
    helper = _start(lambda job: _work(job) and str(os.getpid()).encode())
    try:
        jobs = (b"fine", b"fine", b"die", b"fine", b"break", b"fine")
        outcomes = asyncio.run(helper.run(jobs, LIMITS))
        many = asyncio.run(helper.run([b"fine"] * 100, LIMITS))
        kept = asyncio.run(helper.run([b"keep", b"fine"], LIMITS))
    finally:
        helper.close()
    first, same, _, second, _, third = (outcome.result for outcome in outcomes)
    assert first == same
    assert len({first, second, third}) == 3
    # What harmless jobs leave behind does not add up for ever.
    assert len({outcome.result for outcome in many}) == 2
    assert kept[0].result != kept[1].result


@pytest.mark.parametrize(("deaths", "failure"), [(1, ""), (2, "died (SIGKILL)")])
def test_a_job_is_run_again_if_its_process_was_killed(
    tmp_path: Path, deaths: int, failure: str
) -> None:
    record = tmp_path / "deaths"
    record.write_bytes(b"")

    def work(job: bytes) -> bytes:
        if record.stat().st_size < deaths:
            record.write_bytes(record.read_bytes() + b"x")
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    helper = _start(work)
    try:
        (outcome,) = asyncio.run(helper.run([b"job"], LIMITS))
    finally:
        helper.close()
    assert failure in outcome.failure
    assert bool(outcome.result) is not bool(failure)
    assert record.stat().st_size == deaths


def _take_time() -> None:
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass


@pytest.mark.parametrize(
    ("work", "is_light"),
    [
        (lambda: None, True),
        (_take_time, False),
        (lambda: bytearray(b"x") * (200 << 20), False),
    ],
    ids=["nothing", "time", "memory"],
)
def test_a_job_near_its_limits_is_not_light(work: Callable[[], object], *, is_light: bool) -> None:
    # Pages that the kernel takes back from an idle process do not count: far above a quarter.
    limits = msgspec.structs.replace(LIMITS, memory=256 * 1024 * 1024)
    helper = _start(lambda _: bytes(bool(work())))
    try:
        (outcome,) = asyncio.run(helper.run([b"job"], limits))
    finally:
        helper.close()
    assert not outcome.failure
    assert outcome.is_light is is_light


def test_a_job_that_only_waits_has_an_end_too() -> None:
    limits = msgspec.structs.replace(LIMITS, wall_seconds=0.5)
    assert _run(b"sleep", limits=limits) == [(b"", "it takes more than 0.5 s")]


def test_a_helper_that_is_gone_is_told() -> None:
    helper = _start(_work)
    os.kill(helper._pid, signal.SIGKILL)
    with pytest.raises(OSError, match=r"."):
        asyncio.run(helper.run([b"fine"], LIMITS))
    helper.close()


class Shared:
    """A helper behind a socket, in a process of its own that may be started again."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "helper")
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(self.address)
        self.door.listen(8)
        self.start()

    def start(self) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                serve_batches(self.door, lambda job: _work(job) and _name_self())
            except SystemExit as end:
                os._exit(7 if end.code == 0 else 1)
            finally:
                os._exit(1)

    def end(self, number: signal.Signals) -> int:
        os.kill(self.pid, number)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _name_self() -> bytes:
    return str(os.getpid()).encode()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path)
    yield made
    made.door.close()
    assert made.end(signal.SIGTERM) == 7


def test_several_share_a_helper(shared: Shared) -> None:
    async def run() -> list[list[JobOutcome]]:
        clients = [SharedHelper(shared.address) for _ in range(5)]
        found = await asyncio.gather(*(each.run([b"fine", b"die"], LIMITS) for each in clients))
        return list(found)

    found = asyncio.run(run())
    assert all(fine.result and "died (SIGSEGV)" in died.failure for fine, died in found)
    # A death is the end of its child.
    assert len({fine.result for fine, _ in found}) > 1


def test_what_one_has_tried_others_need_not(shared: Shared) -> None:
    async def run() -> None:
        one, other = SharedHelper(shared.address), SharedHelper(shared.address)
        (first,) = await one.run([b"fine"], LIMITS, [b"a"])
        assert first.result
        # Whoever does these would not live.
        assert await other.run([b"die"], LIMITS, [b"a"]) == [JobOutcome(is_light=True)]
        await one.add_known(b"b", is_light=False)
        assert await other.run([b"die", b"die"], LIMITS, [b"a", b"b"]) == [
            JobOutcome(is_light=True),
            JobOutcome(),
        ]
        for _ in range(2):
            (failed,) = await other.run([b"die"], LIMITS, [b"c"])
            assert failed.failure

    asyncio.run(run())


SLOW = Limits(cpu_seconds=20, wall_seconds=20.0, memory=LIMITS.memory)


async def _ask_for(helper: SharedHelper, job: bytes, namespace: str) -> float:
    """Seconds until a job of a namespace was done."""
    began = time.monotonic()
    (outcome,) = await helper.run([job], SLOW, owners=[namespace])
    assert not outcome.failure
    return time.monotonic() - began


@pytest.mark.parametrize("is_shared", [True, False])
def test_who_sends_slow_jobs_keeps_no_other_namespace_waiting(
    shared: Shared, *, is_shared: bool
) -> None:
    helper = SharedHelper(shared.address) if is_shared else _start(_work)

    async def run() -> tuple[float, float]:
        slow = [asyncio.create_task(_ask_for(helper, b"spin", "red")) for _ in range(8)]
        await asyncio.sleep(1.0)
        found = await _ask_for(helper, b"fine", ""), await _ask_for(helper, b"fine", "blue")
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return found

    cluster, blue = asyncio.run(run())
    helper.close()
    # A job of red is given half a second at first, and goes on elsewhere.
    assert cluster < 2.0
    assert blue < 4.0


def test_slow_jobs_of_namespaces_take_turns(shared: Shared) -> None:
    helper, order = SharedHelper(shared.address), list[str]()

    async def ask(namespace: str) -> None:
        await _ask_for(helper, b"linger", namespace)
        order.append(namespace)

    async def run() -> None:
        red = [asyncio.create_task(ask("red")) for _ in range(5)]
        await asyncio.sleep(0.2)
        await asyncio.gather(*red, ask("blue"))

    asyncio.run(run())
    assert order.index("blue") <= 2


def test_what_nobody_waits_for_is_not_done(shared: Shared) -> None:
    helper = SharedHelper(shared.address)

    async def run() -> float:
        slow = [asyncio.create_task(_ask_for(helper, b"sleep", "red")) for _ in range(3)]
        # One is under way in earnest, others wait.
        await asyncio.sleep(3.5)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        return await _ask_for(helper, b"linger", "red")

    assert asyncio.run(run()) < 8.0


def test_few_reviews_of_one_namespace_are_under_way_at_once(shared: Shared) -> None:
    helper = SharedHelper(shared.address)
    bounded = msgspec.structs.replace(SLOW, max_pending=2)

    async def run() -> tuple[list[JobOutcome], ...]:
        slow = [
            asyncio.create_task(helper.run([b"linger"], bounded, owners=["red"])) for _ in range(2)
        ]
        await asyncio.sleep(0.3)
        refused = await helper.run([b"fine"], bounded, owners=["red"])
        allowed = await helper.run([b"fine"], bounded, owners=["blue"])
        await asyncio.gather(*slow)
        return refused, allowed, await helper.run([b"fine"], bounded, owners=["red"])

    (refused,), (allowed,), (later,) = asyncio.run(run())
    assert "too many policies of namespace red" in refused.failure
    assert allowed.result
    assert later.result


def test_a_shared_helper_may_be_started_again(shared: Shared) -> None:
    client = SharedHelper(shared.address)
    assert asyncio.run(client.run([b"fine"], LIMITS))[0].result

    async def run() -> JobOutcome:
        asking = asyncio.create_task(client.run([b"linger"], LIMITS))
        await asyncio.sleep(0.3)
        shared.end(signal.SIGKILL)
        shared.start()
        return (await asking)[0]

    assert asyncio.run(run()).result


@pytest.fixture
def trials() -> Iterator[Trials]:
    made = Trials(start_helper(), Limits(cpu_seconds=1, wall_seconds=300.0, memory=1 << 30))
    yield made
    made.close()


def test_a_policy_that_takes_too_long_has_a_reason(trials: Trials) -> None:
    jobs = [Job(_policy()), Job(_policy(rules=6000)), Job(_policy())]
    reasons = [result.reason for result in asyncio.run(trials.try_policies(jobs))]
    assert reasons[0] == reasons[2] == ""
    assert "cannot be compiled within the limits: it takes more than 1 s of CPU" in reasons[1]


def _cleanup(conditions: int) -> dict[str, Any]:
    made = [
        {"key": f"{{{{ target.metadata.name == '{n}' }}}}", "operator": "Equals", "value": n}
        for n in range(conditions)
    ]
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "CleanupPolicy",
        "metadata": {"name": "p", "namespace": "red"},
        "spec": {"schedule": "* * * * *", "match": match, "conditions": {"any": made}},
    }


def _deleting(conditions: int) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    made = [
        {"name": f"c{n}", "expression": f"object.metadata.name == '{n}'"} for n in range(conditions)
    ]
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "NamespacedDeletingPolicy",
        "metadata": {"name": "p", "namespace": "red"},
        "spec": {
            "schedule": "* * * * *",
            "matchConstraints": {"resourceRules": [rule]},
            "conditions": made,
        },
    }


@pytest.mark.parametrize("make", [_cleanup, _deleting])
def test_policies_that_delete_are_tried_too(
    trials: Trials, make: Callable[[int], dict[str, Any]]
) -> None:
    broken = make(1)
    broken["spec"]["schedule"] = "never"
    jobs = [Job(make(15_000)), Job(make(1)), Job(broken)]
    costly, fine, senseless = asyncio.run(trials.try_policies(jobs))
    assert "it takes more than 1 s of CPU" in costly.reason
    # What makes no sense is no danger; it is told where it is compiled.
    assert fine.reason == senseless.reason == ""


def _fail(error: CompileError) -> tuple[Program, ...]:
    (loaded,) = load_documents(msgspec.json.encode(_policy()), "p").policies
    return fail_policy(loaded.record, error)


def test_such_a_policy_answers_with_an_error_and_holds_up_nobody(trials: Trials) -> None:
    threads: list[int] = []

    def compile_slowly() -> tuple[Program, ...]:
        threads.append(threading.get_ident())
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
        return ()

    tasks = [
        CompileTask("a", "1", Job(_policy(rules=6000)), compile_slowly, _fail),
        CompileTask("b", "1", Job(_policy()), compile_slowly, _fail),
    ]
    preparation = PolicyCompiler(trials)
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - began)

    async def run() -> None:
        ticking = asyncio.create_task(tick())
        await preparation.prepare(tasks)
        ticking.cancel()

    asyncio.run(run())
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
    # The loop went on all the time.
    assert len(gaps) > 20
    (result,) = Engine(preparation.compiled["a"].programs).evaluate(POD).results
    assert result.status is Status.ERROR
    assert "cannot be compiled within the limits" in result.message
    assert preparation.compiled["b"].reason == ""
    # It is not tried again at every turn, but when it changes.
    assert preparation.is_current("a", "1")
    assert not preparation.is_current("a", "2")
    assert preparation.find_pause() is not None


CEL_KINDS = [
    ("ValidatingPolicy", {"validations": [{"expression": "true"}]}),
    ("MutatingPolicy", {"mutations": []}),
    ("GeneratingPolicy", {"generate": [{"expression": "true"}]}),
    (
        "ImageValidatingPolicy",
        {
            "matchImageReferences": [{"glob": "*"}],
            "attestors": [{"name": "a", "cosign": {"key": {"data": "x"}}}],
            "validations": [{"expression": "true"}],
        },
    ),
]


@pytest.mark.parametrize(("kind", "spec"), CEL_KINDS)
def test_policies_in_cel_answer_with_an_error_too(kind: str, spec: dict[str, Any]) -> None:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    document = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, **spec},
    }
    found = load_documents(msgspec.json.encode(document), "p")
    assert not found.problems
    (loaded,) = found.policies
    results = Engine(fail_policy(loaded.record, CompileError("not now"))).evaluate(POD).results
    assert [(result.status, result.message) for result in results] == [(Status.ERROR, "not now")]


def test_a_rule_that_breaks_the_compiler_later_answers_with_an_error() -> None:
    record = load_documents(msgspec.json.encode(_policy(2)), "p").records[0]
    (program,) = compile_documents([record], is_lazy=True)
    first, *others = program.rules
    broken = msgspec.structs.replace(first, check=DeferredCheck(lambda: 1 // 0))
    made = msgspec.structs.replace(program, rules=(broken, *others))
    task = CompileTask("u", "m", Job(_policy(2)), lambda: (made,), _fail)

    class Harmless(Trials):
        async def try_policies(self, jobs: Sequence[Job]) -> list[TrialResult]:
            return [TrialResult() for _ in jobs]

    helper = _start(_work)
    compiler = PolicyCompiler(Harmless(helper))
    asyncio.run(compiler.prepare([task]))
    helper.close()
    results = Engine(compiler.compiled["u"].programs).evaluate(POD).results
    told = {result.rule: (result.status, result.message) for result in results}
    text = "internal error: the policy broke the compiler (ZeroDivisionError)"
    assert told["r0"] == (Status.ERROR, text)
    assert told["r1"][0] is Status.PASS


def test_whoever_dies_over_a_policy_is_remembered() -> None:
    ledger = CompileLedger()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with ledger.compiling("bad"):
            os.write(writer, b"x")
            time.sleep(60)
    os.read(reader, 1)
    # It may take its time.
    assert ledger.find_reason("bad") == ("", 0.0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    reason, pause = ledger.find_reason("bad")
    assert "a process died while compiling" in reason
    assert 20 < pause <= 30
    assert ledger.find_reason("good") == ("", 0.0)


def test_whoever_gets_done_is_not() -> None:
    ledger = CompileLedger(entries=4)
    for number in range(20):
        with ledger.compiling(f"policy {number}"):
            pass
    with pytest.raises(ZeroDivisionError), ledger.compiling("broken"):
        1 // 0  # noqa: B018
    assert all(ledger.find_reason(f"policy {number}") == ("", 0.0) for number in range(20))
    assert ledger.find_reason("broken") == ("", 0.0)


def _die_over(identity: str, times: int = 1) -> None:
    for _ in range(times):
        pid = os.fork()
        if pid == 0:
            with LEDGER.compiling(identity):
                os._exit(9)
        os.waitpid(pid, 0)


class Compiled:
    """Tasks that say that they were run."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def task(self, uid: str, mark: str = "1") -> CompileTask:
        def compile_it() -> tuple[Program, ...]:
            self.names.append(uid)
            return ()

        return CompileTask(uid, mark, Job(_policy()), compile_it, _fail)


def _prepare(trials: Trials, *tasks: CompileTask) -> PolicyCompiler:
    compiler = PolicyCompiler(trials)
    asyncio.run(compiler.prepare(tasks))
    return compiler


class _Untried(Trials):
    """Nobody could try anything."""

    async def try_policies(self, jobs: Sequence[Job]) -> list[TrialResult]:
        return [TrialResult() for _ in jobs]


@pytest.mark.parametrize(
    ("trials", "deaths"), [(Trials, 2), (Trials, 3), (_Untried, 1)], ids=["two", "three", "untried"]
)
def test_a_policy_over_which_processes_died_is_left_alone(
    trials: type[Trials], deaths: int
) -> None:
    uid, compiled, made_trials = f"{trials.__name__}{deaths}", Compiled(), trials(start_helper())
    _die_over(f"{uid}:1", deaths)
    try:
        made = _prepare(made_trials, compiled.task(uid)).compiled[uid]
        assert compiled.names == []
        assert "died while compiling" in made.reason
        (result,) = Engine(made.programs).evaluate(POD).results
        assert result.status is Status.ERROR
        # Another generation of it may be better.
        _prepare(made_trials, compiled.task(uid, "2"))
        assert compiled.names == [uid]
    finally:
        made_trials.close()


def test_one_death_over_a_harmless_policy_is_an_accident(trials: Trials) -> None:
    """Whatever else took the memory: the policy is compiled again, after all others."""
    _die_over("accident:1")
    compiled = Compiled()
    tasks = [compiled.task(uid) for uid in ("accident", *(f"other{n}" for n in range(20)))]
    made = _prepare(trials, *tasks).compiled
    assert compiled.names[-1] == "accident"
    assert len(compiled.names) == 21
    assert made["accident"].reason == ""


def test_deaths_far_apart_are_accidents(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_ledger, "_RELATED_SECONDS", 0.3)
    compiled = Compiled()
    _die_over("seldom:1")
    time.sleep(0.5)
    _die_over("seldom:1")
    _prepare(trials, compiled.task("seldom"))
    assert compiled.names == ["seldom"]


def test_a_policy_over_which_one_died_kills_not_all_others_at_once(trials: Trials) -> None:
    """The others wait for the one that compiles it; where that one dies too, nobody else does."""
    _die_over("deadly:1")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with LEDGER.compiling("deadly:1"):
            os.write(writer, b"x")
            time.sleep(60)
    os.read(reader, 1)
    compiled = Compiled()

    def end() -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    async def run() -> PolicyCompiler:
        compiler = PolicyCompiler(trials)
        work = asyncio.create_task(compiler.prepare([compiled.task("deadly")]))
        await asyncio.sleep(0.5)
        assert not compiler.compiled
        await asyncio.to_thread(end)
        await work
        return compiler

    made = asyncio.run(run()).compiled["deadly"]
    assert compiled.names == []
    assert "2 processes died while compiling" in made.reason


def test_what_was_harmless_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    trials = Trials(start_helper(), LIMITS)
    stored = {**_policy(), "status": {"ready": True}}
    stored["metadata"] = {"name": "p", "uid": "1", "resourceVersion": "7"}

    async def run() -> None:
        light = TrialResult(is_light=True)
        assert await trials.try_policies([Job(_policy())]) == [light]
        # From now on there is nobody who could try anything.
        trials.close()
        assert await trials.try_policies([Job(_policy()), Job(stored)]) == [light, light]
        assert not caplog.records
        assert await trials.try_policies([Job(_policy(rules=2))]) == [TrialResult()]
        assert "not tried" in caplog.text

    asyncio.run(run())


class _CountingHelper(SharedHelper):
    """Finds all policies harmless, and counts them."""

    def __init__(self) -> None:
        super().__init__("")
        self.tried = 0

    async def _send(self, batch: JobBatch) -> list[JobOutcome]:
        self.tried += len(batch.jobs)
        return [JobOutcome() for _ in batch.jobs]


def _limit_to(name: str, namespace: str) -> Job:
    resources = {"kinds": ["Pod"], "namespaces": [namespace]}
    rule = {**RULE, "match": {"any": [{"resources": resources}]}}
    policy = {**_policy(), "metadata": {"name": name}}
    return Job({**policy, "spec": {"rules": [{"name": "r", **rule}]}})


@pytest.mark.parametrize(
    ("jobs", "tried"),
    [
        ([_limit_to("a", "team-a"), _limit_to("b", "team-b")], 1),
        ([_limit_to("a", "team-a"), _limit_to("a", "team-*")], 2),
        ([_limit_to("a", "team-a"), _limit_to("a", "{{ request.object }}")], 2),
        ([_limit_to("a", "team-a"), _limit_to("a", 'x"],"names":["y')], 2),
        ([Job(_policy()), Job(_policy(rules=2))], 2),
    ],
)
def test_policies_that_differ_in_plain_names_are_tried_once(jobs: list[Job], tried: int) -> None:
    helper = _CountingHelper()
    trials = Trials(helper, LIMITS)
    for batch in (jobs, jobs):
        assert asyncio.run(trials.try_policies(batch)) == [TrialResult()] * len(jobs)
    assert helper.tried == tried


def test_a_policy_that_breaks_the_compiler_is_an_error(trials: Trials) -> None:
    def broken() -> tuple[Program, ...]:
        raise TypeError("oops")

    preparation = PolicyCompiler(trials)
    task = CompileTask("broken", "1", Job(_policy()), broken, _fail)
    asyncio.run(preparation.prepare([task]))
    made = preparation.compiled["broken"]
    assert "TypeError" in made.reason
    (result,) = Engine(made.programs).evaluate(POD).results
    assert result.status is Status.ERROR
