"""The description of a function: its name, types and purpose."""

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from lictor.core.errors import FunctionError, TooLargeError
from lictor.core.lang.go_number import NUMBERS, is_number
from lictor.core.raw import Json


class NativeInteger(int):
    """An integer that is no JSON number: the result of `compare`. It equals no number, as in Go."""


def is_false(value: Json) -> bool:
    """Whether a value is false, null or empty; zero is not."""
    if value is None or value is False:
        return True
    return isinstance(value, (str, list, dict)) and not value


def name_type(value: Json) -> str:
    """JMESPath's name for the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if is_number(value):
        return "number"
    for kind, name in ((str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "unknown"


def equals(left: Json, right: Json) -> bool:
    """Compare deeply; a number never equals a boolean, unlike in Python."""
    kind = type(left)
    if kind in NUMBERS:
        return type(right) in NUMBERS and bool(left == right)
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equals, left, right))
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(equals(value, right[key]) for key, value in left.items())
        )
    return kind is type(right) and bool(left == right)


Handler: TypeAlias = Callable[..., Json]
# The limit for results of functions that make text longer.
MAX_TEXT = 16 * 1024 * 1024


class Type(StrEnum):
    """The types of arguments and results."""

    ANY = "any"
    ARRAY = "array"
    BOOL = "bool"
    EXPRESSION = "expref"
    NUMBER = "number"
    NUMBERS = "array[number]"
    OBJECT = "object"
    STRING = "string"
    STRINGS = "array[string]"


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _choose(count: int) -> int:
    from secrets import randbelow

    return randbelow(count)


def _no_names(host: str) -> list[str]:
    raise FunctionError(f"lookup {host}: no such host")


class JmesPathHost(msgspec.Struct, frozen=True):
    """External data of some functions: the time, random numbers, the addresses of a host."""

    now: Callable[[], datetime] = _utc_now
    choose: Callable[[int], int] = _choose
    resolve: Callable[[str], list[str]] = _no_names


class FunctionSpec(msgspec.Struct, frozen=True):
    """One function. `pure` ones return the same for the same arguments; others use the host.

    The handler of a function that is not pure takes the JmesPathHost before the arguments.
    """

    name: str
    arguments: tuple[tuple[Type, ...], ...]
    returns: tuple[Type, ...]
    note: str
    handler: Handler
    variadic: bool = False
    pure: bool = True

    def accepts_count(self, count: int) -> bool:
        """Whether this number of arguments is valid; a function without any ignores them."""
        if not self.arguments:
            return True
        return count >= len(self.arguments) if self.variadic else count == len(self.arguments)

    @property
    def signature(self) -> str:
        """`name(type, type|type) type`, as `jp function` prints it."""
        arguments = ", ".join("|".join(types) for types in self.arguments)
        return f"{self.name}({arguments}) {','.join(self.returns)}"


def define(signature: str, handler: Handler, note: str, *, pure: bool = True) -> FunctionSpec:
    """Parse a spec such as `name(string, string|number) bool`; `...` makes it variadic."""
    head, _, returns = signature.partition(")")
    name, _, inside = head.partition("(")
    variadic = inside.endswith("...")
    arguments = tuple(
        tuple(Type(kind) for kind in argument.strip().split("|"))
        for argument in inside.removesuffix("...").split(",")
        if argument.strip()
    )
    given = tuple(Type(kind) for kind in returns.strip().split("|"))
    return FunctionSpec(name, arguments, given, note, handler, variadic, pure)


def _is_array_of(test: Callable[[Json], bool]) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


_TESTS: dict[Type, Callable[[Json], bool]] = {
    Type.ANY: lambda _: True,
    Type.ARRAY: lambda value: isinstance(value, list),
    Type.BOOL: lambda value: isinstance(value, bool),
    Type.EXPRESSION: callable,
    Type.NUMBER: is_number,
    Type.NUMBERS: _is_array_of(is_number),
    Type.OBJECT: lambda value: isinstance(value, dict),
    Type.STRING: _is_text,
    Type.STRINGS: _is_array_of(_is_text),
}


def accepts(types: tuple[Type, ...]) -> Callable[[Json], bool]:
    """A test whether a value has one of the types."""
    if len(types) == 1:
        return _TESTS[types[0]]
    tests = tuple(_TESTS[kind] for kind in types)
    return lambda value: any(test(value) for test in tests)


def check_size(size: int) -> None:
    """Refuse to build text that no policy needs and that would fill the memory."""
    if size > MAX_TEXT:
        raise TooLargeError("the result would be too large")
