"""`lint --fix` on policies that others wrote: it is done after one run, and no verdict changes."""

import pytest
from shared_cases import CASES
from test_golden import GOLDEN, LIBRARY

from lictor.cli.inputs.records import FILE_RECORDS
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.lint.documents import read_file
from lictor.lint.fixes import fix_text
from lictor.lint.run import lint_texts

FILES = [
    path
    for path in sorted(LIBRARY.rglob("*.yaml"))
    if ".chainsaw-test" not in path.parts and b"\n  validationFailureAction" in path.read_bytes()
]


def put_right(source, content):
    report = lint_texts([(source, content)], FILE_RECORDS)
    return fix_text(read_file(source, content), report.findings)


@pytest.fixture(scope="module")
def resources():
    if not FILES:
        pytest.skip(f"no policies of others at {CASES}: nothing to put right")
    path = GOLDEN / "matrix-resources.yaml"
    return [found.record for found in load_documents(path.read_bytes(), "resources").resources]


def evaluate_all(content, source, resources):
    policies = [sourced.record for sourced in load_documents(content, source).policies]
    engine = Engine(compile_documents(policies))
    return [
        (result.policy.name, result.rule, result.status, result.message, result.action)
        for resource in resources
        for result in engine.evaluate(resource).results
    ]


def test_no_verdict_changes(resources):
    for path in FILES:
        before = path.read_bytes()
        after = put_right(path.name, before)
        assert put_right(path.name, after) == after, path
        assert after != before, path
        told = evaluate_all(before, path.name, resources)
        assert evaluate_all(after, path.name, resources) == told, path
