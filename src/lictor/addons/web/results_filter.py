"""Which results does a filter select? A test of shapes, and one of rows for the other fields."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from lictor.addons.web.records import ResultFilter, Viewer
from lictor.addons.web.results_reading import ResultShape
from lictor.addons.web.results_rows import RowStore
from lictor.core.errors import CompileError, UsageError
from lictor.core.lang.label_selector import parse_label_selector
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard

ShapeTest: TypeAlias = Callable[[ResultShape], bool]
RowTest: TypeAlias = Callable[[int], bool]
# (cluster, namespace) -> labels; None where we do not know the namespace.
FindLabels: TypeAlias = Callable[[str, str], Mapping[str, str] | None]

# Parts of a filter that compare a field; those that may contain `*` and `?`.
_FIELDS = {
    "clusters": "cluster",
    "sources": "source",
    "namespaces": "namespace",
    "policies": "policy",
    "rules": "rule",
    "statuses": "status",
    "severities": "severity",
    "categories": "category",
    "kinds": "kind",
}
_MOST_VALUES = 500
# Each is tried on every shape there is, while others wait.
_MOST_PATTERNS = 50
_LONGEST_TEXT = 500


class CompiledFilter(msgspec.Struct, frozen=True):
    """Both tests; without a test of rows every row of a shape is chosen."""

    takes_shape: ShapeTest
    takes_row: RowTest | None


def compile_filter(
    chosen: ResultFilter,
    viewer: Viewer,
    rows: RowStore,
    find_labels: FindLabels,
    clock: Callable[[], float],
) -> CompiledFilter:
    """The tests of a filter for a viewer; UsageError where it makes no sense."""
    _check_size(chosen)
    shape_tests = [_see(viewer), *_compile_fields(chosen)]
    if chosen.namespace_labels.strip():
        shape_tests.append(_select_namespaces(chosen.namespace_labels, viewer, find_labels))
    row_tests = list(_compile_row_tests(chosen, rows))
    if chosen.within:
        row_tests.append(_compile_within(chosen.within, rows, clock))

    def takes_shape(shape: ResultShape) -> bool:
        return all(test(shape) for test in shape_tests)

    def takes_row(row: int) -> bool:
        return all(test(row) for test in row_tests)

    first = row_tests[0] if len(row_tests) == 1 else takes_row
    return CompiledFilter(takes_shape, first if row_tests else None)


def _check_size(chosen: ResultFilter) -> None:
    """A filter comes from an address, which any user can write."""
    for name in (*_FIELDS, "properties"):
        values = getattr(chosen, name)
        if len(values) > _MOST_VALUES or any(len(value) > _LONGEST_TEXT for value in values):
            raise UsageError(f"the filter has too many or too long {name}")
    patterns = sum(has_wildcard(value) for name in _FIELDS for value in getattr(chosen, name))
    if patterns > _MOST_PATTERNS:
        raise UsageError(f"the filter has more than {_MOST_PATTERNS} values with * or ?")
    for name in ("name", "text", "namespace_labels"):
        if len(getattr(chosen, name)) > _LONGEST_TEXT:
            raise UsageError(f"the filter has a {name} of more than {_LONGEST_TEXT} characters")


def _see(viewer: Viewer) -> ShapeTest:
    """May the viewer read the report of the entry? The entry's own fields do not matter."""
    known: dict[tuple[str, str], bool] = {}

    def may_see(shape: ResultShape) -> bool:
        key = shape.cluster, shape.report_namespace
        found = known.get(key)
        if found is None:
            found = known[key] = viewer.may_see(*key)
        return found

    return may_see


def _compile_fields(chosen: ResultFilter) -> Iterable[ShapeTest]:
    for part, field in _FIELDS.items():
        values = getattr(chosen, part)
        if values:
            yield _compile_field(ResultShape._fields.index(field), values)


def _compile_field(index: int, values: Iterable[str]) -> ShapeTest:
    exact = frozenset(value for value in values if not has_wildcard(value))
    patterns = [compile_wildcard(value) for value in values if has_wildcard(value)]
    if not patterns:
        return lambda shape: shape[index] in exact
    return lambda shape: shape[index] in exact or any(fits(shape[index]) for fits in patterns)


def _select_namespaces(selector: str, viewer: Viewer, find_labels: FindLabels) -> ShapeTest:
    try:
        fits = parse_label_selector(selector)
    except CompileError as error:
        raise UsageError(f"the selector of namespaces: {error}") from error
    known: dict[tuple[str, str], bool] = {}

    def is_selected(shape: ResultShape) -> bool:
        key = shape.cluster, shape.namespace
        if key not in known:
            # A report can name any namespace, whose labels its author must not learn.
            labels = find_labels(*key) if viewer.may_see(*key) else None
            # Without known labels, a negative selector does not match either.
            known[key] = labels is not None and fits(labels)
        return known[key]

    return is_selected


def _compile_row_tests(chosen: ResultFilter, rows: RowStore) -> Iterable[RowTest]:
    if chosen.name:
        yield _compile_name(chosen.name, rows)
    if chosen.properties:
        yield _compile_properties(chosen.properties, rows)
    if chosen.text.strip():
        yield _compile_text(chosen.text.strip().casefold(), rows)


def _compile_within(seconds: int, rows: RowStore, clock: Callable[[], float]) -> RowTest:
    times = rows.times
    # Called for each row, not once: tests are cached until something changes.
    return lambda row: times[row] >= clock() - seconds


def _compile_name(name: str, rows: RowStore) -> RowTest:
    names = rows.names
    if has_wildcard(name):
        fits = compile_wildcard(name)
        return lambda row: fits(names[row])
    return lambda row: names[row] == name


def _compile_properties(asked: Iterable[str], rows: RowStore) -> RowTest:
    """Every key that is named must be there, with any of the values that are named for it."""
    wanted: dict[str, set[str]] = {}
    for text in asked:
        key, separator, value = text.partition("=")
        wanted.setdefault(key, set()).update((value,) if separator else ())
    properties = rows.properties

    def has_them(row: int) -> bool:
        found = properties[row]
        return all(
            key in found and (not values or found[key] in values) for key, values in wanted.items()
        )

    return has_them


def _compile_text(text: str, rows: RowStore) -> RowTest:
    """Somewhere in what people see of a result. Texts are the same for many rows."""
    known: dict[str, bool] = {}
    messages, names, shape_of = rows.messages, rows.names, rows.shape_of
    known_shapes: dict[int, bool] = {}

    def holds(value: str) -> bool:
        found = known.get(value)
        if found is None:
            found = known[value] = text in value.casefold()
        return found

    def is_in(row: int) -> bool:
        shape = shape_of[row]
        found = known_shapes.get(id(shape))
        if found is None and shape is not None:
            fields = shape.fields
            found = any(map(holds, (fields.policy, fields.rule, fields.kind, fields.namespace)))
            known_shapes[id(shape)] = found
        return bool(found) or holds(messages[row]) or holds(names[row])

    return is_in
