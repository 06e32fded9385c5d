"""`preconditions` and `deny.conditions` as tests in CEL."""

from collections.abc import Callable
from typing import TypeAlias

from lictor.addons.convert.cel_tests import (
    FALSE,
    TRUE,
    SettledTest,
    Test,
    all_of,
    any_of,
    compare,
    negate,
    with_risk,
)
from lictor.addons.convert.cel_values import CelValue
from lictor.addons.convert.membership import holds_all, holds_any, holds_one, refuse_wildcards
from lictor.addons.convert.navigation import as_stream
from lictor.addons.convert.query import translate_text
from lictor.addons.convert.scalar import match_text, translate_amount
from lictor.addons.convert.value import (
    Constant,
    Count,
    Either,
    ExpressionScope,
    LoopList,
    Several,
    TestValue,
    Value,
    as_cel_value,
    is_true,
    quantify,
    settle,
    test_each,
)
from lictor.addons.convert.writing import literal, wrap
from lictor.core.errors import CompileError, EvaluationError
from lictor.core.lang.condition import compile_operator
from lictor.core.lang.pattern.go_values import parse_float
from lictor.core.lang.pattern.scalar import read_duration, read_quantity
from lictor.core.raw import Json, JsonObject

Build: TypeAlias = Callable[[ExpressionScope, Value, Value], Test]

_ORDERS = {
    "greaterthan": ">",
    "greaterthanorequals": ">=",
    "lessthan": "<",
    "lessthanorequals": "<=",
}
# The comparisons of a count that only test whether it is zero.
_FULL = {(">", 0), (">=", 1), ("!=", 0)}
_EMPTY = {("==", 0), ("<", 1), ("<=", 0)}


def translate_conditions(conditions: Json, scope: ExpressionScope) -> Test:
    """Whether the conditions hold; none at all always do."""
    if conditions is None:
        return TRUE
    if isinstance(conditions, list):
        return all_of(_translate_entry(entry, scope) for entry in conditions)
    if not isinstance(conditions, dict):
        raise CompileError("conditions that are neither `any` and `all` nor a list")
    every = all_of(_translate_one(each, scope) for each in _entries(conditions, "all"))
    if conditions.get("any") is None:
        return every
    some = any_of(_translate_one(each, scope) for each in _entries(conditions, "any"))
    return all_of((some, every))


def _entries(conditions: JsonObject, name: str) -> list[Json]:
    entries = conditions.get(name)
    if entries is not None and not isinstance(entries, list):
        raise CompileError(f"`{name}` that is no list of conditions")
    return entries or []


def _translate_entry(entry: Json, scope: ExpressionScope) -> Test:
    if isinstance(entry, dict) and ("any" in entry or "all" in entry):
        return translate_conditions(entry, scope)
    return _translate_one(entry, scope)


def _translate_one(condition: Json, scope: ExpressionScope) -> Test:
    if not isinstance(condition, dict) or not isinstance(condition.get("operator"), str):
        raise CompileError("a condition without an operator")
    key = _read(condition.get("key"), scope)
    value = _read(condition.get("value"), scope)
    return translate_operator(condition["operator"], key, value, scope)


def _read(value: Json, scope: ExpressionScope) -> Value:
    if isinstance(value, str):
        return translate_text(value, scope)
    if isinstance(value, list):
        items = tuple(_read(item, scope) for item in value)
        constants = [item.value for item in items if isinstance(item, Constant)]
        return Constant(constants) if len(constants) == len(items) else Several(items)
    return Constant(value)


def translate_operator(name: str, key: Value, value: Value, scope: ExpressionScope) -> Test:
    """Whether an operator holds for a key and a value."""

    def check(one: Value) -> Test:
        return test_each(value, lambda other: _translate_pair(name, one, other, scope))

    # Some element passes only if there are elements: no separate test is needed.
    is_repeated = name.lower().startswith("any") and isinstance(key, Either) and _is_full(key)
    if is_repeated and isinstance(key, Either) and check(settle(key.other)) == FALSE:
        return check(key.then)
    return test_each(key, check)


def _is_full(key: Either) -> bool:
    return isinstance(key.then, LoopList) and key.condition == is_true(key.then)


def _translate_pair(name: str, key: Value, value: Value, scope: ExpressionScope) -> Test:
    if isinstance(key, Constant) and isinstance(value, Constant):
        try:
            return SettledTest(compile_operator(name)(key.value, value.value))
        except EvaluationError as error:
            raise CompileError(f"a condition that cannot be decided: {error}") from error
    build = _BUILDERS.get(name.lower())
    if build is None:
        raise CompileError(f"the operator {name} has no equivalent")
    return build(scope, key, value)


# --- Equals and NotEquals


def _equals(_scope: ExpressionScope, key: Value, value: Value) -> Test:
    return _compare_equal(key, value, negated=False)


def _not_equals(_scope: ExpressionScope, key: Value, value: Value) -> Test:
    return _compare_equal(key, value, negated=True)


def _compare_equal(key: Value, value: Value, *, negated: bool) -> Test:
    # What is null is neither equal nor unequal to anything.
    if isinstance(key, Constant):
        if key.value is None:
            return FALSE
        if not isinstance(value, CelValue) or not isinstance(key.value, str | bool | int):
            raise CompileError("a constant is compared with a list")
        equal = compare(wrap(value.text), "==", literal(key.value), risky=value.risky)
        return all_of((value.present, negate(equal) if negated else equal))
    same: Test
    if isinstance(key, TestValue):
        same = _flag_equals(key, value)
    elif isinstance(key, Count):
        return _compare_count(key, "!=" if negated else "==", value)
    else:
        key = as_cel_value(key)
        same = _place_equals(key, value)
    wanted = negate(same) if negated else same
    return all_of((key.present, wanted)) if isinstance(key, CelValue) else wanted


