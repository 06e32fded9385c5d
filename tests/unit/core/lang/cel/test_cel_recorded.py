"""What a real API server said about the rows for Kubernetes (see scripts/record_cel.py)."""

import json
from pathlib import Path

import pytest
import yaml

from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.lint.cel_inspection import inspect_expression

FOLDER = Path(__file__).parent
RECORDED = json.loads((FOLDER / "recorded/apiserver.json").read_text(encoding="utf-8"))
# Known to the server only from the next release on.
NEWER = ("slice(", "flatten(", "range(", "sort(", "sortBy(", "distinct(", "reverse(")
# What the server computes when it compiles, and we when we run.
LATER = ("'abc'.find('(')", "int(1e30)", "uint(-1)", "'%d'.format(['a'])", "'%s %s'.format(['a'])")
# The words of this message have changed with the next release.
OTHER_WORDS = ("format.qualifiedName().validate('a/b/c')",)


def read_rows():
    tables = [yaml.safe_load(p.read_text(encoding="utf-8")) for p in sorted(FOLDER.glob("*.yaml"))]
    rows = [
        row for table in tables if table["environment"] == "kubernetes" for row in table["rows"]
    ]
    return {row["expression"]: row for row in rows}


ROWS = read_rows()


def expect(row):
    if "fault" in row:
        return ("refused", None)
    return ("accepted", "error" if "error" in row else "allowed")


def test_all_rows_were_asked():
    asked = {answer["expression"] for answer in RECORDED["answers"]}
    assert len(asked) > 500
    assert asked <= ROWS.keys()


@pytest.mark.parametrize(
    "answer", RECORDED["answers"], ids=lambda answer: answer["expression"][:40]
)
def test_the_server_agrees(answer):
    text = answer["expression"]
    said = (answer["policy"], answer.get("request"))
    if said == expect(ROWS[text]):
        return
    if said[0] == "refused":
        # What the engine lets pass, `lint` finds.
        findings = inspect_expression(text, kubernetes_environment()).findings
        assert findings or text in LATER or any(word in text for word in NEWER)
    else:
        assert text in OTHER_WORDS
