"""Closures that go over the elements of arrays and the values of objects."""

from lictor.errors import EvaluationError, TooLargeError
from lictor.lang.jmespath.paths import Run
from lictor.lang.jmespath.values import is_false
from lictor.raw import Json

# More than any object or answer of an API server has. Variables that flatten each other would fill
# the memory.
MAX_ITEMS = 1_000_000


def project(source: Run, each: Run | None) -> Run:
    """Apply `each` to every element; what gives null is left out."""

    def projection(value: Json) -> Json:
        items = source(value)
        if not isinstance(items, list):
            return None
        if each is None:
            return [item for item in items if item is not None]
        return [result for item in items if (result := each(item)) is not None]

    return projection


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
        items = source(value)
        if not isinstance(items, list):
            return None
        result: list[Json] = []
        for item in items:
            if isinstance(item, list):
                result.extend(item)
            else:
                result.append(item)
            if len(result) > MAX_ITEMS:
                raise TooLargeError("the result of [] would be too large")
        return result

    return flat


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
