"""Does every regular expression of ours take linear time, or give the reason why it need not?

Foreign text makes a backtracking expression hang: of the expressions given to `re`, each is proven linear
by regex_cost.py, or carries a comment `# re: REASON - explanation` at its line or above it.
"""

import ast
import importlib
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from regex_cost import UnprovenError, prove_linear

SOURCE = Path(__file__).parents[2] / "src"
# linear: by reasoning that the proof does not know; bounded: the length of the text is limited;
# trusted: the text is our own, or of the user at the command line who waits for it.
COMMENT = re.compile(r"# re: (linear|bounded|trusted) - \S.{9,}")
METHODS = {"compile", "match", "search", "sub", "subn", "split", "fullmatch", "findall", "finditer"}
AT_ONE_PLACE = {"match", "fullmatch"}


@dataclass(frozen=True)
class Site:
    """A call of the module `re` that names an expression."""

    path: Path
    line: int
    pattern: "re.Pattern | None"
    anchored: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(SOURCE)}:{self.line}"

    def prove(self) -> None:
        if self.pattern is None:
            raise UnprovenError("made from values that are known at run time only")
        prove_linear(self.pattern, anchored=self.anchored)


def list_sites():
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if "re." in text:
            tree = ast.parse(text)
            yield from list_sites_of(path, text.splitlines(), tree)


def list_sites_of(path, lines, tree):
    uses = find_uses(tree)
    names = {
        id(node.value): node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if is_re_call(node):
            yield read_site(path, lines, node, names.get(id(node)), uses)


def is_re_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in METHODS
    )


def find_uses(tree):
    """Which methods of each name are called; "" is for any other use."""
    methods = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            methods[id(node.value)] = node.attr
    for node in ast.walk(tree):
        # With a second argument it begins at any place.
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and len(node.args) > 1
        ):
            methods[id(node.func.value)] = ""
    uses = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses[node.id].add(methods.get(id(node), ""))
    return uses


def read_site(path, lines, node, assigned, uses) -> Site:
    target = assigned and (
        assigned.targets[0] if isinstance(assigned, ast.Assign) else assigned.target
    )
    called = {node.func.attr}
    if isinstance(target, ast.Name):
        # Other modules may use a public name in another way.
        called = uses[target.id] if target.id.startswith("_") else {""}
    near = lines[node.lineno - 1], above(lines, node.lineno)
    reason = next((found[1] for text in near if (found := COMMENT.search(text))), "")
    return Site(path, node.lineno, find_pattern(path, node), called <= AT_ONE_PLACE, reason)


def above(lines, number) -> str:
    text = lines[number - 2].strip()
    return text if text.startswith("#") else ""


def find_pattern(path: Path, node) -> "re.Pattern | None":
    module = importlib.import_module(
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    )
    flags = [each.value for each in node.keywords if each.arg == "flags"]
    position = {
        "compile": 1,
        "match": 2,
        "search": 2,
        "fullmatch": 2,
        "findall": 2,
        "finditer": 2,
    }.get(node.func.attr)
    flags += node.args[position : position + 1] if position else []
    call = ast.Call(ast.parse("re.compile", mode="eval").body, [node.args[0], *flags], [])
    expression = ast.fix_missing_locations(ast.Expression(call))
    try:
        return eval(compile(expression, str(path), "eval"), vars(module))
    except NameError:
        return None


@pytest.fixture(scope="module")
def sites() -> list[Site]:
    return list(list_sites())


def test_every_expression_is_linear_or_gives_a_reason(sites):
    missing = []
    for site in sites:
        if site.reason:
            continue
        try:
            site.prove()
        except UnprovenError as error:
            missing.append(f"{site}: {error}: {site.pattern.pattern if site.pattern else ''}")
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("text", "anchored"),
    [
        (r"(?:\s+|//[^\n]*)*x", True),
        (r"(?:a|a)*b", True),
        (r"(?:a|aa)*b", True),
        (r"\s*!?\s*x", True),
        (r"a*a*b", True),
        (r"\w*$", False),
        (r"\{\{.*?\}\}", False),
        (r"(a*)*", True),
    ],
)
def test_what_is_slow_is_not_proven(text: str, anchored: bool) -> None:  # noqa: FBT001
    with pytest.raises(UnprovenError):
        prove_linear(re.compile(text), anchored=anchored)


@pytest.mark.parametrize(
    ("text", "anchored"),
    [
        (r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", True),
        (r"(?<!\w)\w*$", False),
        (r"\{\{(?:\{[^{}]*\}|[^{}])*\}\}", False),
        (r"[^a-z]+", False),
        (r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==)?", True),
    ],
)
def test_what_is_linear_is_proven(text: str, anchored: bool) -> None:  # noqa: FBT001
    prove_linear(re.compile(text), anchored=anchored)
