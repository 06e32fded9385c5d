"""How many results are there of each sort? Totals by fields, the most failures first."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from lictor.addons.web.records import STATUSES, GroupCount
from lictor.addons.web.results_reading import ResultShape
from lictor.addons.web.results_rows import RowStore, StoredShape
from lictor.core.errors import UsageError
from lictor.core.families.registry import registry

# Fields that rows of the same shape may differ in.
ROW_FIELDS = frozenset(("name", "uid", "report", "message"))
_FAMILY = "family"
_Key: TypeAlias = tuple[str, ...]
_Counted: TypeAlias = Iterable[tuple[_Key, str, int]]


def check_fields(by: Sequence[str]) -> None:
    """UsageError where results cannot be counted by a field."""
    for field in by:
        if field not in ResultShape._fields and field not in ROW_FIELDS and field != _FAMILY:
            raise UsageError(f"results cannot be counted by {field!r}")


def count_shapes(shapes: Iterable[StoredShape], by: Sequence[str]) -> list[GroupCount]:
    """Totals if shapes contain all counted fields."""
    readers = [_compile_reader(field) for field in by]
    return _sort_groups(
        (tuple(read(shape.fields) for read in readers), shape.fields.status, shape.count)
        for shape in shapes
    )


def count_rows(rows: RowStore, chosen: Collection[int], by: Sequence[str]) -> list[GroupCount]:
    """Totals of these rows, first by shape, then by the fields of each row."""
    asked = [field for field in by if field in ROW_FIELDS]
    columns = {"name": rows.names, "uid": rows.uids, "message": rows.messages}
    known = _Prefixes(by)
    picked: list[Iterable[object]] = [
        map(known.__getitem__, map(rows.shape_of.__getitem__, chosen))
    ]
    for field in asked:
        column: Sequence[object] = columns.get(field, rows.report_of)
        picked.append(map(column.__getitem__, chosen))
    return _sort_groups(_spread(Counter(zip(*picked, strict=True)), asked, by))


class _Prefixes(dict[StoredShape | None, tuple[str, ...]]):
    """By shape: its values of the fields, empty for those of rows, and the status at the end."""

    def __init__(self, by: Sequence[str]) -> None:
        super().__init__()
        self._readers = [None if field in ROW_FIELDS else _compile_reader(field) for field in by]

    def __missing__(self, shape: StoredShape | None) -> tuple[str, ...]:
        if shape is None:
            return ()
        values = tuple(read(shape.fields) if read else "" for read in self._readers)
        made = self[shape] = (*values, shape.fields.status)
        return made


def _spread(counted: Mapping[Any, int], asked: Sequence[str], by: Sequence[str]) -> _Counted:
    """The values of rows, put between those of shapes where they belong."""
    places = [by.index(field) for field in asked]
    for (prefix, *values), count in counted.items():
        *key, status = prefix
        for place, value in zip(places, values, strict=True):
            key[place] = value if isinstance(value, str) else value.name
        yield tuple(key), status, count


def _compile_reader(field: str) -> Callable[[ResultShape], str]:
    if field != _FAMILY:
        index = ResultShape._fields.index(field)
        return lambda shape: shape[index]
    families = map_families()
    return lambda shape: families.get(shape.source, shape.source)


@cache
def map_families() -> dict[str, str]:
    """Which family reports under which source; what other tools report is their own."""
    return {kind.report_source: kind.family.name for kind in reversed(registry().kinds)}


def _sort_groups(counted: _Counted) -> list[GroupCount]:
    groups: dict[_Key, dict[str, int]] = {}
    for key, status, count in counted:
        found = groups.get(key)
        if found is None:
            found = groups[key] = dict.fromkeys(STATUSES, 0)
        found[status] += count
    return sorted(_build(groups), key=_rank)


def _build(groups: dict[_Key, dict[str, int]]) -> Iterator[GroupCount]:
    return (GroupCount(key, counts) for key, counts in groups.items())


def _rank(group: GroupCount) -> tuple[int, int, _Key]:
    failed = group.counts["fail"] + group.counts["error"]
    return -failed, -sum(group.counts.values()), group.key
