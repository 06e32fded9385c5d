"""`validations` of Kyverno's CEL kinds: what a policy answers about what an expression sees."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from lictor.compile.cel.answers import Voice
from lictor.compile.cel.conditions import (
    UNDECIDED,
    Annotate,
    Evaluate,
    Holds,
    Language,
    compile_annotations,
)
from lictor.lang.cel.activation import Activation
from lictor.model.policy import AuditAnnotation, CelExpression
from lictor.model.result import Result, Status

Judge: TypeAlias = Callable[[Activation], tuple[Result, ...]]


class _Validation(msgspec.Struct, frozen=True):
    holds: Holds
    # The message as it is written, and the expression that makes another; None where there is none.
    message: str
    phrase: Evaluate | None
    # What is said where that expression makes nothing.
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
    language: Language,
    voice: Voice,
    rule: str,
) -> Judge:
    """The first expression that is false decides; errors are raised."""
    made = tuple(_compile_one(v, i, language) for i, v in enumerate(validations))
    annotate = compile_annotations(annotations, language)
    passed = voice.say(rule, Status.PASS, "success")
    tests = tuple((one.holds, one, _fixed(one, voice, rule, annotate)) for one in made)

    def judge(activation: Activation) -> tuple[Result, ...]:
        for holds, validation, failed in tests:
            if holds(activation):
                continue
            if failed is not None:
                return failed
            message = validation.explain(activation)
            properties = annotate(activation) if annotate is not None else {}
            return voice.say(rule, Status.FAIL, message, properties=properties)
        if annotate is None:
            return passed
        return voice.say(rule, Status.PASS, "success", properties=annotate(activation))

    return judge


def _compile_one(validation: CelExpression, index: int, language: Language) -> _Validation:
    where = f"validations[{index}]"
    phrase = None
    if validation.message_expression:
        phrase = language.evaluator(
            validation.message_expression, ("string",), f"{where}.messageExpression"
        )
    otherwise = f"CEL expression validation failed at index {index}"
    return _Validation(
        language.condition(validation.expression, f"{where}.expression"),
        validation.message or otherwise,
        phrase,
        otherwise,
    )


def _fixed(
    validation: _Validation, voice: Voice, rule: str, annotate: Annotate | None
) -> tuple[Result] | None:
    """A failure that is the same for all requests, made beforehand."""
    if validation.phrase is not None or annotate is not None:
        return None
    return voice.say(rule, Status.FAIL, validation.message)
