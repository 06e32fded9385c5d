"""Assertion trees of kyverno-json: JSON that describes other JSON.

A tree does not depend on the source of the value: policies, chainsaw's asserts and the checks of
test files use it.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TypeAlias

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.lang.assertion.operators import Lookup
from lictor.core.lang.assertion.parser import parse_expression
from lictor.core.lang.assertion.tree import AssertionMismatch, compile_tree
from lictor.core.lang.jmespath.functions import JmesPathHost
from lictor.core.raw import Json

__all__ = ["Assertion", "AssertionMismatch", "compile_assertion", "compile_expression"]

Clock: TypeAlias = Callable[[], datetime]
Bindings: TypeAlias = Mapping[str, Json]
Assertion: TypeAlias = Callable[[Json, Bindings], tuple[AssertionMismatch, ...]]
_TOO_DEEP = "the value is nested too deeply"


def _look_up(bindings: Bindings) -> Lookup:
    def lookup(name: str) -> Json:
        try:
            return bindings[name]
        except KeyError:
            raise EvaluationError(f"variable not defined: ${name}") from None

    return lookup


def _make_host(now: Clock | None) -> JmesPathHost:
    return JmesPathHost() if now is None else JmesPathHost(now=now)


def compile_assertion(tree: Json, *, now: Clock | None = None) -> Assertion:
    """Compile a tree to a test: no mismatches if a value is as asserted.

    `bindings` are the variables, by name without the `$`; each is read on first use.
    """
    try:
        test = compile_tree(tree, partial(parse_expression, host=_make_host(now)))
    except RecursionError:
        raise CompileError("the assertion is nested too deeply") from None

    def check(value: Json, bindings: Bindings) -> tuple[AssertionMismatch, ...]:
        try:
            return tuple(test(value, None, _look_up(bindings)) or ())
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None

    return check


def compile_expression(text: str, *, now: Clock | None = None) -> Callable[[Json, Bindings], Json]:
    """One expression, as between the parentheses of an assertion."""
    evaluate = parse_expression(text, _make_host(now))

    def query(value: Json, bindings: Bindings) -> Json:
        try:
            return evaluate(value, _look_up(bindings))
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None

    return query