def _flag_equals(flag: TestValue, value: Value) -> Test:
    if isinstance(value, Constant):
        if not isinstance(value.value, bool):
            return FALSE
        return flag.test if value.value else negate(flag.test)
    other = as_cel_value(value)
    return compare(wrap(as_cel_value(flag).text), "==", wrap(other.text), risky=other.risky)


def _place_equals(key: CelValue, value: Value) -> Test:
    if not isinstance(value, Constant):
        other = as_cel_value(value)
        refuse_wildcards(other)
        same = compare(wrap(key.text), "==", wrap(other.text), risky=key.risky or other.risky)
        return all_of((other.present, same))
    return with_risk(_equals_constant(key, value.value), risky=key.risky)


def _equals_constant(key: CelValue, value: Json) -> Test:
    if isinstance(value, str):
        return _equals_text(key, value)
    if isinstance(value, bool):
        return compare(wrap(key.text), "==", literal(value))
    if isinstance(value, int | float):
        return FALSE if key.type in ("string", "boolean") else _same_literal(key, value)
    if isinstance(value, list) and key.type in ("list", ""):
        return _same_literal(key, value)
    if isinstance(value, dict) and key.type in ("map", ""):
        return _same_literal(key, value)
    return FALSE


def _same_literal(key: CelValue, value: Json) -> Test:
    return compare(wrap(key.text), "==", literal(value))


def _equals_text(key: CelValue, value: str) -> Test:
    if key.type in ("list", "map", "boolean"):
        return FALSE
    if key.type == "number":
        number = parse_float(value)
        return FALSE if number is None else _same_literal(key, _whole(number))
    is_amount = read_duration(value) is not None or read_quantity(value) is not None
    return translate_amount("", value, key) if is_amount else match_text(value, key.text)


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number


# --- GreaterThan and similar operators


def _order(sign: str) -> Build:
    def build(_scope: ExpressionScope, key: Value, value: Value) -> Test:
        if isinstance(key, Constant):
            key = as_cel_value(key)
        if isinstance(key, Count):
            return _compare_count(key, sign, value)
        operand = as_cel_value(key)
        return all_of((operand.present, _order_operand(operand, sign, value)))

    return build


def _order_operand(operand: CelValue, sign: str, value: Value) -> Test:
    if not isinstance(value, Constant):
        other = as_cel_value(value)
        if {operand.type, other.type} <= {"number", ""}:
            test = compare(wrap(operand.text), sign, wrap(other.text), risky=True)
            return all_of((other.present, test))
        raise CompileError("texts are put in order")
    given = value.value
    number = parse_float(given) if isinstance(given, str) else given
    if operand.type == "number":
        if isinstance(number, bool) or not isinstance(number, int | float):
            return FALSE
        return compare(wrap(operand.text), sign, literal(_whole(number)), risky=operand.risky)
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return FALSE
    if isinstance(given, int | float) and not operand.type:
        return compare(wrap(operand.text), sign, literal(given), risky=True)
    if not isinstance(given, str):
        raise CompileError("a text is compared with a number")
    if read_duration(given) is None and read_quantity(given) is None:
        raise CompileError(f"a text is put in order with {given!r}")
    return with_risk(translate_amount(sign, given, operand), risky=operand.risky)


def _compare_count(key: Count, sign: str, value: Value) -> Test:
    number = value.value if isinstance(value, Constant) else None
    if isinstance(number, str):
        number = parse_float(number)
    if isinstance(value, Constant):
        if isinstance(number, bool) or not isinstance(number, int | float):
            return SettledTest(sign == "!=")
        if (sign, number) in _FULL | _EMPTY:
            full = quantify(key.stream, lambda _: TRUE, every=False)
            return full if (sign, number) in _FULL else negate(full)
        value = Constant(_whole(number))
    left, right = as_cel_value(key), as_cel_value(value)
    test = compare(left.text, sign, right.text, risky=left.risky or right.risky)
    return all_of((left.present, right.present, test))


# --- AnyIn and similar operators


def _member(*, every: bool, negated: bool) -> Build:
    def build(scope: ExpressionScope, key: Value, value: Value) -> Test:
        if isinstance(key, CelValue) and key.type == "list":
            key = as_stream(key, scope.names)
        if isinstance(key, Constant) and isinstance(key.value, list):
            key = Several(tuple(Constant(item) for item in key.value))
        if isinstance(key, Several | LoopList):
            quantifier = holds_all if every else holds_any
            return quantifier(key, value, scope, negated=negated)
        return holds_one(key, value, scope, negated=negated)

    return build


_BUILDERS: dict[str, Build] = {
    "equal": _equals,
    "equals": _equals,
    "notequal": _not_equals,
    "notequals": _not_equals,
    "in": _member(every=True, negated=False),
    "notin": _member(every=False, negated=True),
    "anyin": _member(every=False, negated=False),
    "allin": _member(every=True, negated=False),
    "anynotin": _member(every=False, negated=True),
    "allnotin": _member(every=True, negated=True),
    **{name: _order(sign) for name, sign in _ORDERS.items()},
}
