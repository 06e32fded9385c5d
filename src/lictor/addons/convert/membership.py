"""Is one of these among those? AnyIn, AllIn and their negations as tests in CEL."""

import re

import orjson

from lictor.addons.convert.cel_tests import (
    FALSE,
    Atom,
    SettledTest,
    Test,
    all_of,
    any_of,
    compare,
    negate,
    with_risk,
)
from lictor.addons.convert.cel_values import CelValue
from lictor.addons.convert.navigation import as_stream
from lictor.addons.convert.scalar import match_text, translate_scalar
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
    is_equal,
    is_present,
    quantify,
    settle,
    test_each,
)
from lictor.addons.convert.writing import literal, wrap
from lictor.core.errors import CompileError
from lictor.core.lang.condition import compile_operator
from lictor.core.lang.pattern.go_values import parse_float, print_value
from lictor.core.lang.pattern.scalar import is_range
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.raw import Json

# re: trusted - our own CEL, in which every text is closed
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def holds_one(key: Value, value: Value, scope: ExpressionScope, *, negated: bool) -> Test:
    """A single key: is it a member, or is it none?"""
    if isinstance(key, Constant) and not isinstance(key.value, str | int | float):
        return FALSE
    if isinstance(value, Constant) and not isinstance(value.value, str | list):
        return FALSE
    found = _is_member(key, value, scope)
    return all_of((is_present(key), negate(found) if negated else found))


def holds_any(
    key: Several | LoopList, value: Value, scope: ExpressionScope, *, negated: bool
) -> Test:
    """Some key is a member, or none."""
    if isinstance(value, Constant) and isinstance(value.value, int | float):
        value = Constant([value.value])
    return _over(key, value, scope, every=False, negated=negated)


def holds_all(
    key: Several | LoopList, value: Value, scope: ExpressionScope, *, negated: bool
) -> Test:
    """Every key is a member, or none of them is."""
    return all_of((is_present(key), _over(key, value, scope, every=True, negated=negated)))


def _over(
    key: Several | LoopList, value: Value, scope: ExpressionScope, *, every: bool, negated: bool
) -> Test:
    if isinstance(value, Constant) and not isinstance(value.value, str | list):
        return FALSE

    def check(one: Value) -> Test:
        found = test_each(one, lambda each: _is_member(each, value, scope))
        return negate(found) if negated else found

    if isinstance(key, LoopList):
        return quantify(key, check, every=every)
    join = all_of if every else any_of
    return join(check(settle(item)) for item in key.items)


def _is_member(key: Value, value: Value, scope: ExpressionScope) -> Test:
    if isinstance(key, Constant) and isinstance(value, Constant):
        return SettledTest(compile_operator("AnyIn")([key.value], value.value))
    if isinstance(value, Constant):
        return _is_among(key, value.value, scope)
    if isinstance(value, LoopList | Several):
        return _is_among_found(key, value, scope)
    return _is_in_place(key, value, scope)


# --- among constants


def _is_among(key: Value, members: Json, scope: ExpressionScope) -> Test:
    if isinstance(key, TestValue):
        texts = {print_value(member) for member in _list(members)}
        return any_of(
            test
            for name, test in (("true", key.test), ("false", negate(key.test)))
            if name in texts
        )
    operand = as_cel_value(key)
    return with_risk(_operand_among(operand, members, scope), risky=operand.risky)


def _list(members: Json) -> list[Json]:
    return members if isinstance(members, list) else [members]


def _operand_among(operand: CelValue, members: Json, scope: ExpressionScope) -> Test:
    if isinstance(members, str):
        if is_range(members):
            return translate_scalar(members, operand)
        members = _read_list(members)
    if operand.type == "number":
        numbers = [_read_number(member) for member in members]
        known = [number for number in numbers if number is not None]
        return _among(operand.text, known)
    if operand.type == "boolean":
        texts = {print_value(member) for member in members}
        words = [word for word in ("true", "false") if word in texts]
        return any_of(compare(wrap(operand.text), "==", word) for word in words)
    return _text_among(operand, members, scope)


