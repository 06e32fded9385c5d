"""Scopes take any name that a policy, an object or an attestation may bring."""

import ast
from pathlib import Path

import pytest

from lictor.core.model.scope import Scope

SOURCE = Path(__file__).parents[4] / "src" / "lictor"


@pytest.mark.parametrize("name", ["self", "values", "scope", "a b", ""])
def test_any_name_can_be_given(name: str) -> None:
    scope = Scope({"kept": 1})
    assert scope.child(**{name: 2}) == scope.with_values({name: 2}) == {"kept": 1, name: 2}


def test_no_parameter_is_hidden_by_a_foreign_name() -> None:
    """`f(x, **values)` raises TypeError for a value named x: the others must be positional only."""
    wrong = []
    for room in (
        "core/model",
        "core/evaluate",
        "core/match",
        "core/lang",
        "core/families",
        "core/compile",
        "core/report",
        "addons/convert",
        "addons/kubewarden/runtime",
    ):
        for path in (SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.args.kwarg and node.args.args:
                    wrong.append(f"{path.relative_to(SOURCE)}: {node.name}")
    assert wrong == []
