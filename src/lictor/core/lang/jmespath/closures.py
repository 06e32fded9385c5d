"""Closures of a compiled query: paths (the most executed code), projections, function calls.

Calls with constant arguments are computed at compile time if that is cheap. Calls can be nested: a
dozen `regex_replace_all` produce endless text. So there is a budget for each policy; beyond it,
calls are computed when a request needs them, within the limits for requests.
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

# For the arguments or the result of one call, and for all calls of one policy: serialized bytes.
Run: TypeAlias = Callable[[Json], Json]

MAX_FOLDED: Final = 16 * 1024
MAX_FOLDED_IN_ALL: Final = 256 * 1024


class FoldingBudget:
    """The rest of a policy's budget for constant folding."""

    def __init__(self, left: int = MAX_FOLDED_IN_ALL) -> None:
        self._left = left

    def spend(self, size: int) -> bool:
        """Spend an amount; False if it is too large at once, or the budget is used up."""
        had = self._left
        self._left -= size
        return had > 0 and size <= MAX_FOLDED


class Folding:
    """Computes the constant calls of one query."""

    def __init__(self, budget: FoldingBudget) -> None:
        self._budget = budget
        # Known sizes of results, by the identity of the call's node.
        self._known: dict[int, int] = {}

    def fold(self, node: Node, run: Run) -> Run:
        """The call, or its result if the arguments are constants and small enough."""
        if not FUNCTIONS[node.value].pure or not self._affords(node):
            return run
        try:
            result = run(None)
            size = measure_written(result)
        except LictorError:
            # The error is raised on evaluation, which may never happen.
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
    """Read a path; raises UnknownKeyError for a missing key. Only objects have keys."""

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
    """Read from an object whose entries may load on first use; null for a missing key."""
    first, rest = keys[0], keys[1:]

    def fetch(value: Json) -> Json:
        if not isinstance(value, dict):
            return None
        try:
            # Only this access lets an object load the entry.
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
    """Read from plain JSON; null for a missing key."""
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
    """Read several keys of one object, null for each missing one: `[a, b, c]`."""

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


# More than any object or response of an API server has. Variables that flatten each other would
# fill the memory.
MAX_ITEMS = 1_000_000


def project(source: Run, each: Run | None) -> Run:
    """Apply `each` to every element; null results are omitted."""

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
    """Apply `each` to the elements for which the condition is not false."""

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
    """Replace arrays within an array with their elements, one level deep."""

    def flat(value: Json) -> Json:
        try:
            items = source(value)
        except BrokenVariableError:
            raise
        except EvaluationError:
            # As for all of these projections: an error of the operand is null.
            return None
        return _flatten(items) if isinstance(items, list) else None

    return flat


def project_flat(source: Run, each: Run | None) -> Run:
    """The same with `each` applied to every element: the usual case after `[]`, in one call."""

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
        # The list is not shared: if nothing is omitted, it need not be copied.
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

    Kyverno first applies it to as many nulls. This is visible only if a function returns a value
    for null (`*.to_string(@)`), and policies rely on it.
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
    """A slice of an array, with Python's indexes."""
    part = slice(start, stop, step)

    def cutting(value: Json) -> Json:
        if not isinstance(value, list):
            return None
        if step == 0:
            raise EvaluationError("Invalid slice, step cannot be 0")
        return value[part]

    return cutting


def compile_call(spec: FunctionSpec, arguments: tuple[Run, ...], host: JmesPathHost) -> Run:
    """Bind a function to the closures of its arguments."""
    handler = spec.handler if spec.pure else partial(spec.handler, host)
    # Kyverno does not check the types of variadic functions; they check them themselves.
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


# Handlers raise ValueError for bad values, and the compiler's error for bad expressions.
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
