"""`validate`: deny, pattern, anyPattern and foreach of a rule, and of each element in a foreach."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError, EvaluationError, UnknownKeyError
from lictor.core.evaluate.conditions import HOLDS, Conditions, compile_conditions
from lictor.core.evaluate.context import Enter, compile_foreach_context
from lictor.core.evaluate.patterns import (
    EvaluateSubject,
    answer_by,
    compile_pattern_check,
    compile_patterns,
)
from lictor.core.evaluate.rule_context import Message, RuleContext, RuleOutcome, compile_message
from lictor.core.lang.json_type import name_json_type
from lictor.core.lang.template import Fill
from lictor.core.model.policy import Deny, ForEachValidate, Validate
from lictor.core.model.program import Case, Check
from lictor.core.model.result import Status
from lictor.core.raw import Json, JsonObject

_RULE_PASSED = RuleOutcome(Status.PASS, "rule passed")


def compile_validate(validate: Validate, setting: RuleContext) -> Check:
    """The check of a rule with deny, pattern, anyPattern or foreach."""
    message = compile_message(validate.message, setting)
    if validate.deny is None and validate.pattern is not None:
        return compile_pattern_check(validate.pattern, message, setting)
    return answer_by(_compile_body(validate, message, setting, "validate"), setting)


def _compile_body(
    body: Validate | ForEachValidate, message: Message, setting: RuleContext, where: str
) -> EvaluateSubject:
    if body.deny is not None:
        return _compile_deny(body.deny, message, setting, f"{where}.deny.conditions")
    if body.pattern is not None or body.any_pattern is not None:
        return compile_patterns(body.pattern, body.any_pattern, message, setting)
    if body.foreach:
        return _compile_foreach(body.foreach, message, setting, where)
    # Only misspelt fields: the rule must not appear to pass.
    raise CompileError(f"{where}: expected pattern, anyPattern, deny or foreach, found none")


def _compile_deny(
    deny: Deny, message: Message, setting: RuleContext, where: str
) -> EvaluateSubject:
    conditions = compile_conditions(
        deny.conditions, setting.expressions, watch=setting.watch, where=where
    )
    passed = RuleOutcome(Status.PASS, f"validation rule '{setting.rule}' passed.")

    def evaluate(case: Case, _: Json) -> RuleOutcome | None:
        try:
            denied, text = HOLDS if conditions is None else conditions(case.scope)
        except EvaluationError as error:
            raise EvaluationError(f"failed to check deny conditions: {error}") from error
        if not denied:
            return passed
        return RuleOutcome(Status.FAIL, message.of_denial(case, text, setting))

    return evaluate


def _compile_foreach(
    blocks: Sequence[ForEachValidate], message: Message, setting: RuleContext, where: str
) -> EvaluateSubject:
    loops = [
        _Loop(block, message, setting, f"{where}.foreach[{index}]")
        for index, block in enumerate(blocks)
    ]

    def evaluate(case: Case, subject: Json) -> RuleOutcome | None:
        count, broken = 0, ""
        for loop in loops:
            try:
                elements = loop.elements(case)
            except UnknownKeyError:
                continue  # a missing field has no elements
            except EvaluationError as error:
                broken = str(error)
                continue
            outcome, checked = loop.run(case, subject, elements)
            if outcome is not None:
                return outcome
            count += checked
        if count:
            return _RULE_PASSED
        return RuleOutcome(Status.ERROR, f"failed to evaluate list: {broken}") if broken else None

    return evaluate


class _Loop:
    """One entry of `foreach`, compiled."""

    def __init__(
        self, block: ForEachValidate, message: Message, setting: RuleContext, where: str
    ) -> None:
        self._list: Fill = setting.expressions.query(block.list)
        self._scoped = block.element_scope
        self._names = ElementNames.at(where.count(".foreach[") - 1)
        self._enter: Enter | None = compile_foreach_context(block.context, setting)
        self._conditions: Conditions | None = compile_conditions(
            block.preconditions,
            setting.expressions,
            watch=setting.watch,
            where=f"{where}.preconditions",
        )
        self._evaluate = _compile_body(block, message, setting, where)

    def elements(self, case: Case) -> list[Json]:
        found = self._list(case.scope)
        return found if isinstance(found, list) else [found]

    def run(
        self, case: Case, subject: Json, elements: list[Json]
    ) -> tuple[RuleOutcome | None, int]:
        """The first outcome that is not a pass, and how many elements passed before it."""
        count = 0
        for index, element in enumerate(elements):
            if element is None:
                continue
            outcome = self._evaluate_element(case, subject, element, index)
            if outcome is None or outcome.status is Status.SKIP:
                continue
            if outcome.status is not Status.PASS:
                text = f"validation failure: {outcome.message}"
                return replace(outcome, message=text), count
            count += 1
        return None, count

    def _evaluate_element(
        self, case: Case, subject: Json, element: Json, index: int
    ) -> RuleOutcome | None:
        if self._scoped and not isinstance(element, dict):
            raise EvaluationError(
                "cannot use elementScope=true foreach rules for elements that are not maps, "
                f"found {name_json_type(element)}"
            )
        scope = case.scope.with_values(self._names.bind(element, index))
        if self._enter is not None:
            scope = self._enter(scope)
        if self._conditions is not None:
            try:
                if not self._conditions(scope)[0]:
                    return None
            except EvaluationError:
                return None  # an element whose preconditions fail with an error is skipped
        scoped = isinstance(element, dict) if self._scoped is None else self._scoped
        return self._evaluate(case.with_scope(scope), element if scoped else subject)


class ElementNames(msgspec.Struct, frozen=True):
    """The names of the variables of a foreach: each nesting level also has its own."""

    element: str
    index: str

    @classmethod
    def at(cls, nesting: int) -> "ElementNames":
        return cls(f"element{nesting}", f"elementIndex{nesting}")

    def bind(self, element: Json, index: int) -> JsonObject:
        """The variables of one iteration."""
        return {
            "element": element,
            self.element: element,
            "elementIndex": index,
            self.index: index,
        }
