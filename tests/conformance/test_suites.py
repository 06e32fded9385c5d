"""Every classic Test file of the suites gives what real Kyverno gives."""

import json

import pytest
from conftest import CASES

from lictor.cli.offline.cases import CaseRun, load_cases
from lictor.cli.offline.checks import run_checks
from lictor.errors import LictorError

# What this release does not judge, with the reason in docs/differences.md.
LATER = {"kyverno-cli/test/manifests/verify-signature/kyverno-test.yaml": "validate.manifests"}
FAMILIES = {"classic"}


def list_files():
    index = CASES / "index.jsonl"
    rows = map(json.loads, index.read_text().splitlines()) if index.exists() else ()
    for row in rows:
        name = f"{row['suite']}/{row['test']}"
        must_fail = row["test"].startswith("test-fail/") and row["failed"] > 0
        if row["family"] in FAMILIES and (must_fail or not (row["failed"] or row.get("error"))):
            marks = [pytest.mark.xfail(reason=LATER[name], strict=True)] if name in LATER else []
            yield pytest.param(name, must_fail, id=name, marks=marks)


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
        judge = run.judge_with(answers)
        outcomes = [outcome for row in case.test.results for outcome in judge.judge(row)]
        outcomes += run_checks(case.test.checks, answers, case.path)
        if not all(outcome.ok for outcome in outcomes):
            return False
    return True


@pytest.mark.parametrize(("name", "must_fail"), list(list_files()))
def test_suite(name, must_fail):
    assert passes(str(CASES / name)) is not must_fail
