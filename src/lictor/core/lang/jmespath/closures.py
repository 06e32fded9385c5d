"""Closures of a compiled query: paths (the hottest code of all), projections, function calls.

Calls whose arguments are all constants are computed while compiling, as far as that is cheap. Calls
can feed each other: a dozen `regex_replace_all` inside each other make a text without end. So there
is a budget for one policy; what is beyond it is computed when a request asks for it, within the
limits for requests.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from lictor.core.errors import (
    BrokenVariableError,
    CompileError,
    EvaluationError,
    FunctionError,
    LictorError,
    TooLargeError,
    UnknownKeyError,
)
from lictor.core.lang.jmespath.functions import FUNCTIONS
from lictor.core.lang.jmespath.functions.spec import (
    FunctionSpec,
    Handler,
    JmesPathHost,
    Type,
    accepts,
    is_false,
    name_type,
)
from lictor.core.lang.jmespath.syntax import Node, NodeKind
from lictor.core.lang.written_size import measure_written
from lictor.core.raw import Json

# For the arguments or the result of one call, and for all calls of one policy: bytes when written.
Run: TypeAlias = Callable[[Json], Json]

MAX_FOLDED: Final = 16 * 1024
MAX_FOLDED_IN_ALL: Final = 256 * 1024


class FoldingBudget:
    """How much may still be computed while one policy is compiled."""

    def __init__(self, left: int = MAX_FOLDED_IN_ALL) -> None:
        self._left = left

    def spend(self, size: int) -> bool:
        """Take so much; False where that is too much at once, or nothing was left."""
        had = self._left
        self._left -= size
        return had > 0 and size <= MAX_FOLDED


class Folding:
    """Computes the constant calls of one query."""

    def __init__(self, budget: FoldingBudget) -> None:
        self._budget = budget
        # The sizes of answers that are known, by the identity of the call's node.
        self._known: dict[int, int] = {}

    def fold(self, node: Node, run: Run) -> Run:
        """The call, or its answer where the arguments are constants and small enough."""
        if not FUNCTIONS[node.value].pure or not self._affords(node):
            return run
        try:
            result = run(None)
            size = measure_written(result)
        except LictorError:
            # Whoever evaluates it gets the error; perhaps nobody does.
            self._budget.spend(MAX_FOLDED)
            return run
        if not self._budget.spend(size):
            return run
        self._known[id(node)] = size
        return lambda _: result

    def _affords(self, node: Node) -> bool:
        given = 0
        for child in node.children:
            size = self._size(child)
            if size is None:
                return False
            given += size
        return self._budget.spend(given)

    def _size(self, node: Node) -> int | None:
        if node.kind is NodeKind.LITERAL:
            return measure_written(node.value)
        return self._known.get(id(node))


def fetch_strict(keys: tuple[str, ...]) -> Run:
    """Fetch, or raise UnknownKeyError where an object lacks a key. What is no object has null."""

    def fetch(value: Json) -> Json:
        found = value
        try:
            for key in keys:
                found = found[key]
        except (KeyError, TypeError):
            return _walk(value, keys)
        return found

    return fetch


def fetch_root(keys: tuple[str, ...]) -> Run:
    """Fetch from an object whose entries may load when first asked for; null where a key lacks."""
    first, rest = keys[0], keys[1:]

    def fetch(value: Json) -> Json:
        if not isinstance(value, dict):
            return None
        try:
            # Only this way of asking lets an object load the entry.
            found = value[first]
        except KeyError:
            return None
        for key in rest:
            if not isinstance(found, dict):
                return None
            found = found.get(key)
        return found

    return fetch


def fetch_lenient(keys: tuple[str, ...]) -> Run:
    """Fetch from plain JSON, or give null where a key lacks."""
    if len(keys) == 1:
        (only,) = keys
        return lambda value: value.get(only) if isinstance(value, dict) else None

    def fetch(value: Json) -> Json:
        for key in keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value

    return fetch


def fetch_each(keys: tuple[str, ...]) -> Run:
    """Fetch several keys of one object, null for each that lacks: `[a, b, c]`."""

    def fetch(value: Json) -> Json:
        if isinstance(value, dict):
            return list(map(value.get, keys))
        return None if value is None else [None] * len(keys)

    return fetch


def _walk(value: Json, keys: tuple[str, ...]) -> Json:
    for key in keys:
        if not isinstance(value, dict):
            return None
        try:
            value = value[key]
        except KeyError:
            raise UnknownKeyError(f'Unknown key "{key}" in path') from None
    return value


# More than any object or answer of an API server has. Variables that flatten each other would fill
# the memory.
MAX_ITEMS = 1_000_000


def project(source: Run, each: Run | None) -> Run:
    """Apply `each` to every element; what gives null is left out."""

    def projection(value: Json) -> Json:
        items = source(value)
        return _apply(each, items) if isinstance(items, list) else None

    return projection


def _apply(each: Run | None, items: list[Json]) -> list[Json]:
    if each is None:
        return [item for item in items if item is not None]
    results = []
    for item in items:
        result = each(item)
        if result is not None:
            results.append(result)
    return results


def filter_items(source: Run, condition: Run, each: Run | None) -> Run:
    """Apply `each` to the elements for which the condition does not count as false."""

    def projection(value: Json) -> Json:
        items = source(value)
        if not isinstance(items, list):
            return None
        kept = [item for item in items if not is_false(condition(item))]
        if each is not None:
            kept = [each(item) for item in kept]
        return [item for item in kept if item is not None]

    return projection


def flatten(source: Run) -> Run:
    """Put the elements of arrays within an array in their place, one level deep."""

    def flat(value: Json) -> Json:
        try:
            items = source(value)
        except BrokenVariableError:
            raise
        except EvaluationError:
            # As for all of these projections: any fault of what they look at is null.
            return None
        return _flatten(items) if isinstance(items, list) else None

    return flat


def project_flat(source: Run, each: Run | None) -> Run:
    """The same, and `each` applied to every element: the usual thing after `[]`, in one call."""

    def projection(value: Json) -> Json:
        try:
            items = source(value)
        except BrokenVariableError:
            raise
        except EvaluationError:
            return None
        if not isinstance(items, list):
            return None
        flat = _flatten(items)
        # It is nobody else's list: where nothing is left out it need not be copied.
        return flat if each is None and None not in flat else _apply(each, flat)

    return projection


def _flatten(items: list[Json]) -> list[Json]:
    result: list[Json] = []
    for item in items:
        if isinstance(item, list):
            result.extend(item)
            if len(result) > MAX_ITEMS:
                break
        else:
            result.append(item)
    if len(result) > MAX_ITEMS:
        raise TooLargeError("the result of [] would be too large")
    return result


def project_values(source: Run, each: Run | None) -> Run:
    """Apply `each` to every value of an object.

    Kyverno applies it to as many nulls first. It shows only where a function makes something of
    null (`*.to_string(@)`), and policies were written against that.
    """

    def projection(value: Json) -> Json:
        items = source(value)
        if not isinstance(items, dict):
            return None
        if each is None:
            return [item for item in items.values() if item is not None]
        nothing = each(None) if items else None
        results = [] if nothing is None else [nothing] * len(items)
        results.extend(result for item in items.values() if (result := each(item)) is not None)
        return results

    return projection


def cut(start: int | None, stop: int | None, step: int | None) -> Run:
    """Take a slice of an array, counted as Python does."""
    part = slice(start, stop, step)

    def cutting(value: Json) -> Json:
        if not isinstance(value, list):
            return None
        if step == 0:
            raise EvaluationError("Invalid slice, step cannot be 0")
        return value[part]

    return cutting


def compile_call(spec: FunctionSpec, arguments: tuple[Run, ...], host: JmesPathHost) -> Run:
    """Bind a function to what computes its arguments."""
    handler = spec.handler if spec.pure else partial(spec.handler, host)
    # Kyverno checks no types of functions that take any number of arguments; they do it themselves.
    checks = (
        ()
        if spec.variadic
        else tuple(
            (index, accepts(types))
            for index, types in enumerate(spec.arguments)
            if Type.ANY not in types
        )
    )
    if len(arguments) == 1 and checks:
        return _compile_single(spec, handler, arguments[0])

    def call(value: Json) -> Json:
        given = [argument(value) for argument in arguments]
        for index, accepted in checks:
            if not accepted(given[index]):
                raise _mismatch(spec, index, given[index])
        try:
            return handler(*given)
        except _FAULTS as error:
            raise _explain(spec, error) from error

    return call


def _compile_single(spec: FunctionSpec, handler: Handler, argument: Run) -> Run:
    accepted = accepts(spec.arguments[0])

    def call(value: Json) -> Json:
        given = argument(value)
        if not accepted(given):
            raise _mismatch(spec, 0, given)
        try:
            return handler(given)
        except _FAULTS as error:
            raise _explain(spec, error) from error

    return call


# Handlers speak of bad values in Python's own words, and of bad expressions in the compiler's.
_FAULTS = (ValueError, OverflowError, MemoryError, CompileError, TooLargeError)


def _mismatch(spec: FunctionSpec, index: int, given: Json) -> FunctionError:
    expected = " or ".join(spec.arguments[index])
    return FunctionError(
        f"JMESPath function '{spec.name}': argument #{index + 1} must be of type {expected}, "
        f"not {name_type(given)}"
    )


def _explain(spec: FunctionSpec, error: Exception) -> LictorError:
    kind = TooLargeError if isinstance(error, (TooLargeError, MemoryError)) else FunctionError
    return kind(f"JMESPath function '{spec.name}': {error}")
