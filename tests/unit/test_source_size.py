# ruff: noqa: T201  (it prints figures)
"""How large is the source, and does each of its words mean one thing? Figures that must not grow unseen.

`pytest tests/unit/test_source_size.py -rP` prints them.
"""

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "lictor"
# Goals: 700 files, 146,200 lines, 71,000 statements. These may only be lowered.
MOST_FILES = 896
MOST_LINES = 166_420
MOST_STATEMENTS = 85_460
SMALL = 60
MOST_SMALL_SINGLE_USER = 5
MOST_SHARED_NAMES = 0
MOST_NAMING_A_KIND = 5
# Where a kind of policy may be named: its family, and data that was generated or is a manifest.
NAMING_IS_FINE = ("core/families/", "addons/kubewarden/", "install/")
KINDS = (
    "ClusterPolicy",
    "ValidatingPolicy",
    "MutatingPolicy",
    "GeneratingPolicy",
    "DeletingPolicy",
    "ImageValidatingPolicy",
    "CleanupPolicy",
    "ValidatingAdmissionPolicy",
    "MutatingAdmissionPolicy",
    "ClusterAdmissionPolicy",
    "AdmissionPolicy",
    "ClusterAdmissionPolicyGroup",
    "AdmissionPolicyGroup",
)


@dataclass(frozen=True)
class Module:
    """One file of the source, read and parsed."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def statements(self) -> int:
        """Without imports and docstrings."""
        return sum(
            isinstance(node, ast.stmt)
            and not isinstance(node, ast.Import | ast.ImportFrom)
            and not (isinstance(node, ast.Expr) and is_text(node.value))
            for node in ast.walk(self.tree)
        )

    def list_imports(self):
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    def list_types(self):
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return [read_module(path) for path in sorted(SOURCE.rglob("*.py"))]


def read_module(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    words = path.relative_to(SOURCE.parent).with_suffix("").parts
    name = ".".join(words).removesuffix(".__init__")
    return Module(name, path, text, ast.parse(text))


def test_the_source_stays_small(modules):
    lines = sum(module.lines for module in modules)
    statements = sum(module.statements for module in modules)
    print(f"{len(modules)} files, {lines} lines, {statements} statements")
    assert len(modules) <= MOST_FILES
    assert lines <= MOST_LINES
    assert statements <= MOST_STATEMENTS


def test_small_files_serve_more_than_one(modules):
    names = {module.name for module in modules}
    users = defaultdict(set)
    for module in modules:
        for imported in set(module.list_imports()) & names - {module.name}:
            users[imported].add(module.name)
    small = [
        module.name
        for module in modules
        if module.lines <= SMALL
        and module.path.name != "__init__.py"
        and len(users[module.name]) == 1
    ]
    print(f"{len(small)} files of at most {SMALL} lines serve one other: {', '.join(small)}")
    assert len(small) <= MOST_SMALL_SINGLE_USER


def test_a_type_name_means_one_thing(modules):
    homes = defaultdict(list)
    for module in modules:
        for name in module.list_types():
            homes[name].append(module.name)
    shared = {name: where for name, where in homes.items() if len(where) > 1}
    print(f"{len(shared)} type names are used more than once: {shared}")
    assert len(shared) <= MOST_SHARED_NAMES


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_policy_is_named_by_its_family(modules, kind):
    pattern = re.compile(rf"(?<![A-Za-z])(?:Namespaced)?{kind}(?![A-Za-z])")
    naming = [
        where
        for module in modules
        if kind in module.text
        and pattern.search(module.text)
        and not (where := str(module.path.relative_to(SOURCE))).startswith(NAMING_IS_FINE)
    ]
    print(f"{kind}: {len(naming)} files outside its family: {', '.join(naming)}")
    assert len(naming) <= MOST_NAMING_A_KIND
