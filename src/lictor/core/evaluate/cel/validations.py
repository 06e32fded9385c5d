"""`validations`: which expression denies, by the rules of Kubernetes and of Kyverno."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError
from lictor.core.evaluate.cel.exceptions import ResultTemplate
from lictor.core.evaluate.cel.expressions import (
    UNDECIDED,
    Annotate,
    Evaluate,
    ExpressionCompiler,
    Holds,
    compile_annotations,
    compile_match_conditions,
)
from lictor.core.evaluate.cel.params import FindParams
from lictor.core.evaluate.cel.views import View
from lictor.core.lang.cel.expression import Activation
from lictor.core.model.matching import MatchCondition
from lictor.core.model.policy import AuditAnnotation, CelExpression, CelVariable
from lictor.core.model.program import Case
from lictor.core.model.result import Result, Status

# The message of an expression for which the author wrote none.
NO_MESSAGE = "CEL expression validation failed at index "
_INDEX = "cel.validationIndex"
# The limit of Kubernetes for a message from an expression.
_LONGEST_MESSAGE = 5 * 1024


class Ruling(Enum):
    """The outcome of the expressions."""

    UNMATCHED = "the match conditions do not hold"
    ADMITTED = "all expressions hold"
    DENIED = "an expression does not hold"
    UNDECIDED = "an expression could not be decided"


class Decision(msgspec.Struct, frozen=True):
    """A ruling and its reason."""

    ruling: Ruling
    message: str = ""


Decide: TypeAlias = Callable[[Activation], Decision]

_UNMATCHED = Decision(Ruling.UNMATCHED)
_ADMITTED = Decision(Ruling.ADMITTED)


def compile_decisions(
    conditions: Sequence[MatchCondition],
    validations: Sequence[CelExpression],
    language: ExpressionCompiler,
    *,
    ignore_errors: bool = False,
) -> Decide:
    """The first expression that is not true decides. `language` has the policy's variables."""
    matches = compile_match_conditions(conditions, language, ignore_errors=ignore_errors)
    tests = tuple(_compile_decision(v, i, language) for i, v in enumerate(validations))

    def decide(activation: Activation) -> Decision:
        try:
            if matches is not None and not matches(activation):
                return _UNMATCHED
            for holds, explain in tests:
                if not holds(activation):
                    return Decision(Ruling.DENIED, explain(activation))
        except UNDECIDED as error:
            return Decision(Ruling.UNDECIDED, str(error))
        return _ADMITTED

    return decide


def _compile_decision(
    validation: CelExpression, index: int, language: ExpressionCompiler
) -> tuple[Holds, Callable[[Activation], str]]:
    where = f"validations[{index}]"
    holds = language.condition(validation.expression, f"{where}.expression")
    written = validation.message.strip() or f"failed expression: {validation.expression.strip()}"
    if not validation.message_expression:
        return holds, lambda _: written
    phrase = language.evaluator(
        validation.message_expression, ("string",), f"{where}.messageExpression"
    )
    return holds, lambda activation: _phrase(phrase, activation) or written


def _phrase(phrase: Evaluate, activation: Activation) -> str:
    try:
        text = str(phrase(activation)).strip()
    except UNDECIDED:
        return ""  # the written message is used
    return "" if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE else text


def decide_with_params(
    decide: Decide, view: View, find: FindParams | None
) -> Callable[[Case], Decision]:
    """The decision for a case; with parameters, all of them must admit it."""
    if find is None:
        return lambda case: decide(view(case))

    def decide_case(case: Case) -> Decision:
        worst = _UNMATCHED
        for params in find(case.request):
            decision = decide(view.adding(case, params=params))
            if decision.ruling in (Ruling.DENIED, Ruling.UNDECIDED):
                return decision
            if decision.ruling is Ruling.ADMITTED:
                worst = decision
        return worst

    return decide_case


def require_validations(
    validations: Sequence[CelExpression], annotations: Sequence[AuditAnnotation], field: str
) -> None:
    """Raise CompileError if a policy has no expressions: its field may be misspelt."""
    if not validations and not annotations:
        raise CompileError(f"{field}: expected at least one expression, found none")


def list_decision_texts(
    conditions: Sequence[MatchCondition],
    variables: Sequence[CelVariable],
    validations: Sequence[CelExpression],
) -> Iterator[str]:
    """All expressions that affect a decision."""
    for condition in conditions:
        yield condition.expression
    for variable in variables:
        yield variable.expression
    for validation in validations:
        yield validation.expression
        yield validation.message_expression


EvaluateActivation: TypeAlias = Callable[[Activation], tuple[Result, ...]]


class _Validation(msgspec.Struct, frozen=True):
    holds: Holds
    # The literal message, and the expression for another one; None if there is none.
    message: str
    phrase: Evaluate | None
    # The message if that expression returns none.
    otherwise: str

    def explain(self, activation: Activation) -> str:
        if self.phrase is None:
            return self.message
        try:
            return str(self.phrase(activation)) or self.otherwise
        except UNDECIDED as error:
            return f"failed to evaluate message expression: {error}"


def compile_validations(
    validations: Sequence[CelExpression],
    annotations: Sequence[AuditAnnotation],
    language: ExpressionCompiler,
    template: ResultTemplate,
    rule: str,
    *,
    report_index: bool = False,
) -> EvaluateActivation:
    """The first false expression decides; errors are raised, or results with `report_index`."""
    require_validations(validations, annotations, "validations")
    made = tuple(_compile_validation(v, i, language) for i, v in enumerate(validations))
    annotate = compile_annotations(annotations, language)
    passed = template.make(rule, Status.PASS, "success")
    indexes = tuple({_INDEX: str(index)} if report_index else {} for index in range(len(made)))
    tests = tuple(
        (one.holds, one, _fixed(one, template, rule, annotate, index), index)
        for one, index in zip(made, indexes, strict=True)
    )

    def evaluate(activation: Activation) -> tuple[Result, ...]:
        for holds, validation, failed, index in tests:
            try:
                if holds(activation):
                    continue
            except UNDECIDED as error:
                if not report_index:
                    raise
                return template.make(rule, Status.ERROR, f"error: {error}", properties=index)
            if failed is not None:
                return failed
            message = validation.explain(activation)
            noted = {**index, **(annotate(activation) if annotate else {})}
            return template.make(rule, Status.FAIL, message, properties=noted)
        if annotate is None:
            return passed
        return template.make(rule, Status.PASS, "success", properties=annotate(activation))

    return evaluate


def _compile_validation(
    validation: CelExpression, index: int, language: ExpressionCompiler
) -> _Validation:
    where = f"validations[{index}]"
    phrase = None
    if validation.message_expression:
        phrase = language.evaluator(
            validation.message_expression, ("string",), f"{where}.messageExpression"
        )
    otherwise = f"{NO_MESSAGE}{index}"
    return _Validation(
        language.condition(validation.expression, f"{where}.expression"),
        validation.message or otherwise,
        phrase,
        otherwise,
    )


def _fixed(
    validation: _Validation,
    template: ResultTemplate,
    rule: str,
    annotate: Annotate | None,
    properties: Mapping[str, str],
) -> tuple[Result] | None:
    """A failure that is the same for all requests, built in advance."""
    if validation.phrase is not None or annotate is not None:
        return None
    return template.make(rule, Status.FAIL, validation.message, properties=properties)
