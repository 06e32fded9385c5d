"""The functions of expressions: those of queries, and those of assertions only."""

import math
from collections.abc import Callable, Mapping, Sequence

from lictor.core.errors import CompileError, FunctionError
from lictor.core.lang.assertion.operators import Function
from lictor.core.lang.go_number import decode_json, settle_number
from lictor.core.lang.jmespath.functions import FUNCTIONS, FunctionSpec, JmesPathHost
from lictor.core.lang.jmespath.functions.spec import accepts, check_size, define
from lictor.core.lang.wildcard import match_wildcard
from lictor.core.raw import Json, JsonObject


def _at(items: list[Json], index: Json) -> Json:
    if not 0 <= index < len(items):
        raise ValueError(f"there is no item {index}")
    return items[int(index)]


def _average(numbers: list[float]) -> Json:
    return settle_number(sum(numbers) / len(numbers)) if numbers else None


def _find(find: Callable[..., int]) -> Callable[..., Json]:
    def search(text: str, part: str, start: float = 0, end: float | None = None) -> Json:
        if not text or not part:
            return None
        stop = len(text) if end is None else _whole(end)
        found = find(text, part, max(0, _whole(start)), max(0, stop))
        return None if found < 0 else found

    return search


def _whole(number: float) -> int:
    if not math.isfinite(number) or number != int(number):
        raise ValueError(f"{number} is not an integer")
    return int(number)


def _from_items(pairs: list[Json]) -> JsonObject:
    made = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError("each item must be an array of a text and a value")
        made[pair[0]] = pair[1]
    return made


def _group_by(items: list[Json], key: Callable[[Json], Json]) -> Json:
    groups: dict[str, list[Json]] = {}
    for item in items:
        name = key(item)
        if not isinstance(name, str):
            raise ValueError("the expression must evaluate to a string")
        groups.setdefault(name, []).append(item)
    return groups or None


def _pad(pad: Callable[[str, int, str], str]) -> Callable[..., str]:
    def fill(text: str, width: float, filler: str = " ") -> str:
        if len(filler) > 1:
            raise ValueError("the padding must be a single character")
        size = _whole(width)
        if size < 0:
            raise ValueError("the width must not be negative")
        check_size(size)
        return pad(text, size, filler) if filler else text

    return fill


def _strip(strip: Callable[..., str]) -> Callable[..., str]:
    return lambda text, letters="": strip(text, letters or None)


# With optional arguments, there is one line for each number of them.
_EXTRA: Sequence[FunctionSpec] = (
    define("at(array, number) any", _at, "returns the item at an index"),
    define("avg(array[number]) number", _average, "returns the average of numbers, or null"),
    define("concat(string, string) string", str.__add__, "concatenates two texts"),
    define("json_parse(string) any", decode_json, "parses JSON"),
    define(
        "wildcard(string, string) bool", match_wildcard, "returns whether a text matches a pattern"
    ),
    define("find_first(string, string) number", _find(str.find), "finds a part of a text"),
    define("find_first(string, string, number) number", _find(str.find), "the same, from an index"),
    define(
        "find_first(string, string, number, number) number",
        _find(str.find),
        "the same, between two indexes",
    ),
    define("find_last(string, string) number", _find(str.rfind), "finds the last occurrence"),
    define("find_last(string, string, number) number", _find(str.rfind), "the same, from an index"),
    define(
        "find_last(string, string, number, number) number",
        _find(str.rfind),
        "the same, between two indexes",
    ),
    define("from_items(array) object", _from_items, "creates an object from pairs"),
    define("group_by(array, expref) object", _group_by, "groups items by key"),
    define("lower(string) string", str.lower, "converts to lower case"),
    define("upper(string) string", str.upper, "converts to upper case"),
    define("pad_left(string, number) string", _pad(str.rjust), "pads a text on the left"),
    define(
        "pad_left(string, number, string) string",
        _pad(str.rjust),
        "the same, with a given character",
    ),
    define("pad_right(string, number) string", _pad(str.ljust), "pads a text on the right"),
    define(
        "pad_right(string, number, string) string",
        _pad(str.ljust),
        "the same, with a given character",
    ),
    define("trim_left(string) string", _strip(str.lstrip), "removes leading whitespace"),
    define(
        "trim_left(string, string) string", _strip(str.lstrip), "removes these leading characters"
    ),
    define("trim_right(string) string", _strip(str.rstrip), "removes trailing whitespace"),
    define(
        "trim_right(string, string) string", _strip(str.rstrip), "removes these trailing characters"
    ),
    define(
        "zip(array...) array",
        lambda *rows: [list(row) for row in zip(*rows, strict=False)],
        "pairs",
    ),
)


def _list_specs() -> Mapping[str, tuple[FunctionSpec, ...]]:
    table: dict[str, tuple[FunctionSpec, ...]] = {}
    for spec in _EXTRA:
        table[spec.name] = (*table.get(spec.name, ()), spec)
    return {**{name: (spec,) for name, spec in FUNCTIONS.items()}, **table}


SPECS = _list_specs()


def find_function(name: str, count: int, host: JmesPathHost) -> Function:
    """The function of this name with this number of arguments."""
    specs = SPECS.get(name)
    if specs is None:
        raise CompileError(f"unknown function: {name}")
    spec = next((each for each in specs if each.accepts_count(count)), None)
    if spec is None:
        signatures = ", ".join(each.signature for each in specs)
        raise CompileError(f"{name} does not take {count} arguments: {signatures}")
    return _check_arguments(spec, count, host)


def _check_arguments(spec: FunctionSpec, count: int, host: JmesPathHost) -> Function:
    tests = [accepts(types) for types in spec.arguments]
    tests.extend(tests[-1:] * (count - len(tests)))
    handler = spec.handler
    ahead = () if spec.pure else (host,)

    def call(arguments: list[Json]) -> Json:
        for at, test in enumerate(tests):
            if not test(arguments[at]):
                raise FunctionError(f"{spec.signature}: argument {at + 1} has the wrong type")
        try:
            return handler(*ahead, *arguments)
        except (ValueError, ArithmeticError) as error:
            raise FunctionError(f"{spec.name}: {error}") from error

    return call
