"""Is every search pattern of the source read alike by every supported Python?

CPython before 3.11.4 matches possessive quantifiers and atomic groups wrongly in some places.
"""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "lictor"
# An escape, a set of characters, what must not be there, a plain quantifier, a character.
PIECE = re.compile(
    r"""\\. | \[\^?\]?(?:\\.|[^\]\\])*\]
    | (?P<odd>\(\?> | (?:[*+?]|\{[0-9]*,?[0-9]*\})\+)
    | [*+?]\?? | .""",
    re.VERBOSE | re.DOTALL,
)


def find_odd(pattern: str) -> list[str]:
    return [found["odd"] for found in PIECE.finditer(pattern) if found["odd"]]


class Module:
    """One file, and what its names are given, wherever that is."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.given: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    self.given.setdefault(ast.unparse(target), []).append(node.value)

    def list_patterns(self):
        """The text of every pattern that `re` is given, as far as it stands in this file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
                for word in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    yield "".join(self.read(word, frozenset()))

    def read(self, node: ast.AST, seen: frozenset[str]):
        if isinstance(node, ast.Constant):
            text = node.value
            yield text.decode("latin-1") if isinstance(text, bytes) else str(text)
        elif isinstance(node, ast.Name) and node.id not in seen:
            for value in self.given.get(node.id, ()):
                yield from self.read(value, seen | {node.id})
            yield "x" if node.id not in self.given else ""
        elif isinstance(node, ast.Dict):
            for value in node.values:
                yield from self.read(value, seen)
        else:
            for child in ast.iter_child_nodes(node):
                yield from self.read(child, seen)


@pytest.mark.parametrize(
    ("source", "odd"),
    [
        (r're.compile(r"a*+")', ["*+"]),
        (r're.match("(?>a|b)c{2,3}+", text)', ["(?>", "{2,3}+"]),
        (r're.compile(rb"\s++x?+")', ["++", "?+"]),
        ('A = "a*"\nre.compile(f"{A}+")', ["*+"]),
        ('def f(a):\n  p = "".join(f"(?>{b})" for b in a)\n  p += "c"\n  re.compile(p)', ["(?>"]),
        (r're.compile(r"[*+]+ \*+ a+? []*+] \(?>")', []),
        ('re.compile(r"a" + A)\nB = "*+"', []),
    ],
)
def test_finding_them(source, odd):
    assert [each for text in Module(source).list_patterns() for each in find_odd(text)] == odd


def test_the_source_has_none():
    found = {
        str(path.relative_to(SOURCE)): odd
        for path in sorted(SOURCE.rglob("*.py"))
        for text in Module(path.read_text(encoding="utf-8")).list_patterns()
        if (odd := find_odd(text))
    }
    assert not found
