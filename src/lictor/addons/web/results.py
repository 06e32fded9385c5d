"""All results of all reports, in memory: put in, taken out, chosen, counted and followed."""

import logging
import time
from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec

from lictor.addons.web.records import (
    STATUSES,
    GroupCount,
    ReportedResult,
    ResultChange,
    ResultFilter,
    ResultPage,
    Viewer,
)
from lictor.addons.web.results_counting import ROW_FIELDS, check_fields, count_rows, count_shapes
from lictor.addons.web.results_filter import CompiledFilter, compile_filter
from lictor.addons.web.results_reading import (
    ReadResult,
    SharedTexts,
    count_results,
    name_report,
    read_report,
)
from lictor.addons.web.results_rows import Bucket, RowStore, StoredReport, StoredShape
from lictor.core.raw import JsonObject

log = logging.getLogger(__name__)

# A million results need about 500 MB; the page reports that further ones are missing.
_MOST_ROWS = 1_000_000
# Of one namespace: reports there do not displace those of other namespaces.
_NAMESPACE_SHARE = 5
_MOST_OF_REPORT = 50_000
_MOST_CHOICES = 8
_MOST_LIMIT = 1000
# Recent changes: how many, and how many results they have together.
_MOST_CHANGES = 500
_MOST_CHANGED_ROWS = 5000

ChangeListener: TypeAlias = Callable[[ResultChange], None]
# The key of a bucket, and where a row stands in it.
RowPosition: TypeAlias = tuple[tuple[int, int, str, str], tuple[Any, ...]]
_ChoiceKey: TypeAlias = tuple[ResultFilter, tuple[tuple[str, object], ...]]


class _Choice(msgspec.Struct, frozen=True):
    """The shapes that a filter takes at one revision."""

    revision: int
    taken: frozenset[StoredShape]
    takes_row: Callable[[int], bool] | None


