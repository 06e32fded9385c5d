"""Expressions of a policy, compiled with its variables, and of the type that is wanted."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError, EvaluationError, LookupFailedError
from lictor.core.lang.cel.environment import Activation, Environment
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    Expression,
    Variables,
    compile_expression,
    declare_variable,
)
from lictor.core.lang.cel.host import NO_HOST_FUNCTIONS, HostFunctions
from lictor.core.lang.watch import Watch, unwatched
from lictor.core.model.matching import MatchCondition
from lictor.core.model.policy import AuditAnnotation, CelVariable
from lictor.core.raw import Json

Evaluate: TypeAlias = Callable[[Activation], Json]
Holds: TypeAlias = Callable[[Activation], bool]

# What an expression may fail with at run time; anything else is a fault of ours.
UNDECIDED = (EvaluationError, LookupFailedError)
_USED = re.compile(r"\bvariables\s*\.\s*(?:\?\s*)?(\w+)")


class ExpressionCompiler(msgspec.Struct, frozen=True):
    """What the expressions of one policy may use."""

    environment: Environment
    host: HostFunctions = NO_HOST_FUNCTIONS
    variables: Variables = NO_VARIABLES
    watch: Watch = unwatched
    # Kubernetes compiles each expression by itself: one that is wrong fails when it is used, in
    # these words. Kyverno's own kinds are refused as a whole.
    lenient: bool = False
    # Variables that did not compile, and why.
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
        """A compiled expression that answers one of these types."""
        try:
            made = compile_expression(text, self.environment, self.variables)
        except CompileError as error:
            raise _located(error, where) from error
        if made.result_type not in types:
            raise CompileError(
                f"must evaluate to {' or '.join(types)} but got {made.result_type}", where=where
            )
        return made

    def evaluator(self, text: str, types: Sequence[str], where: str) -> Evaluate:
        """The same, bound to what the policy may ask of the outside."""
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
        return _telling(evaluate, text) if self.lenient else evaluate

    def condition(self, text: str, where: str) -> Holds:
        """An expression that answers true or false."""
        return self.evaluator(text, ("bool",), where)

    def _watch_variables(self, text: str) -> list[Evaluate]:
        """The variables that an expression uses, each by itself, for those who want to hear."""
        names = set(_USED.findall(text))
        used: list[str] = []
        # A variable uses those before it.
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
        """The variable because of which an expression does not compile; empty where it is none."""
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
    """Whether all hold; one that is false decides, even where another cannot be decided.

    None where there is nothing to ask. With `ignore_errors`, what cannot be decided does not match.
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


Annotate: TypeAlias = Callable[[Activation], dict[str, str]]


def compile_annotations(
    annotations: Sequence[AuditAnnotation], language: ExpressionCompiler
) -> Annotate | None:
    """The audit annotations that are not empty; None where the policy makes none."""
    if not annotations:
        return None
    made = [
        (
            annotation.key,
            language.evaluator(
                annotation.value_expression,
                ("string", "null_type"),
                f"auditAnnotations[{index}].valueExpression",
            ),
        )
        for index, annotation in enumerate(annotations)
    ]

    def annotate(activation: Activation) -> dict[str, str]:
        found = {}
        for key, evaluate in made:
            try:
                value = evaluate(activation)
            except UNDECIDED as error:
                raise EvaluationError(
                    f"failed to evaluate auditAnnotation '{key}': {error}"
                ) from error
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


def _telling(evaluate: Evaluate, text: str) -> Evaluate:
    def told(activation: Activation) -> Json:
        try:
            return evaluate(activation)
        except UNDECIDED as error:
            raise EvaluationError(f"expression '{text}' resulted in error: {error}") from error

    return told