def _text_among(operand: CelValue, members: list[Json], scope: ExpressionScope) -> Test:
    texts = [print_value(member) for member in members]
    plain = [text for text in texts if not has_wildcard(text)]
    tests: list[Test] = []
    if scope.wildcards and texts and "*" not in plain:
        plain = [*plain, "*"]
    tests.append(_among(operand.text, plain))
    if not operand.type and any(not isinstance(member, str) for member in members):
        odd = [member for member in members if not isinstance(member, str)]
        tests += [compare(wrap(operand.text), "==", literal(member)) for member in odd]
    tests += [match_text(text, operand.text) for text in texts if has_wildcard(text)]
    return any_of(tests)


def _among(text: str, members: list[Json]) -> Test:
    if len(members) == 1:
        return compare(wrap(text), "==", literal(members[0]))
    return Atom(f"{wrap(text)} in {literal(members)}") if members else FALSE


def _read_list(text: str) -> list[Json]:
    try:
        members = orjson.loads(text)
    except ValueError:
        return [text]
    return members if isinstance(members, list) else [text]


def _read_number(member: Json) -> float | None:
    number = parse_float(print_value(member))
    if number is None or isinstance(member, bool):
        return None
    return int(number) if number == int(number) else number


# --- among what the resource has


def _is_among_found(key: Value, value: LoopList | Several, scope: ExpressionScope) -> Test:
    def is_key(one: Value) -> Test:
        return test_each(one, lambda each: _is_same(each, key, scope))

    if isinstance(value, LoopList):
        return quantify(value, is_key, every=False)
    return any_of(is_key(settle(item)) for item in value.items)


def _is_same(member: Value, key: Value, scope: ExpressionScope) -> Test:
    """Compare as texts, which is what Kyverno makes of both."""
    if isinstance(key, Constant) and isinstance(member, TestValue):
        return is_equal(member, Constant(print_value(key.value) == "true"))
    if isinstance(member, Either | Count):
        raise CompileError("a list of values of several kinds")
    if isinstance(key, Constant) and isinstance(member, CelValue):
        refuse_wildcards(member)
        same = _text_equals(member, key.value)
        if scope.wildcards:
            same = any_of((same, compare(wrap(member.text), "==", '"*"')))
        return same
    left, right = as_cel_value(member), as_cel_value(key)
    refuse_wildcards(left, right)
    test = compare(wrap(left.text), "==", wrap(right.text), risky=left.risky or right.risky)
    return all_of((right.present, test))


def refuse_wildcards(*operands: CelValue) -> None:
    """Refuse texts that may become patterns at run time: only constants can be patterns here.

    And so may texts be that others wrote: a ConfigMap's text can even be a list.
    """
    for operand in operands:
        if operand.foreign and operand.type not in ("number", "boolean"):
            raise CompileError("a text of another object is compared, and may be a pattern")
        if any(has_wildcard(text) for text in _STRING.findall(operand.text)):
            raise CompileError("a pattern that is put together when a request comes")


def _text_equals(operand: CelValue, value: Json) -> Test:
    text = print_value(value)
    if operand.type == "number":
        number = _read_number(value)
        return FALSE if number is None else compare(wrap(operand.text), "==", literal(number))
    if operand.type == "boolean":
        if text not in ("true", "false"):
            return FALSE
        return compare(wrap(operand.text), "==", text)
    return match_text(text, operand.text)


def _is_in_place(key: Value, value: Value, scope: ExpressionScope) -> Test:
    operand = as_cel_value(value)
    if operand.type == "list":
        stream = as_stream(operand, scope.names)
        if isinstance(stream, LoopList):
            return _is_among_found(key, stream, scope)
    if operand.type not in ("string", ""):
        return FALSE
    if isinstance(key, Constant):
        refuse_wildcards(operand)
        same = match_text(print_value(key.value), operand.text)
        return all_of((operand.present, with_risk(same, risky=operand.risky)))
    one = as_cel_value(key)
    refuse_wildcards(one, operand)
    same = compare(wrap(one.text), "==", wrap(operand.text), risky=one.risky or operand.risky)
    return all_of((operand.present, same))
