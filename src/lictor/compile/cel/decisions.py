"""`validations` as Kubernetes decides them: for its own policies and for `validate.cel`."""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from lictor.compile.cel.conditions import (
    UNDECIDED,
    Evaluate,
    Holds,
    Language,
    compile_match_conditions,
)
from lictor.compile.cel.params import FindParams
from lictor.evaluate.cel import View
from lictor.lang.cel.activation import Activation
from lictor.model.policy import CelExpression, CelVariable, MatchCondition
from lictor.model.program import Case

# What Kubernetes takes of a message that an expression makes.
_LONGEST_MESSAGE = 5 * 1024


class Ruling(Enum):
    """What the expressions say."""

    UNMATCHED = "the match conditions do not hold"
    ADMITTED = "all expressions hold"
    DENIED = "an expression does not hold"
    UNDECIDED = "an expression could not be decided"


class Decision(msgspec.Struct, frozen=True):
    """A ruling and the reason for it."""

    ruling: Ruling
    message: str = ""


Decide: TypeAlias = Callable[[Activation], Decision]

_UNMATCHED = Decision(Ruling.UNMATCHED)
_ADMITTED = Decision(Ruling.ADMITTED)


def compile_decisions(
    conditions: Sequence[MatchCondition],
    validations: Sequence[CelExpression],
    language: Language,
    *,
    ignore_errors: bool = False,
) -> Decide:
    """The first expression that is not true decides. The language has the policy's variables."""
    matches = compile_match_conditions(conditions, language, ignore_errors=ignore_errors)
    tests = tuple(_compile_one(v, i, language) for i, v in enumerate(validations))

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


def _compile_one(
    validation: CelExpression, index: int, language: Language
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
        return ""  # what was written by hand stands in
    return "" if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE else text


def decide_with_params(
    decide: Decide, view: View, find: FindParams | None
) -> Callable[[Case], Decision]:
    """The decision about a case; with parameters, all of them must admit it."""
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


def list_decision_texts(
    conditions: Sequence[MatchCondition],
    variables: Sequence[CelVariable],
    validations: Sequence[CelExpression],
) -> Iterator[str]:
    """All expressions that take part in a decision."""
    for condition in conditions:
        yield condition.expression
    for variable in variables:
        yield variable.expression
    for validation in validations:
        yield validation.expression
        yield validation.message_expression
