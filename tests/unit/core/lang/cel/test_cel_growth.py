"""Expressions whose values grow out of all proportion are refused before they are evaluated."""

import pytest

from lictor.core.errors import SyntaxFaultError, TooLargeError
from lictor.core.lang.cel.environment import kyverno_environment
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    Expression,
    compile_expression,
    declare_variable,
)

ENVIRONMENT = kyverno_environment("validating", is_namespaced=False)


def _chain(first: str, then: str, levels: int, last: str) -> Expression:
    variables = declare_variable(NO_VARIABLES, "v0", first, ENVIRONMENT)
    for number in range(1, levels + 1):
        text = then.replace("V", f"variables.v{number - 1}")
        variables = declare_variable(variables, f"v{number}", text, ENVIRONMENT)
    return compile_expression(last.replace("V", f"variables.v{levels}"), ENVIRONMENT, variables)


@pytest.mark.parametrize(
    ("first", "then", "last"),
    [
        ("'a'", "V + V", "V.size() > 0"),
        ("[1]", "V + V", "V.size() > 0"),
        ("dyn([1])", "dyn([V, V])", "V == V"),
        ("dyn({'a': 1})", "dyn({'a': V, 'b': V})", "V == V"),
        ("'a'", "cel.bind(x, V, x + x)", "V.size() > 0"),
        ("object.spec.list", "V.map(x, dyn(V))", "V == V"),
        ("'a'", "V.replace('a', 'aaaaaaaaaa')", "V.size() > 0"),
        ("'a'", "[V, V].join('')", "V.size() > 0"),
        ("'a'", "true ? V + V : V", "V.size() > 0"),
    ],
)
def test_values_that_double(first: str, then: str, last: str) -> None:
    with pytest.raises(SyntaxFaultError, match="1000 times as large"):
        _chain(first, then, 30, last)


@pytest.mark.parametrize(
    "text",
    [
        "(object.spec.containers + object.spec.initContainers).map(c, c.image).filter(i, i != '')",
        "object.spec.a.all(a, object.spec.b.exists(b, object.spec.c.all(c, a + b == c)))",
        "object.spec.containers.map(c, c.ports.map(p, [c.name, p])).size() == 0",
        "'a' + object.a + 'b' + object.b + 'c' + object.c + 'd' + object.d",
        "object.spec.list.map(x, x).map(y, y + y).map(z, [z, z]).size() > 0",
        "object.spec.list.map(a, object.spec.list.map(b, a + b)).size() > 0",
    ],
)
def test_usual_expressions(text: str) -> None:
    assert compile_expression(text, ENVIRONMENT) is not None


def test_steep_expressions_are_for_short_lists() -> None:
    variables = declare_variable(NO_VARIABLES, "v1", "object.map(x, dyn(object))", ENVIRONMENT)
    cube = "object.map(x, dyn(variables.v1))"
    variables = declare_variable(variables, "v2", cube, ENVIRONMENT)
    same = compile_expression("variables.v2 == variables.v2", ENVIRONMENT, variables)
    assert same({"object": [1, 2]}) is True
    with pytest.raises(TooLargeError, match="long lists"):
        same({"object": list(range(1000))})
