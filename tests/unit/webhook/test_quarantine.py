"""A policy that ends a process is not evaluated again until it changes: with real deaths."""

import asyncio
import ctypes
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from serving import make_policy, make_review, require_label, write_policies
from test_service import PATIENCE, Service, serve

from lictor.core.assembly import compile_documents, fail_policy
from lictor.core.engine import Engine
from lictor.core.evaluations import EVALUATIONS, QUARANTINED, EvaluationLedger, identify
from lictor.core.load.policies import load_documents
from lictor.core.model.program import Case, Program
from lictor.core.model.result import Result, Status
from lictor.core.raw import JsonObject
from lictor.policies.policy_compiler import CompileTask, PolicyCompiler
from lictor.policies.trials import Job, TrialResult
from lictor.webhook.slots import ProcessSlot
from lictor.webhook.supervisor import SupervisedProcess, Supervisor

POD = make_review({"team": "x"})["request"]["object"]
VALIDATING = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: names}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions:
  - {name: named, expression: "object.metadata.?name.hasValue()"}
  validations:
  - {expression: "object.metadata.name != 'forbidden'", message: refused}
"""


def die(_: Case) -> tuple[Result, ...]:
    """As native code dies: by reading where there is no memory."""
    ctypes.string_at(0)
    return ()


def kill(_: Case) -> tuple[Result, ...]:
    os.kill(os.getpid(), signal.SIGKILL)
    return ()


def compile_policy() -> Program:
    [record] = load_documents(VALIDATING.encode(), "p").records
    [program] = compile_documents((record,))
    return program


def make_program(name: str, check: Callable[[Case], tuple[Result, ...]]) -> Program:
    """The policy with another check."""
    program = compile_policy()
    rules = tuple(replace(rule, check=check) for rule in program.rules)
    return replace(program, rules=rules, identity=identify(name))


def evaluate(program: Program) -> None:
    Engine((program,)).evaluate(POD)


def evaluate_beside_others(program: Program) -> None:
    """On a thread, while the main thread and another one are within other policies."""
    others = threading.Thread(target=lambda: (EVALUATIONS.begin(b"o" * 16), time.sleep(60)))
    EVALUATIONS.begin(b"m" * 16)
    others.daemon = True
    others.start()
    thread = threading.Thread(target=evaluate, args=(program,))
    thread.start()
    thread.join()


def supervise(run: Callable[[], None], is_over: Callable[[], bool]) -> None:
    """Run a child under a supervisor, again and again, until something is true."""

    def live(slot: ProcessSlot) -> None:
        run()
        while True:
            slot.beat()
            time.sleep(0.02)

    parent = os.fork()
    if parent == 0:
        child = SupervisedProcess("child", live, ProcessSlot(65536))
        os._exit(Supervisor([child], ProcessSlot(65536), grace=5.0).run())
    deadline = time.monotonic() + PATIENCE
    while not is_over():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(parent, signal.SIGTERM)
    os.waitpid(parent, 0)


@pytest.mark.parametrize(
    ("name", "check", "run"),
    [
        ("native", die, evaluate),
        ("abort", lambda _: os.abort(), evaluate),
        ("thread", die, evaluate_beside_others),
        ("killed twice", kill, evaluate),
    ],
)
def test_what_a_process_died_of_is_quarantined(name, check, run):
    program = make_program(name, check)
    before, deaths = EVALUATIONS.count, ProcessSlot(4096)

    def live() -> None:
        deaths.write(deaths.read() + b".")
        if not EVALUATIONS.holds(program.identity):
            run(program)
        deaths.write(deaths.read() + b"!")

    supervise(live, lambda: deaths.read().endswith(b"!"))
    assert EVALUATIONS.holds(program.identity)
    # Nobody else is blamed, and nobody died more often than needed.
    assert EVALUATIONS.count == before + 1
    assert deaths.read().count(b".") == (3 if name == "killed twice" else 2)


def test_a_process_that_ends_otherwise_blames_nobody():
    ledger = EvaluationLedger()
    ledger.begin(identify("p"))
    for code in (0, 1, -signal.SIGTERM, -signal.SIGKILL):
        assert not ledger.settle(os.getpid(), code, b"")
        ledger = EvaluationLedger()
        ledger.begin(identify("p"))
    ledger.begin(b"")
    assert not ledger.settle(os.getpid(), -signal.SIGSEGV, b"")
    assert ledger.count == 0


def test_the_controllers_alone_are_restarted_after_a_signal_and_end_with_their_code():
    program = make_program("control", die)
    deaths = ProcessSlot(4096)

    def live(_: ProcessSlot) -> None:
        deaths.write(deaths.read() + b".")
        if not EVALUATIONS.holds(program.identity):
            evaluate(program)
        raise SystemExit(3)

    parent = os.fork()
    if parent == 0:
        child = SupervisedProcess(
            "control", live, ProcessSlot(65536), is_vital=True, survives_signals=True
        )
        os._exit(Supervisor([child], ProcessSlot(65536), grace=5.0).run())
    _, status = os.waitpid(parent, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert deaths.read() == b".."
    assert EVALUATIONS.holds(program.identity)


def test_a_supervisor_that_was_stopped_for_a_while_goes_on():
    beats = ProcessSlot(65536)

    def live(slot: ProcessSlot) -> None:
        while True:
            beats.beat()
            time.sleep(0.02)

    parent = os.fork()
    if parent == 0:
        child = SupervisedProcess("child", live, ProcessSlot(65536))
        os._exit(Supervisor([child], ProcessSlot(65536), grace=5.0).run())
    deadline = time.monotonic() + PATIENCE
    while not beats.last_beat:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(parent, signal.SIGSTOP)
    os.waitpid(parent, os.WUNTRACED)
    # Longer than one of its turns.
    time.sleep(0.6)
    os.kill(parent, signal.SIGCONT)
    time.sleep(0.6)
    assert os.waitpid(parent, os.WNOHANG) == (0, 0)
    os.kill(parent, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == 0


def test_threads_that_have_ended_leave_their_places_to_others():
    ledger = EvaluationLedger()
    for _ in range(5000):
        thread = threading.Thread(target=ledger.begin, args=(b"t" * 16,))
        thread.start()
        thread.join()
    ledger.begin(b"m" * 16)
    assert ledger.settle(os.getpid(), -signal.SIGSEGV, b"")
    assert ledger.holds(b"m" * 16)


class NoTrials:
    async def try_policies(self, jobs: Sequence[Job]) -> list[TrialResult]:
        return [TrialResult() for _ in jobs]


def test_a_quarantined_policy_answers_with_an_error_until_it_changes():
    [record] = load_documents(VALIDATING.encode(), "p").records

    def make_task(mark: str) -> CompileTask:
        return CompileTask(
            "quarantined", mark, Job({}), compile_, lambda error: fail_policy(record, error)
        )

    def compile_() -> tuple[Program, ...]:
        return compile_documents((record,))

    def judge() -> tuple[Status, str]:
        [result] = Engine(compiler.compiled["quarantined"].programs).evaluate(POD).results
        return result.status, result.message

    async def prepare(mark: str) -> None:
        assert not compiler.is_current("quarantined", mark)
        await compiler.prepare([make_task(mark)])
        assert compiler.is_current("quarantined", mark)

    compiler = PolicyCompiler(NoTrials())
    asyncio.run(prepare("1"))
    assert judge()[0] is Status.PASS
    [program] = compiler.compiled["quarantined"].programs
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        EVALUATIONS.begin(program.identity)
        die(None)
    _, status = os.waitpid(child, 0)
    assert EVALUATIONS.settle(child, os.waitstatus_to_exitcode(status), b"")
    # Everyone who has compiled it before takes notice.
    asyncio.run(prepare("1"))
    assert compiler.compiled["quarantined"].reason == QUARANTINED
    assert judge() == (Status.ERROR, QUARANTINED)
    # Names of kinds have changed, which each process counts by itself.
    asyncio.run(prepare("1;1"))
    assert judge() == (Status.ERROR, QUARANTINED)
    asyncio.run(prepare("2"))
    assert judge()[0] is Status.PASS


def _make_slow() -> JsonObject:
    """More work than anyone has time for, about some Pods."""
    slow = require_label("team")
    letters = f"split('{','.join('a' * 400)}', ',')"
    condition = {"key": "{{ element }}", "operator": "Equals", "value": "b"}
    work: JsonObject = {"list": letters, "deny": {"conditions": {"any": [condition]}}}
    for _ in range(2):
        work = {"list": letters, "foreach": [work]}
    slow["validate"] = {"failureAction": "Enforce", "message": "no", "foreach": [work]}
    chosen = {"matchLabels": {"slow": "yes"}}
    slow["match"] = {"any": [{"resources": {"kinds": ["Pod"], "selector": chosen}}]}
    return slow


def _read_cpu(pid: int) -> int:
    """Ticks of the processor that a process has used."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def _find_slow(service: Service) -> int | None:
    """The process for slow requests: it gives way to all others."""
    usual = os.getpriority(os.PRIO_PROCESS, service.pid)
    return next(
        (pid for pid in service.children if os.getpriority(os.PRIO_PROCESS, pid) > usual), None
    )


