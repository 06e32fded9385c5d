"""Checks of preconditions and deny conditions: can each comparison be made?"""

from collections.abc import Iterator

from lictor.lang.condition import OPERATORS
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.load.fields import suggest
from lictor.model.finding import Finding

_REPLACED = {
    "In": "AnyIn or AllIn",
    "NotIn": "AnyNotIn or AllNotIn",
    "Equal": "Equals",
    "NotEqual": "NotEquals",
}
_OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")


def check_rule_conditions(rule: Field) -> Iterator[Finding]:
    """All conditions of a rule."""
    yield from check_conditions(rule["preconditions"])
    yield from check_conditions(rule["validate"]["deny"]["conditions"])
    for body in ("validate", "mutate", "generate"):
        yield from _check_loops(rule[body]["foreach"])
    for target in rule["mutate"]["targets"].each():
        yield from check_conditions(target["preconditions"])
    for verification in rule["verifyImages"].each():
        yield from check_conditions(verification["validate"]["deny"]["conditions"])
        for attestation in verification["attestations"].each():
            for conditions in attestation["conditions"].each():
                yield from check_conditions(conditions)


def _check_loops(loops: Field) -> Iterator[Finding]:
    for loop in loops.each():
        yield from check_conditions(loop["preconditions"])
        yield from check_conditions(loop["deny"]["conditions"])
        yield from _check_loops(loop["foreach"])


def check_conditions(conditions: Field) -> Iterator[Finding]:
    """A list of conditions, or an object of any and all, or a list of such objects."""
    if conditions.is_object:
        for name in ("any", "all"):
            for condition in conditions[name].each():
                yield from _check_condition(condition)
    elif conditions.is_list:
        for entry in conditions.each():
            nested = entry["any"] or entry["all"]
            yield from check_conditions(entry) if nested else _check_condition(entry)
    elif conditions:
        yield flag("bad-condition", conditions.path, "expected any or all with conditions")


def _check_condition(condition: Field) -> Iterator[Finding]:
    if not condition.is_object:
        yield flag("bad-condition", condition.path, "expected key, operator and value")
        return
    for name in ("key", "operator", "value"):
        if condition[name].value is None or (name == "operator" and not condition[name].text):
            yield flag("bad-condition", condition.path, f'the condition has no "{name}"')
    yield from _check_operator(condition["operator"])
    if condition["key"].text.replace(" ", "") == "{{request.operation}}":
        yield from _check_operations(condition["value"])


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
