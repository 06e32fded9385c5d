"""The glossary: does each word still have the place that the page names?"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "decisions" / "glossary.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| ([^|]+?) \| [^|]+ \| `([\w./]+)`(?:: `(\w+)`)? \|$", re.MULTILINE)
ROWS = _ROW.findall(PAGE)


def test_a_page_of_about_fifty_words() -> None:
    lines = [
        line for line in PAGE.splitlines() if line.startswith("| ") and "| where |" not in line
    ]
    assert len(ROWS) == len(lines)
    assert 45 <= len(ROWS) <= 55
    words = [word for word, _, _ in ROWS]
    assert sorted(set(words)) == sorted(words)


@pytest.mark.parametrize(("word", "path", "name"), ROWS)
def test_each_word_is_where_the_page_says(word: str, path: str, name: str) -> None:
    file = ROOT / "src" / "lictor" / path
    assert file.is_file(), word
    if name:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        types = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        assert name in types
