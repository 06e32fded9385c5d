"""Would Kubernetes take this label selector?"""

from collections.abc import Iterator

from lictor.lang.label_selector import Requirement, find_selector_fault
from lictor.lang.wildcard import has_wildcard
from lictor.lint.catalog import flag
from lictor.lint.part import Part
from lictor.load.fields import suggest
from lictor.model.finding import Finding

_WITH_VALUES = frozenset(["In", "NotIn"])
_WITHOUT_VALUES = frozenset(["Exists", "DoesNotExist"])
_OPERATORS = sorted(_WITH_VALUES | _WITHOUT_VALUES)


def check_selector(selector: Part, *, may_be_empty: bool = True) -> Iterator[Finding]:
    """A selector's labels and expressions."""
    if not selector:
        return
    labels, expressions = selector["matchLabels"], selector["matchExpressions"]
    if not may_be_empty and labels.is_empty and expressions.is_empty:
        message = "the selector is empty: give matchLabels or matchExpressions, or leave it out"
        yield flag("bad-selector", selector.path, message)
    for key, value in labels.entries():
        if not _is_label(key, value.text):
            message = f'"{key}: {value.text}" is not a label that an object can have'
            yield flag("bad-selector", value.path, message)
    for expression in expressions.each():
        yield from _check_expression(expression)


def _is_label(key: str, value: str) -> bool:
    """Could an object have this label?"""
    if "{{" in key or "{{" in value:
        return True
    return not find_selector_fault({key: value}, ())


def _check_expression(expression: Part) -> Iterator[Finding]:
    operator, values = expression["operator"], expression["values"]
    if operator.text not in _OPERATORS:
        known = suggest(operator.text, _OPERATORS)
        message = f'expected one of {", ".join(_OPERATORS)}, found "{operator.text}"'
        yield flag("bad-selector", operator.path, message, known)
    elif operator.text in _WITH_VALUES and not values.texts:
        yield flag("bad-selector", expression.path, f"{operator.text} needs values")
    elif operator.text in _WITHOUT_VALUES and values.texts:
        yield flag("bad-selector", values.path, f"{operator.text} takes no values")
    elif not _is_acceptable(expression):
        message = "the key or one of the values is not what a label can have"
        yield flag("bad-selector", expression.path, message)


def _is_acceptable(expression: Part) -> bool:
    """Are key and values such as labels can have?"""
    key, values = expression["key"].text, expression["values"].texts
    if any(has_wildcard(text) or "{{" in text for text in (key, *values)):
        return True
    parts = [Requirement(key, "Exists"), *(Requirement(key, "In", (value,)) for value in values)]
    return not find_selector_fault({}, parts)
