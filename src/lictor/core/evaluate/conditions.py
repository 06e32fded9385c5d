"""Evaluates `preconditions` and `deny.conditions`."""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.expressions import Expressions
from lictor.core.lang.condition import compile_operator, compile_operator_with
from lictor.core.lang.watch import Watch, unwatched
from lictor.core.model.request import Operation
from lictor.core.model.scope import Scope
from lictor.core.raw import Json, JsonObject

# Whether the conditions hold, and the messages of the decisive ones.
Answer: TypeAlias = tuple[bool, str]
Conditions: TypeAlias = Callable[[Scope], Answer]

HOLDS: Answer = (True, "")


def compile_conditions(
    conditions: Json, expressions: Expressions, *, watch: Watch = unwatched, where: str = ""
) -> Conditions | None:
    """Compile the `any`/`all` form or the older plain list; None if there are no conditions."""
    if conditions is None:
        return None
    compiled = _compile(conditions, _Compiler(expressions, watch), where)
    # When traced, every condition is evaluated.
    is_settled = watch is unwatched and _uses_operation_only(conditions)
    return _remember_operations(compiled) if is_settled else compiled


def _compile(conditions: Json, compiler: "_Compiler", where: str) -> Conditions:
    if isinstance(conditions, list):
        # Older policies: each entry is a condition or, in attestations, a block.
        if conditions and all(
            isinstance(c, dict) and ("any" in c or "all" in c) for c in conditions
        ):
            return _every(
                [compiler.block(c, f"{where}[{i}]") for i, c in enumerate(conditions)], ";"
            )
        return _every(compiler.conditions(conditions, where), ";")
    if isinstance(conditions, dict):
        return compiler.block(conditions, where)
    raise CompileError("expected `any` and `all`, or a list of conditions", where=where)


# The usual first condition of rules that ignore deletions.
_OPERATION = re.compile(r"\{\{\s*request\.operation\s*(\|\|\s*'[^'{}\\]*'\s*)?\}\}")
_OPERATIONS = frozenset(each.value for each in Operation)


def _uses_operation_only(conditions: Json) -> bool:
    """Whether the conditions use only the operation of a request."""
    if isinstance(conditions, dict):
        if "key" not in conditions:
            return all(map(_uses_operation_only, conditions.values()))
        key, value = conditions["key"], conditions.get("value")
        is_constant = isinstance(value, str | list) and "{{" not in str(value)
        return is_constant and isinstance(key, str) and _OPERATION.fullmatch(key) is not None
    return isinstance(conditions, list) and all(map(_uses_operation_only, conditions))


def _remember_operations(conditions: Conditions) -> Conditions:
    """The same, cached by operation."""
    known: dict[str, Answer] = {}

    def holds(scope: Scope) -> Answer:
        request = scope.get("request")
        operation = request.get("operation") if isinstance(request, dict) else None
        # Values given explicitly may be of any type.
        if operation.__class__ is not str or operation not in _OPERATIONS:
            return conditions(scope)
        answer = known.get(operation)
        if answer is None:
            answer = known[operation] = conditions(scope)
        return answer

    return holds


class _Compiler(msgspec.Struct, frozen=True):
    expressions: Expressions
    watch: Watch

    def block(self, block: JsonObject, where: str) -> Conditions:
        unknown = set(block) - {"any", "all"}
        if unknown:
            raise CompileError(
                f"unknown {sorted(unknown)[0]!r}, expected `any` or `all`", where=where
            )
        some = block.get("any")
        every = block.get("all")
        any_of = None if some is None else self.conditions(some, f"{where}.any")
        all_of = self.conditions(every or [], f"{where}.all")
        return _any_and_all(any_of, all_of)

    def conditions(self, conditions: Json, where: str) -> list[Conditions]:
        if not isinstance(conditions, list):
            raise CompileError("expected a list of conditions", where=where)
        return [self.condition(c, f"{where}[{i}]") for i, c in enumerate(conditions)]

    def condition(self, condition: Json, where: str) -> Conditions:
        if not isinstance(condition, dict):
            raise CompileError("a condition is an object with key, operator and value", where=where)
        operator = condition.get("operator")
        if not isinstance(operator, str):
            raise CompileError("a condition needs an operator", where=where)
        key = self.expressions.document(condition.get("key"))
        value = self.expressions.document(condition.get("value"))
        message = str(condition.get("message") or "")
        held, broken = (True, message), (False, message)
        if value.is_constant:
            test = self.watch(where, compile_operator_with(operator, value.constant))
            fill_key = key.fill
            return lambda scope: held if test(fill_key(scope)) else broken
        compare = self.watch(where, compile_operator(operator))
        fill_key, fill_value = key.fill, value.fill
        return lambda scope: held if compare(fill_key(scope), fill_value(scope)) else broken


def _every(conditions: Sequence[Conditions], separator: str) -> Conditions:
    if len(conditions) == 1:
        return conditions[0]

    def holds(scope: Scope) -> Answer:
        messages = []
        for condition in conditions:
            answer = condition(scope)
            if not answer[0]:
                return answer
            if answer[1]:
                messages.append(answer[1])
        return (True, separator.join(messages)) if messages else HOLDS

    return holds


def _any_and_all(any_of: Sequence[Conditions] | None, all_of: Sequence[Conditions]) -> Conditions:
    if any_of is None:
        return _all_only(all_of)

    def holds(scope: Scope) -> Answer:
        true: list[str] = []
        false: list[str] = []
        some = False
        for condition in any_of:
            some, message = condition(scope)
            (true if some else false).append(message)
            if some:
                break
        every = True
        for condition in all_of:
            every, message = condition(scope)
            (true if every else false).append(message)
            if not every:
                break
        return some and every, "; ".join(filter(None, true if some and every else false))

    return holds


def _all_only(all_of: Sequence[Conditions]) -> Conditions:
    return _every(all_of, "; ")


def evaluate_conditions(conditions: Conditions, scope: Scope, what: str) -> Answer:
    """Evaluate; an error names the conditions that failed."""
    try:
        return conditions(scope)
    except EvaluationError as error:
        raise EvaluationError(f"{what}: {error}") from error
