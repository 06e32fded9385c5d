"""The threat model names a test for each claim: all of them must exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "threat-model.md"
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = sorted(set(_NAMED.findall(PAGE.read_text(encoding="utf-8"))))


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 40
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert [each.partition("\n")[0] for each in sections if not _NAMED.search(each)] == []


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_is_there(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert {name for named, name in NAMED if named == file} - found == set()
