"""The functions of Go's text/template, and its output format of values."""

from collections.abc import Callable, Sequence
from typing import Any

from lictor.core.errors import FunctionError
from lictor.core.lang.rego.go_format import sprintf
from lictor.core.lang.rego.operands import take_text

NO_VALUE = "<no value>"


def print_value(value: Any) -> str:
    """A value as an action prints it."""
    if value is None:
        return NO_VALUE
    return _print_inside(value)


def _print_inside(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{' '.join([_print_inside(each) for each in value])}]"
    if isinstance(value, dict):
        pairs = [f"{key}:{_print_inside(value[key])}" for key in sorted(value)]
        return f"map[{' '.join(pairs)}]"
    return sprintf("%v", [value])


def _compare(arguments: Sequence[Any]) -> tuple[Any, Any]:
    if len(arguments) != 2:
        raise FunctionError("template: wrong number of args")
    left, right = arguments
    numbers = (int, float)
    if isinstance(left, bool) or isinstance(right, bool):
        fits = isinstance(left, bool) and isinstance(right, bool)
    else:
        fits = (isinstance(left, str) and isinstance(right, str)) or (
            isinstance(left, numbers) and type(left) is type(right)
        )
    if not fits:
        raise FunctionError("template: incompatible types for comparison")
    return left, right


def _equal(arguments: Sequence[Any]) -> bool:
    if len(arguments) < 2:
        raise FunctionError("template: missing argument for comparison")
    first = arguments[0]
    if first is None or None in arguments[1:]:
        return any(each is None for each in arguments[1:]) and first is None
    pairs = [_compare([first, each]) for each in arguments[1:]]
    return any(left == right for left, right in pairs)


def _less(arguments: Sequence[Any]) -> bool:
    left, right = _compare(arguments)
    return bool(left < right)


def _not(arguments: Sequence[Any]) -> bool:
    if len(arguments) != 1:
        raise FunctionError("template: wrong number of args for not")
    return not arguments[0]


def _and(arguments: Sequence[Any]) -> Any:
    return next((each for each in arguments if not each), arguments[-1])


def _or(arguments: Sequence[Any]) -> Any:
    return next((each for each in arguments if each), arguments[-1])


def _length(arguments: Sequence[Any]) -> int:
    value = arguments[0]
    if len(arguments) != 1 or not isinstance(value, (str, list, dict)):
        raise FunctionError("template: error calling len")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _index(arguments: Sequence[Any]) -> Any:
    value = arguments[0]
    for key in arguments[1:]:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and type(key) is int and 0 <= key < len(value):
            value = value[key]
        else:
            raise FunctionError("template: error calling index")
    return value


def _printf(arguments: Sequence[Any]) -> str:
    shown = [
        each if isinstance(each, (str, int, float)) else print_value(each) for each in arguments
    ]
    return sprintf(take_text(shown[0]), shown[1:])


def _print_all(arguments: Sequence[Any]) -> str:
    """Like fmt.Sprint: a space only between two values that are both no texts."""
    made = ""
    for at, each in enumerate(arguments):
        apart = at > 0 and not isinstance(each, str) and not isinstance(arguments[at - 1], str)
        made += (" " if apart else "") + _print_inside(each)
    return made


TEMPLATE_FUNCTIONS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "and": _and,
    "or": _or,
    "not": _not,
    "eq": _equal,
    "ne": lambda arguments: not _equal([*_compare(arguments)]),
    "lt": _less,
    "gt": lambda arguments: _less([*reversed(arguments)]),
    "le": lambda arguments: not _less([*reversed(arguments)]),
    "ge": lambda arguments: not _less(arguments),
    "len": _length,
    "index": _index,
    "printf": _printf,
    "print": _print_all,
    "println": lambda arguments: " ".join([_print_inside(each) for each in arguments]) + "\n",
}


def call_function(name: str, arguments: list[Any]) -> Any:
    """The result of a template function."""
    if not arguments and name not in ("print", "println"):
        raise FunctionError(f"template: wrong number of args for {name}")
    return TEMPLATE_FUNCTIONS[name](arguments)
