"""The golden tables: patterns, conditions, queries, and whole policies on many resources."""

import json

import pytest
from shared_cases import CASES

from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups
from lictor.cli.inputs.requests import GivenValues
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.errors import EvaluationError, LictorError
from lictor.core.lang.condition import compile_operator, compile_operator_with
from lictor.core.lang.jmespath import compile_query
from lictor.core.lang.pattern import compile_pattern
from lictor.core.load.policies import load_documents

GOLDEN = CASES / "golden"
LIBRARY = CASES / "policy-library"


# Answers of a newer release, in place of those of the same rows.
NEWER = CASES / "kyverno-1.19" / "golden"
_KEYS = {"conditions": ("key", "operator", "value"), "matrix": ("policy",)}


def rows(name):
    found = {_identify(name, row): row for row in _read(GOLDEN / f"{name}.jsonl")}
    found |= {_identify(name, row): row for row in _read(NEWER / f"{name}.jsonl")}
    return list(found.values())


def _read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _identify(name, row):
    return json.dumps([row[key] for key in _KEYS[name]] if name in _KEYS else row)


def test_patterns():
    wrong = []
    for row in rows("patterns"):
        if "result" not in row:
            continue
        spec = {} if row.get("missing") else {"v": row["value"]}
        mismatch = compile_pattern({"spec": {"v": row["pattern"]}})({"spec": spec})
        got = "pass" if mismatch is None else "skip" if mismatch.skip else "fail"
        if got != row["result"]:
            wrong.append((row, got))
    assert wrong == []


def test_conditions():
    wrong = []
    for row in rows("conditions"):
        both = {
            _holds(compile_operator(row["operator"]), row["key"], row["value"]),
            _holds(compile_operator_with(row["operator"], row["value"]), row["key"]),
        }
        if both != {"crash" if row.get("crash") else row["holds"]}:
            wrong.append((row, both))
    assert wrong == []


def _holds(test, *values):
    try:
        return test(*values)
    except EvaluationError:
        return "crash"


def test_queries():
    value = json.loads((GOLDEN / "jmespath-input.json").read_text())
    wrong = []
    for row in rows("jmespath"):
        try:
            got = {"result": compile_query(row["expression"])(value)}
        except LictorError:
            got = {"error": True}
        if got != ({"error": True} if "error" in row else {"result": row["result"]}):
            wrong.append((row, got))
    assert wrong == []


@pytest.fixture(scope="session")
def resources():
    path = GOLDEN / "matrix-resources.yaml"
    found = [r.record for r in load_documents(path.read_bytes(), "resources").resources]
    # As the command line does with what names no namespace.
    return [
        {**r, "metadata": {"namespace": "default", **r["metadata"]}} if r["metadata"] else r
        for r in found
    ]


@pytest.mark.parametrize(
    "row",
    list(rows("matrix")),
    ids=lambda row: row["policy"],
)
def test_matrix(row, resources):
    loaded = load_documents((LIBRARY / row["policy"]).read_bytes(), row["policy"])
    policies = [sourced.record for sourced in loaded.policies]
    given = GivenObjects(cluster=tuple(resources)) if "was" in row else None
    engine = Engine(compile_documents(policies, lookups=OfflineLookups(GivenValues(), given)))
    want = {
        (rule, name): result
        for rule, verdicts in row["verdicts"].items()
        for result, names in verdicts.items()
        for name in names
    }
    got = {
        (result.rule, resource["metadata"]["name"]): str(result.status)
        for resource in resources
        for result in engine.evaluate(resource).results
        if result.policy.name == policies[0].metadata.name and str(result.status) != "error"
    }
    undecided = {cell for cell, result in want.items() if result == "undecided"}
    cells = (want.keys() | got.keys()) - undecided
    assert {c: (want.get(c), got.get(c)) for c in cells if want.get(c) != got.get(c)} == {}