class ResultIndex:
    """All results of all reports; a viewer sees what they may. Belongs to one event loop."""

    def __init__(
        self, *, most_rows: int = _MOST_ROWS, clock: Callable[[], float] = time.time
    ) -> None:
        self._rows = RowStore()
        self._reports: dict[tuple[str, str], StoredReport] = {}
        self._texts = SharedTexts()
        self._labels: dict[tuple[str, str], Mapping[str, str]] = {}
        self._revision = 0
        self._most_rows = most_rows
        # Reports that have more results than we can hold, and how many are missing of each.
        self._left_out: dict[tuple[str, str], int] = {}
        # How many rows the reports of each namespace have.
        self._homes: Counter[tuple[str, str]] = Counter()
        self._clock = clock
        self._listeners: list[ChangeListener] = []
        self._read_clusters: set[str] = set()
        self._changes: deque[ResultChange] = deque(maxlen=_MOST_CHANGES)
        self._choices: OrderedDict[_ChoiceKey, _Choice] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def revision(self) -> int:
        """Grows with every change."""
        return self._revision

    @property
    def left_out(self) -> int:
        """The number of results beyond the limit."""
        return sum(self._left_out.values())

    # --- what comes in

    def put_report(
        self, cluster: str, report: JsonObject, *, limit: int | None = _MOST_OF_REPORT
    ) -> None:
        """A report of wgpolicyk8s.io or openreports.io is there, new or changed.

        `limit`: how many results are read of it; None for all, where no request waits meanwhile.
        """
        key = cluster, name_report(report)
        stored = self._reports.get(key)
        before = [self._rows.read(row) for row in stored.rows] if stored is not None else []
        # Reading takes time that others wait: a small report can name very many resources.
        after = list(islice(read_report(cluster, report, self._texts), limit))
        left_out = max(count_results(report) - len(after), 0)
        if stored is not None and before == after:
            return
        if stored is None:
            stored = self._reports[key] = StoredReport(*key)
        self._replace(stored, before, after, left_out)

    def drop_report(self, cluster: str, report: JsonObject) -> None:
        """The report is gone; one that was not there is none of our business."""
        stored = self._reports.pop((cluster, name_report(report)), None)
        if stored is not None:
            before = [self._rows.read(row) for row in stored.rows]
            self._replace(stored, before, [])

    def put_namespace(self, cluster: str, name: str, labels: Mapping[str, str]) -> None:
        """A namespace has these labels now."""
        if self._labels.get((cluster, name)) != labels:
            self._labels[cluster, name] = dict(labels)
            self._revision += 1

    def drop_namespace(self, cluster: str, name: str) -> None:
        if self._labels.pop((cluster, name), None) is not None:
            self._revision += 1

    def end_first_read(self, cluster: str) -> None:
        """Everything of a cluster has been read: what comes now has just happened."""
        self._read_clusters.add(cluster)

    def _replace(
        self,
        stored: StoredReport,
        before: list[ReadResult],
        after: list[ReadResult],
        left_out: int = 0,
    ) -> None:
        is_read = stored.cluster in self._read_clusters
        is_compared = bool(self._listeners) or is_read
        gone, new = _compare(before, after) if is_compared else ((), ())
        removed = tuple(self._rows.build(stored.rows[number]) for number in gone if is_compared)
        self._remove(stored)
        self._add(stored, after, left_out)
        self._revision += 1
        rows = stored.rows
        added = tuple(self._rows.build(rows[number]) for number in new if number < len(rows))
        if added or removed:
            now = int(self._clock())
            change = ResultChange(stored.cluster, added, removed, now, not is_read)
            self._notify(change)

    def _remove(self, stored: StoredReport) -> None:
        home = stored.cluster, stored.namespace
        self._homes[home] -= len(stored.rows)
        if not self._homes[home]:
            del self._homes[home]
        self._rows.remove_all(stored)

    def _add(self, stored: StoredReport, after: list[ReadResult], left_out: int) -> None:
        room = max(self._most_rows - len(self._rows), 0)
        home = stored.cluster, stored.namespace
        if stored.namespace:
            share = self._most_rows // _NAMESPACE_SHARE - self._homes[home]
            room = min(room, max(share, 0))
        for result in after[:room]:
            self._rows.add(result, stored)
        self._homes[home] += len(stored.rows)
        key = stored.cluster, stored.name
        self._left_out.pop(key, None)
        left_out += max(len(after) - room, 0)
        if left_out:
            if not self._left_out:
                log.warning("too many results", extra={"most": self._most_rows, "report": key})
            self._left_out[key] = left_out

    def _notify(self, change: ResultChange) -> None:
        if not change.is_first_read:
            self._remember(change)
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                # A listener's bug must not leave everyone with old results.
                log.exception("listener failed")

    def _remember(self, change: ResultChange) -> None:
        self._changes.append(change)
        size = sum(len(each.added) + len(each.removed) for each in self._changes)
        while size > _MOST_CHANGED_ROWS and len(self._changes) > 1:
            oldest = self._changes.popleft()
            size -= len(oldest.added) + len(oldest.removed)

    def listen(self, listener: ChangeListener) -> None:
        """Call with every change from now on; it must not block."""
        self._listeners.append(listener)

    # --- what goes out

    def select(
        self, chosen: ResultFilter, viewer: Viewer, *, offset: int = 0, limit: int = 50
    ) -> ResultPage:
        """In a fixed order: the worst first, then by namespace, resource, policy, rule."""
        offset, limit = max(offset, 0), min(max(limit, 0), _MOST_LIMIT)
        choice = self._choose(chosen, viewer)
        counts = self._count_buckets(choice)
        total = sum(counts.values())
        rows = self._walk(choice, counts, offset)
        picked = tuple(self._rows.build(row) for row, _ in zip(rows, range(limit), strict=False))
        return ResultPage(picked, total, offset)

    def export(self, chosen: ResultFilter, viewer: Viewer) -> Iterator[ReportedResult]:
        """All of them in the same order. The caller may yield to other tasks in between.

        Results that exist all the time are listed once, with any changes meanwhile.
        """
        last: RowPosition | None = None
        while True:
            revision = self._revision
            for place, row in self._walk_after(self._choose(chosen, viewer), last):
                yield self._rows.build(row)
                last = place
                if self._revision != revision:
                    # The number of a row may stand for another result now.
                    break
            else:
                return

    def _walk_after(
        self, choice: _Choice, last: RowPosition | None
    ) -> Iterator[tuple[RowPosition, int]]:
        """The chosen rows in order, from behind a place on, and the place of each."""
        buckets = {shape.bucket for shape in choice.taken}
        for bucket in sorted(buckets, key=lambda each: each.key):
            if last is not None and bucket.key < last[0]:
                continue
            rows: Sequence[int] = self._rows.sort(bucket)
            if last is not None and bucket.key == last[0]:
                rows = rows[bisect_right(rows, last[1], key=self._rows.find_position) :]
            for row in self._filter(choice, rows):
                yield (bucket.key, self._rows.find_position(row)), row

    def select_many(
        self, chosen: ResultFilter, viewer: Viewer, most: int
    ) -> tuple[list[ReportedResult], int]:
        """The first results of a filter, a few more than `most`, and the number of all."""
        rows: list[ReportedResult] = []
        while True:
            page = self.select(chosen, viewer, offset=len(rows), limit=_MOST_LIMIT)
            rows += page.rows
            if len(page.rows) < _MOST_LIMIT or len(rows) >= most:
                return rows, page.total

    def list_changes(self, viewer: Viewer, *, limit: int = 50) -> Sequence[ResultChange]:
        """The last changes after everything was read for the first time, the newest first."""
        shown: list[ResultChange] = []
        for change in reversed(self._changes):
            added = tuple(each for each in change.added if viewer.may_see_result(each))
            removed = tuple(each for each in change.removed if viewer.may_see_result(each))
            if added or removed:
                shown.append(msgspec.structs.replace(change, added=added, removed=removed))
            if len(shown) >= limit:
                break
        return shown

    def count(self, chosen: ResultFilter, viewer: Viewer, by: Sequence[str]) -> list[GroupCount]:
        """Totals by fields of ReportedResult, or `family`; the most failures first."""
        check_fields(by)
        choice = self._choose(chosen, viewer)
        if choice.takes_row is None and not ROW_FIELDS.intersection(by):
            return count_shapes(choice.taken, by)
        buckets = {shape.bucket: None for shape in choice.taken}
        rows = chain.from_iterable(self._filter(choice, bucket.rows) for bucket in buckets)
        return count_rows(self._rows, list(rows), by)

    def count_by_namespace(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """For each (cluster, namespace of reports) how many results have each of STATUSES."""
        totals: dict[tuple[str, str], list[int]] = {}
        for fields, shape in self._rows.shapes.items():
            key = fields.cluster, fields.report_namespace
            counts = totals.setdefault(key, [0] * len(STATUSES))
            counts[STATUSES.index(fields.status)] += shape.count
        return {key: tuple(counts) for key, counts in totals.items()}

    def list_places(self) -> set[tuple[str, str]]:
        """The (cluster, namespace) pairs where reports are.

        Of reports without a namespace, the namespaces that they name; a user who writes in one
        namespace could name thousands, and rights are reviewed in each.
        """
        return {
            (fields.cluster, fields.report_namespace or fields.namespace)
            for fields in self._rows.shapes
        }

    def count_property(self, name: str, viewer: Viewer) -> Counter[tuple[str, str, str]]:
        """How many results have a property: by cluster, policy and the property's value."""
        choice = self._choose(ResultFilter(properties=(name,)), viewer)
        buckets = {shape.bucket: None for shape in choice.taken}
        counted: Counter[tuple[str, str, str]] = Counter()
        for row in chain.from_iterable(self._filter(choice, bucket.rows) for bucket in buckets):
            shape = self._rows.read(row).shape
            counted[shape.cluster, shape.policy, self._rows.properties[row][name]] += 1
        return counted

    # --- choosing

    def _choose(self, chosen: ResultFilter, viewer: Viewer) -> _Choice:
        key = chosen, tuple(sorted(viewer.namespaces.items(), key=itemgetter(0)))
        known = self._choices.get(key)
        if known is not None and known.revision == self._revision:
            return known
        compiled = compile_filter(chosen, viewer, self._rows, self._find_labels, self._clock)
        made = self._choices[key] = self._apply(compiled)
        self._choices.move_to_end(key)
        if len(self._choices) > _MOST_CHOICES:
            self._choices.popitem(last=False)
        return made

    def _apply(self, compiled: CompiledFilter) -> _Choice:
        takes = compiled.takes_shape
        taken = frozenset(shape for fields, shape in self._rows.shapes.items() if takes(fields))
        return _Choice(self._revision, taken, compiled.takes_row)

    def _find_labels(self, cluster: str, namespace: str) -> Mapping[str, str] | None:
        return self._labels.get((cluster, namespace))

    def _count_buckets(self, choice: _Choice) -> dict[Bucket, int]:
        """How many rows of each bucket are chosen; buckets without any are left out."""
        counts: dict[Bucket, int] = {}
        for shape in choice.taken:
            counts[shape.bucket] = counts.get(shape.bucket, 0) + shape.count
        if choice.takes_row is None:
            return counts
        exact = {bucket: sum(1 for _ in self._filter(choice, bucket.rows)) for bucket in counts}
        return {bucket: count for bucket, count in exact.items() if count}

    def _walk(self, choice: _Choice, counts: dict[Bucket, int], offset: int) -> Iterator[int]:
        """The chosen rows in order from an offset on; only what is walked through is sorted."""
        for bucket in sorted(counts, key=lambda each: each.key):
            if offset >= counts[bucket]:
                offset -= counts[bucket]
                continue
            for row in self._filter(choice, self._rows.sort(bucket)):
                if offset:
                    offset -= 1
                else:
                    yield row

    def _filter(self, choice: _Choice, rows: Sequence[int]) -> Iterator[int]:
        taken, shape_of, takes = choice.taken, self._rows.shape_of, choice.takes_row
        if takes is None:
            return (row for row in rows if shape_of[row] in taken)
        return (row for row in rows if shape_of[row] in taken and takes(row))


def _compare(
    before: list[ReadResult], after: list[ReadResult]
) -> tuple[Sequence[int], Sequence[int]]:
    """The places of results that are no more, and of those that are new.

    A result that was only found again (another time, another place in the report) is not new.
    """
    known = Counter(map(_identify, before))
    found = Counter(map(_identify, after))
    return _pick(before, known - found), _pick(after, found - known)


def _identify(result: ReadResult) -> tuple[object, ...]:
    return result.shape, result.name, result.uid, result.message


def _pick(results: list[ReadResult], wanted: Counter[tuple[object, ...]]) -> list[int]:
    picked: list[int] = []
    if wanted:
        for number, result in enumerate(results):
            key = _identify(result)
            if wanted[key] > 0:
                wanted[key] -= 1
                picked.append(number)
    return picked
