"""Mistakes that people make, one per file: each file says at its top what is found, and nothing else is."""

import re
from pathlib import Path

import pytest

from lictor.cli.inputs.records import FILE_RECORDS
from lictor.lint.catalog import CHECKS
from lictor.lint.run import lint_texts

CASES = Path(__file__).parents[2] / "cases" / "lint"
FILES = sorted(CASES.rglob("*.yaml"))
# finds LIC502 at 17:11, meant: containers
EXPECTED = re.compile(r"^# finds (LIC\d+) at (\d+):(\d+)(?:, meant: (.+))?$", re.MULTILINE)


def find(path: Path) -> list[tuple[str, int, int, str]]:
    report = lint_texts([(path.name, path.read_bytes())], FILE_RECORDS)
    return [
        (CHECKS[each.check].code, each.location.line, each.location.column, each.suggestion)
        for each in report.findings
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_mistake_is_found_where_it_is(path: Path) -> None:
    expected = [
        (code, int(line), int(column), meant)
        for code, line, column, meant in EXPECTED.findall(path.read_text())
    ]
    assert expected, f"{path.name} does not say what is found"
    assert find(path) == expected
