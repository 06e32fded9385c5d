"""Compiles a policy's expressions with its variables, and checks their types."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError, EvaluationError, LookupFailedError
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    Activation,
    Expression,
    Variables,
    compile_expression,
    declare_variable,
)
from lictor.core.lang.cel.host import NO_HOST_FUNCTIONS, HostFunctions
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.watch import Watch, unwatched
from lictor.core.model.matching import MatchCondition
from lictor.core.model.policy import AuditAnnotation, CelVariable
from lictor.core.raw import Json

Evaluate: TypeAlias = Callable[[Activation], Json]
Holds: TypeAlias = Callable[[Activation], bool]

# Runtime errors of an expression; anything else is an internal error.
UNDECIDED = (EvaluationError, LookupFailedError)
_USED = re.compile(r"\bvariables\s*\.\s*(?:\?\s*)?(\w+)")


class ExpressionCompiler(msgspec.Struct, frozen=True):
    """What the expressions of one policy may use."""

    environment: Environment
    host: HostFunctions = NO_HOST_FUNCTIONS
    variables: Variables = NO_VARIABLES
    watch: Watch = unwatched
    # Kubernetes compiles expressions separately: an invalid one fails on use, with this message.
    # Kyverno's kinds are rejected as a whole.
    lenient: bool = False
    # Variables that did not compile, with the reason.
    broken: Mapping[str, str] = {}

    def declare(self, variables: Iterable[CelVariable]) -> "ExpressionCompiler":
        """The same with these variables."""
        known, broken = self.variables, dict(self.broken)
        for index, variable in enumerate(variables):
            try:
                known = declare_variable(
                    known, variable.name, variable.expression, self.environment
                )
            except CompileError as error:
                if not self.lenient:
                    raise _located(error, f"variables[{index}].expression") from error
                broken[variable.name] = error.message
        return msgspec.structs.replace(self, variables=known, broken=broken)

    def expression(self, text: str, types: Sequence[str], where: str) -> Expression:
        """A compiled expression of one of these types."""
        try:
            made = compile_expression(text, self.environment, self.variables)
        except CompileError as error:
            raise _located(error, where) from error
        if types and made.result_type not in types:
            raise CompileError(
                f"must evaluate to {' or '.join(types)} but got {made.result_type}", where=where
            )
        return made

    def evaluator(self, text: str, types: Sequence[str], where: str) -> Evaluate:
        """The same, bound to the policy's external functions."""
        try:
            expression = self.expression(text, types, where)
        except CompileError as error:
            if not self.lenient:
                raise
            return _failing(self._blame(text) or f"compilation error: {error.message}")
        host = self.host
        evaluate = self.watch(where, lambda activation: expression(activation, host))
        if self.watch is not unwatched:
            evaluate = _showing(self._watch_variables(text), evaluate)
        return _add_text_to_errors(evaluate, text) if self.lenient else evaluate

    def condition(self, text: str, where: str) -> Holds:
        """An expression of type bool."""
        return self.evaluator(text, ("bool",), where)

    def _watch_variables(self, text: str) -> list[Evaluate]:
        """Trace the variables that an expression uses."""
        names = set(_USED.findall(text))
        used: list[str] = []
        # A variable may use earlier ones.
        for name, variable in reversed(tuple(self.variables.declared.items())):
            if name in names:
                names.update(_USED.findall(variable.text))
                used.append(f"variables.{name}")
        return [
            self.watch(name, partial(expression, host=self.host))
            for name in reversed(used)
            for expression in (compile_expression(name, self.environment, self.variables),)
        ]

    def _blame(self, text: str) -> str:
        """The variable that prevents an expression from compiling; empty if there is none."""
        for name, message in self.broken.items():
            if f"variables.{name}" in text:
                reason = f'composited variable "{name}" fails to compile: {message}'
                return f"expression '{text}' resulted in error: {reason}"
        return ""


def compile_match_conditions(
    conditions: Sequence[MatchCondition],
    language: ExpressionCompiler,
    *,
    ignore_errors: bool = False,
    where: str = "matchConditions",
) -> Holds | None:
    """Whether all hold; a false one decides, even if another fails with an error.

    None if there are no conditions. With `ignore_errors`, an error counts as no match.
    """
    if not conditions:
        return None
    tests = [
        language.condition(condition.expression, f"{where}[{index}].expression")
        for index, condition in enumerate(conditions)
    ]

    def matches(activation: Activation) -> bool:
        errors = []
        for test in tests:
            try:
                if not test(activation):
                    return False
            except UNDECIDED as error:
                errors.append(str(error))
        if not errors:
            return True
        if ignore_errors:
            return False
        raise EvaluationError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")

    return matches


# The types that an audit annotation may have.
_NOTABLE = ("string", "null_type")
Annotate: TypeAlias = Callable[[Activation], dict[str, str]]


def compile_annotations(
    annotations: Sequence[AuditAnnotation],
    language: ExpressionCompiler,
    *,
    refuse_null: bool = False,
) -> Annotate | None:
    """The audit annotations that are not empty; None if the policy has none."""
    if not annotations:
        return None
    where = "auditAnnotations[{}].valueExpression"
    made = [
        (each.key, language.evaluator(each.value_expression, _NOTABLE, where.format(index)))
        for index, each in enumerate(annotations)
    ]

    def annotate(activation: Activation) -> dict[str, str]:
        found = {}
        for key, evaluate in made:
            try:
                value = evaluate(activation)
            except UNDECIDED as error:
                quoted = f'"{key}"' if refuse_null else f"'{key}'"
                raise EvaluationError(
                    f"failed to evaluate auditAnnotation {quoted}: {error}"
                ) from error
            if value is None and refuse_null:
                raise EvaluationError(
                    f'failed to convert auditAnnotation "{key}" expression: '
                    "type conversion error from 'null_type' to 'string'"
                )
            if value:
                found[key] = str(value)
        return found

    return annotate


def _located(error: CompileError, where: str) -> CompileError:
    return CompileError(error.message, where=where)


def _failing(message: str) -> Evaluate:
    def evaluate(_: Activation) -> Json:
        raise EvaluationError(message)

    return evaluate


def _showing(shown: Sequence[Evaluate], evaluate: Evaluate) -> Evaluate:
    def show(activation: Activation) -> Json:
        for each in shown:
            with suppress(*UNDECIDED):
                each(activation)
        return evaluate(activation)

    return show


def _add_text_to_errors(evaluate: Evaluate, text: str) -> Evaluate:
    def evaluate_with_text(activation: Activation) -> Json:
        try:
            return evaluate(activation)
        except UNDECIDED as error:
            raise EvaluationError(f"expression '{text}' resulted in error: {error}") from error

    return evaluate_with_text
