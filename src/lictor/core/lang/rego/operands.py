"""Arguments of builtins: checked for the type that a builtin accepts."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import TypeAlias, TypeVar

from lictor.core.errors import FunctionError, HostCallError
from lictor.core.lang.rego.values import RegoSet, RegoValue, is_object
from lictor.core.lang.wasm_records import GuestLimits, HostCalls, find_end, time_error

Item = TypeVar("Item")

_INT64 = 1 << 63


def _make_taker(kind: type[Item], name: str) -> Callable[[RegoValue], Item]:
    def take(value: RegoValue) -> Item:
        if isinstance(value, kind):
            return value
        raise _wrong(value, name)

    return take


take_text = _make_taker(str, "string")
take_bool = _make_taker(bool, "boolean")
take_array: Callable[[RegoValue], list[RegoValue]] = _make_taker(list, "array")
# With string keys.
take_object: Callable[[RegoValue], dict[str, RegoValue]] = _make_taker(dict, "object")


def take_number(value: RegoValue) -> int | float:
    """A number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise _wrong(value, "number")


def take_whole(value: RegoValue) -> int:
    """A 64-bit integer; not one written with a fraction or exponent."""
    number = take_number(value)
    if isinstance(number, int) and -_INT64 <= number < _INT64:
        return number
    raise _wrong(value, "integer")


def take_elements(value: RegoValue) -> list[RegoValue]:
    """Elements of an array or a set."""
    if isinstance(value, list):
        return value
    if isinstance(value, RegoSet):
        return value.elements
    raise _wrong(value, "array or set")


def take_texts(value: RegoValue) -> list[str]:
    """Texts of an array or a set."""
    return [take_text(each) for each in take_elements(value)]


def name_type(value: RegoValue) -> str:
    """Rego's name of the value's type."""
    if value is None:
        return "null"
    if isinstance(value, RegoSet):
        return "set"
    if is_object(value):
        return "object"
    names = {bool: "boolean", str: "string", list: "array"}
    return names.get(type(value), "number")


def _wrong(value: RegoValue, wanted: str) -> FunctionError:
    return FunctionError(f"expected {wanted}, found {name_type(value)}")


class BuiltinRun:
    """The evaluation that calls builtins."""

    __slots__ = ("_calls_left", "_end", "_host", "_limits", "kept", "now")

    def __init__(self, limits: GuestLimits, host: HostCalls) -> None:
        self._limits = limits
        self._host = host
        self._calls_left = 0
        self._end = math.inf
        self.now = 0
        # What must not change during one evaluation: random numbers and names by their key.
        self.kept: dict[object, RegoValue] = {}

    def begin(self, now: int, seconds: float | None) -> None:
        """Start an evaluation: the time since 1970 in nanoseconds, and the time limit."""
        self.now = now
        self._end = find_end(seconds)
        self._calls_left = self._limits.host_calls
        self.kept.clear()

    def check_time(self) -> None:
        """Called by slow builtins: nothing else interrupts them."""
        if monotonic() > self._end:
            raise time_error(self._limits.seconds)

    def watch(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, while there is time."""
        for item in items:
            self.check_time()
            yield item

    @property
    def output_bytes(self) -> int:
        """The maximum size of a result."""
        return self._limits.output_bytes

    def log(self, message: str) -> None:
        """Write output of the policy to its log."""
        import orjson

        self._calls_left -= 1
        if self._calls_left < 0:
            return
        payload = {"level": "info", "message": message[:4096]}
        try:
            self._host.call("tracing", "log", orjson.dumps(payload))
        except (HostCallError, TypeError):
            # A missing log is no reason to fail a request.
            return


Function: TypeAlias = Callable[[BuiltinRun, list[RegoValue]], RegoValue]
Functions: TypeAlias = Mapping[str, Function]
