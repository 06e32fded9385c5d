"""Small checks that many kinds have in common. Each tells what is wrong to `say`."""

import ipaddress
from collections.abc import Callable, Iterable
from typing import TypeAlias

from lictor.apiserver.checks.name_rules import NameRule
from lictor.apiserver.checks.object_checks import check_labels
from lictor.apiserver.field_errors import (
    INVALID,
    Cause,
    forbidden,
    invalid,
    required,
    show,
    unsupported,
)
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.raw import Json, JsonObject

Say: TypeAlias = Callable[[Cause], None]
PORTS = range(1, 65_536)
PROTOCOLS = ("TCP", "UDP", "SCTP")
_IMMUTABLE = "field is immutable"
_AT_LEAST_ZERO = "must be greater than or equal to 0"
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def say_all(causes: Iterable[Cause], say: Say) -> None:
    """Tell several."""
    for cause in causes:
        say(cause)


def need(holder: JsonObject, fields: Iterable[str], path: str, say: Say) -> None:
    """Fields that must be there, and not be empty."""
    for field in fields:
        if holder.get(field) in (None, "", [], {}):
            say(required(f"{path}.{field}" if path else field))


def check_choice(value: Json, choices: Iterable[str], path: str, say: Say) -> None:
    """One of several words; nothing said is fine."""
    supported = tuple(choices)
    if value not in (None, "") and value not in supported:
        say(unsupported(path, value, supported))


def check_counts(holder: JsonObject, fields: Iterable[str], path: str, say: Say) -> None:
    """Numbers that may not be negative."""
    for field in fields:
        value = holder.get(field)
        if isinstance(value, int) and value < 0:
            say(invalid(f"{path}.{field}", value, _AT_LEAST_ZERO))


def check_port(value: Json, path: str, say: Say) -> None:
    """The number of a port."""
    if isinstance(value, int) and value not in PORTS:
        say(invalid(path, value, "must be between 1 and 65535, inclusive"))


def check_named(value: Json, rule: NameRule, path: str, say: Say) -> None:
    """A name that follows a rule; nothing said is fine."""
    if isinstance(value, str) and value:
        say_all((invalid(path, value, why) for why in rule(value)), say)


def check_address(value: Json, path: str, say: Say) -> None:
    """An IP address."""
    try:
        ipaddress.ip_address(str(value))
    except ValueError:
        told = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        say(invalid(path, value, told))


def check_unique(names: Iterable[str], path: str, field: str, say: Say) -> None:
    """Names of which each may be there once."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name and name in seen:
            say(
                Cause(
                    "FieldValueDuplicate",
                    f"Duplicate value: {show(name)}",
                    f"{path}[{index}].{field}",
                )
            )
        seen.add(name)


def check_same(
    new: JsonObject, old: JsonObject | None, fields: Iterable[str], path: str, say: Say
) -> None:
    """Fields that stay as they are once they are there."""
    if old is None:
        return
    for field in fields:
        if new.get(field) != old.get(field):
            place = f"{path}.{field}" if path else field
            say(Cause(INVALID, f"Invalid value: {show(new.get(field))}: {_IMMUTABLE}", place))


def check_selector(selector: Json, path: str, say: Say) -> None:
    """A label selector; nothing said is fine."""
    if not isinstance(selector, dict):
        return
    say_all(check_labels(read_object(selector, "matchLabels"), f"{path}.matchLabels"), say)
    for index, each in enumerate(read_list(selector, "matchExpressions")):
        _check_expression(each, f"{path}.matchExpressions[{index}]", say)


def _check_expression(expression: JsonObject, path: str, say: Say) -> None:
    operator = read_text(expression, "operator")
    values = read_list(expression, "values")
    if operator not in _OPERATORS:
        say(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif operator in ("In", "NotIn") and not values:
        told = "must be specified when `operator` is 'In' or 'NotIn'"
        say(required(f"{path}.values", told))
    elif operator in ("Exists", "DoesNotExist") and values:
        told = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        say(forbidden(f"{path}.values", told))
    say_all(check_labels({read_text(expression, "key"): ""}, f"{path}.key"), say)
