"""Policy behaviour as golden folders: each says what it expects, and none expects it by accident."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import lictor
from lictor.cli.exit_codes import run as run_program
from lictor.cli.inputs.records import TestResult
from lictor.cli.inputs.resources import load_resources
from lictor.cli.responses import TestAnswers
from lictor.cli.test_cases import TestCase, load_cases
from lictor.cli.test_run import CaseRun, run_checks
from lictor.core.report.outcomes import TestOutcome

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.rglob("kyverno-test.yaml"))
# Whatever a rule said, it did not say this.
OPPOSITE = {"pass": "fail", "fail": "pass", "skip": "pass", "warn": "pass", "error": "pass"}

each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: str(path.parent.relative_to(CASES))
)


def load(path: Path) -> list[TestCase]:
    cases, problems = load_cases([str(path)])
    assert not problems
    return cases


def run(case: TestCase) -> tuple[CaseRun, TestAnswers]:
    said: list[str] = []
    made = CaseRun(case, said.append)
    answers = made.run()
    assert not [line for line in said if "WARNING" in line or "ERROR" in line or "warning" in line]
    return made, answers


def judge(
    made: CaseRun, answers: TestAnswers, rows: tuple[TestResult, ...]
) -> Iterator[tuple[TestResult, TestOutcome]]:
    comparer = made.make_comparer(answers)
    return ((row, outcome) for row in rows for outcome in comparer.compare(row))


def is_about_cel(row: TestResult) -> bool:
    return any(
        getattr(row, name)
        for name in TestResult.__struct_fields__
        if name.startswith("is_") and name.endswith("_policy")
    )


def name_resources(answers: TestAnswers) -> set[str]:
    keys = [*answers.triggers, *answers.targets]
    return {f"{namespace}/{name}" for _, _, namespace, name in keys} | {key[3] for key in keys}


@each_file
def test_expectations_hold(path):
    for case in load(path):
        made, answers = run(case)
        for row, outcome in judge(made, answers, case.test.results):
            assert outcome.ok, (outcome.resource, outcome.rule, outcome.reason, outcome.message)
            # A rule that does not concern a resource fulfils every expectation: only `skip` may.
            assert outcome.reason != "Excluded" or row.result == "skip", (outcome.resource, row)


@each_file
def test_checks_hold(path):
    for case in load(path):
        _, answers = run(case)
        for check in case.test.checks:
            outcomes = list(run_checks([check], answers))
            assert outcomes, f"a check that speaks of nothing: {check}"
            assert all(outcome.ok for outcome in outcomes), outcomes


@each_file
def test_expectations_turned_round_fail(path):
    def turn(row: TestResult) -> TestResult:
        return msgspec.structs.replace(row, result=OPPOSITE[row.result])

    for case in load(path):
        made, answers = run(case)
        rows = tuple(map(turn, case.test.results))
        assert not [o for _, o in judge(made, answers, rows) if o.ok and o.reason != "Excluded"]


@each_file
def test_rows_name_what_is_there(path):
    """A row that names nothing that is there would speak of everything."""
    for case in load(path):
        _, answers = run(case)
        named = {name for row in case.test.results for name in row.resources}
        assert named
        assert named <= name_resources(answers)
        # Only rules of classic policies have names.
        unnamed = "kubewarden" in path.parts
        assert all(
            row.policy and (row.rule or unnamed or is_about_cel(row)) for row in case.test.results
        )


@each_file
def test_every_folder_says_what_it_shows(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith("# ")
    assert len(first) > 10


def test_there_are_cases():
    assert len(FILES) >= 100


EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("kyverno-test.yaml")))
def test_examples_give_what_they_say(path):
    test_expectations_hold(path)
    test_rows_name_what_is_there(path)


# Cases of `lint` are mistakes.
GOOD = [str(path) for path in sorted(CASES.iterdir()) if path.name != "lint"]


@pytest.mark.parametrize("folders", [GOOD, [str(EXAMPLES)]], ids=["cases", "examples"])
def test_nothing_is_mistaken(folders, capsys):
    assert run_program(["lint", *folders]) == 0, capsys.readouterr().out


def test_examples_are_policies_of_the_library():
    engine = lictor.Engine(lictor.load_policies(EXAMPLES / "policies"))
    resources = load_resources((EXAMPLES / "resources" / "pods.yaml").read_bytes(), "pods.yaml")
    verdicts = {pod["metadata"]["name"]: engine.evaluate(pod) for pod in resources}
    assert {name: verdict.allowed for name, verdict in verdicts.items()} == {
        "web": True,
        "debug": False,
    }
