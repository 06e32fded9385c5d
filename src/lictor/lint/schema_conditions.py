"""Can the conditions of a rule ever hold, given what their keys are?"""

from collections.abc import Iterator, Sequence

from lictor.kubernetes.field_types import FieldType
from lictor.lang.condition import OPERATORS, compile_operator_with
from lictor.lang.pattern.go_values import parse_float
from lictor.lint.catalog import flag
from lictor.lint.conditions import list_conditions, list_rule_conditions
from lictor.lint.expressions import list_expressions
from lictor.lint.field import Field
from lictor.lint.schema_kinds import FieldTypes, is_known
from lictor.lint.schema_paths import infer_types
from lictor.lint.schema_values import describe_types, is_no_amount
from lictor.lint.schema_variables import VariableScope, find_roots
from lictor.model.finding import Finding
from lictor.raw import Json

_EQUALITIES = ("Equal", "Equals", "NotEqual", "NotEquals")
_ORDERS = ("GreaterThan", "GreaterThanOrEquals", "LessThan", "LessThanOrEquals")
# Far from all that is written in policies.
_EXTREMES = (-(10**18), 0, 10**18)


def check_condition_types(rule: Field, scopes: Sequence[VariableScope]) -> Iterator[Finding]:
    """Comparisons whose answer is the same whatever the object is."""
    for conditions in list_rule_conditions(rule):
        for condition in list_conditions(conditions):
            yield from _check_condition(condition, scopes)


def _check_condition(condition: Field, scopes: Sequence[VariableScope]) -> Iterator[Finding]:
    value, operator = condition["value"], condition["operator"].text
    if operator not in OPERATORS or _is_filled_in(value):
        return
    if operator in _ORDERS and is_no_amount(value.text):
        return  # Told where conditions are checked, whatever the key is.
    types = _infer_key(condition["key"], scopes)
    if (
        not types
        or not is_known(types)
        or any(_may_hold(each, operator, value.value) for each in types)
    ):
        return
    message = f"the key is {describe_types(types)}: {operator} {_write(value.value)} never fits"
    yield flag("wrong-type", value.path, message + _advise(value.value, types))


def _is_filled_in(value: Field) -> bool:
    """Is the value, or a part of it, known only when the rule is asked?"""
    return value.value is None or any("{{" in leaf.text for leaf in value.leaves())


def _infer_key(key: Field, scopes: Sequence[VariableScope]) -> FieldTypes:
    """What a key is that one expression fills in whole; others are texts of all kinds."""
    text = key.text.strip()
    expressions = list(list_expressions(key, is_query=False))
    is_whole = text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1
    if not is_whole or len(expressions) != 1:
        return ()
    return infer_types(expressions[0][0], find_roots(key.path, scopes), are_variables=True)


def _may_hold(each: FieldType, operator: str, value: Json) -> bool:
    """Does the answer depend on the key? True in doubt, and of lists and objects."""
    if each.scalar is None or each.is_quantity:
        return True
    if each.scalar == {bool}:
        return _differs(operator, value, (True, False))
    if operator not in (*_EQUALITIES, *_ORDERS):
        return True
    if str in each.scalar:
        # Texts may hold amounts of all kinds, but are never true or false themselves.
        return not isinstance(value, bool)
    return _differs(operator, value, (*_EXTREMES, *_read_numbers(value)))


def _differs(operator: str, value: Json, keys: tuple[Json, ...]) -> bool:
    holds = compile_operator_with(operator, value)
    # A list of all that there is may be meant so.
    return len({holds(key) for key in keys}) > 1 or isinstance(value, list)


def _read_numbers(value: Json) -> list[Json]:
    number = parse_float(value) if isinstance(value, str) else value
    return [number] if isinstance(number, (int, float)) and not isinstance(number, bool) else []


def _write(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _advise(value: Json, types: FieldTypes) -> str:
    """What is right where only the quotes are wrong."""
    scalars = [each.scalar or frozenset() for each in types]
    if isinstance(value, bool) and all(str in each for each in scalars):
        return f'; write "{_write(value)}", with quotes'
    if value in ("true", "false") and all(bool in each for each in scalars):
        return f"; write {value}, without quotes"
    return ""
