"""The threat model has tests behind each section: `tests/threats.txt` names them, and they exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "threat-model.md").read_text(encoding="utf-8")
LIST = (ROOT / "tests" / "threats.txt").read_text(encoding="utf-8")
_NAMED = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
NAMED = sorted(set(_NAMED.findall(PAGE + LIST)))


def _list_sections(text: str) -> list[str]:
    return [each.partition("\n")[0] for each in text.split("\n## ")[1:]]


def test_every_section_has_tests() -> None:
    assert len(NAMED) > 40
    with_tests = [each for each in LIST.split("\n## ")[1:] if _NAMED.search(each)]
    named_in_page = [each for each in PAGE.split("\n## ")[1:] if _NAMED.search(each)]
    covered = {each.partition("\n")[0] for each in (*with_tests, *named_in_page)}
    assert [each for each in _list_sections(PAGE) if each not in covered] == []
    assert set(_list_sections(LIST)) <= set(_list_sections(PAGE))


@pytest.mark.parametrize("file", sorted({file for file, _ in NAMED}))
def test_every_test_is_there(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert {name for named, name in NAMED if named == file} - found == set()