def _kill_while_it_evaluates(service: Service, review: JsonObject, path: str) -> JsonObject:
    """The answer to a request in the middle of which SIGSEGV meets the process for slow ones."""
    answers: list[JsonObject] = []
    client = threading.Thread(target=lambda: answers.append(service.ask(review, path)))
    pid = _find_slow(service)
    began = _read_cpu(pid) if pid else 0
    client.start()
    while client.is_alive():
        if pid and _read_cpu(pid) > began + 3:
            os.kill(pid, signal.SIGSEGV)
            client.join(PATIENCE)
        time.sleep(0.01)
    return answers[0]


@pytest.mark.parametrize("failure", ["Fail", "Ignore"])
def test_every_worker_of_a_webhook_stops_evaluating_it(tmp_path: Path, failure: str) -> None:
    write_policies(
        tmp_path,
        # Another name each time: memory is shared by all that this process forks.
        make_policy(f"slow-{failure.lower()}", _make_slow(), failurePolicy=failure),
        make_policy("teams", require_label("team"), failurePolicy=failure),
    )
    heavy = make_review({"team": "x", "slow": "yes"})
    path = f"/validate/{failure.lower()}"
    with serve(tmp_path, workers=2) as service:
        deadline = time.monotonic() + PATIENCE
        while "a process died while" not in str(service.ask(heavy, path)):
            # The signal may come a moment too late, on a busy machine.
            assert time.monotonic() < deadline
            answer = _kill_while_it_evaluates(service, heavy, path)
            assert not answer["allowed"] or "a process died while" in str(answer)
        # All of them know soon; the one for slow requests is never asked again.
        agreed = 0
        while agreed < 20:
            assert time.monotonic() < deadline
            answer = service.ask(heavy, path)
            agreed = agreed + 1 if "a process died while" in str(answer) else 0
            # An error, under the failure policy.
            assert answer["allowed"] is (failure == "Ignore" and agreed > 0)
        # Other policies are as they were.
        assert "The label team is required" in str(service.ask(make_review(), path))
