"""Checks of preconditions and deny conditions."""

from collections.abc import Iterator

from lictor.core.lang.condition import OPERATORS
from lictor.core.lang.pattern.scalar import read_duration, read_quantity
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.lint.catalog import flag
from lictor.lint.field import Field, list_loops
from lictor.lint.schema_values import is_no_amount, refuse_amount

_REPLACED = {
    "In": "AnyIn or AllIn",
    "NotIn": "AnyNotIn or AllNotIn",
    "Equal": "Equals",
    "NotEqual": "NotEquals",
}
_DURATION = "Duration"
_ORDERS = ("GreaterThan", "LessThan", _DURATION)
_OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")


def check_rule_conditions(rule: Field) -> Iterator[Finding]:
    """All conditions of a rule."""
    for conditions in list_rule_conditions(rule):
        yield from check_conditions(conditions)
    for verification in rule["verifyImages"].each():
        for attestation in verification["attestations"].each():
            for conditions in attestation["conditions"].each():
                yield from check_conditions(conditions)


def list_rule_conditions(rule: Field) -> Iterator[Field]:
    """The conditions of a rule on its variables; those of attestations differ."""
    yield rule["preconditions"]
    yield rule["validate"]["deny"]["conditions"]
    for body in ("validate", "mutate", "generate"):
        for loop in list_loops(rule[body]):
            yield loop["preconditions"]
            yield loop["deny"]["conditions"]
    for target in rule["mutate"]["targets"].each():
        yield target["preconditions"]
    for verification in rule["verifyImages"].each():
        yield verification["validate"]["deny"]["conditions"]


def check_conditions(conditions: Field) -> Iterator[Finding]:
    """A list of conditions, or an object of any and all, or a list of such objects."""
    if conditions and not conditions.is_object and not conditions.is_list:
        yield flag("bad-condition", conditions.path, "expected any or all with conditions")
    for condition in list_conditions(conditions):
        yield from _check_condition(condition)


def list_conditions(conditions: Field) -> Iterator[Field]:
    """Every single condition."""
    for name in ("any", "all"):
        yield from conditions[name].each()
    for entry in conditions.each():
        nested = entry["any"] or entry["all"]
        yield from list_conditions(entry) if nested else (entry,)


def _check_condition(condition: Field) -> Iterator[Finding]:
    if not condition.is_object:
        yield flag("bad-condition", condition.path, "expected key, operator and value")
        return
    for name in ("key", "operator", "value"):
        if condition[name].value is None or (name == "operator" and not condition[name].text):
            yield flag("bad-condition", condition.path, f'the condition has no "{name}"')
    yield from _check_operator(condition["operator"])
    yield from _check_amount(condition)
    if condition["key"].text.replace(" ", "") == "{{request.operation}}":
        yield from _check_operations(condition["value"])


def _check_amount(condition: Field) -> Iterator[Finding]:
    """An operator for quantities with another value: it never holds."""
    operator, value = condition["operator"].text, condition["value"]
    if operator.startswith(_ORDERS) and is_no_amount(value.text):
        yield refuse_amount(value)
    # The older operators support durations only.
    elif operator.startswith(_DURATION) and _is_quantity_only(value.text):
        message = f'{operator} compares durations (1h, 30s), and "{value.text}" is none'
        yield flag("bad-quantity", value.path, message)


def _is_quantity_only(text: str) -> bool:
    return read_quantity(text) is not None and read_duration(text) is None


def _check_operator(operator: Field) -> Iterator[Finding]:
    name = operator.text
    if not name:
        return
    if name not in OPERATORS:
        message = f'there is no operator "{name}"'
        finding = flag("bad-condition", operator.path, message, suggest(name, OPERATORS))
        yield finding.with_code("unknown-operator", name)
    elif name in _REPLACED:
        instead = _REPLACED[name]
        finding = flag("deprecated", operator.path, f"{name} is replaced by {instead}")
        yield finding.with_code("deprecated-operator", name, *instead.split(" or "))


def _check_operations(value: Field) -> Iterator[Finding]:
    for part in [value] if value.text else list(value.each()):
        if part.text in _OPERATIONS or "{{" in part.text:
            continue
        message = f'expected one of {", ".join(_OPERATIONS)}, found "{part.text}"'
        yield flag("bad-condition", part.path, message, suggest(part.text, _OPERATIONS))
