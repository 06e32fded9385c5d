"""Every Test file of the suites gives what real Kyverno gives."""

import json

import pytest
from shared_cases import CASES

from lictor.cli.test_cases import load_cases
from lictor.cli.test_run import CaseRun, run_checks
from lictor.core.errors import LictorError


def list_files():
    index = CASES / "index.jsonl"
    rows = map(json.loads, index.read_text().splitlines()) if index.exists() else ()
    for row in rows:
        name = f"{row['suite']}/{row['test']}"
        must_fail = row["test"].startswith("test-fail/") and row["failed"] > 0
        is_known = must_fail or not (row["failed"] or row.get("error"))
        if is_known:
            yield pytest.param(name, must_fail, id=name)


def passes(path: str) -> bool:
    cases, problems = load_cases([path])
    if problems:
        return False
    for case in cases:
        run = CaseRun(case, lambda _: None)
        try:
            answers = run.run()
        except LictorError:
            return False
        comparer = run.make_comparer(answers)
        outcomes = [outcome for row in case.test.results for outcome in comparer.compare(row)]
        outcomes += run_checks(case.test.checks, answers, case.path)
        if not all(outcome.ok for outcome in outcomes):
            return False
    return True


@pytest.mark.parametrize(("name", "must_fail"), list(list_files()))
def test_suite(name, must_fail):
    assert passes(str(CASES / name)) is not must_fail
