"""Results in columns: equal parts are stored once, and rows are sorted when they are needed.

A row is a number. What many rows have in common is their shape; rows of the same status, severity,
namespace and cluster are a bucket. Counts need only the shapes, and a page of rows needs only the
order of the buckets that it shows.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import Any

from lictor.addons.web.records import SEVERITIES, STATUSES, ReportedResult
from lictor.addons.web.results_reading import NO_PROPERTIES, ReadResult, ResultShape

_STATUS_RANKS = {status: rank for rank, status in enumerate(STATUSES)}
_SEVERITY_RANKS = {severity: rank for rank, severity in enumerate(SEVERITIES)}


class Bucket:
    """Rows that stay together in every view."""

    __slots__ = ("key", "order", "rows")

    def __init__(self, key: tuple[int, int, str, str]) -> None:
        self.key = key
        self.rows = array("I")
        # The same rows, sorted; None until they are needed.
        self.order: array[int] | None = None


class StoredShape:
    """A shape that rows have, and how many."""

    __slots__ = ("bucket", "count", "fields")

    def __init__(self, fields: ResultShape, bucket: Bucket) -> None:
        self.fields = fields
        self.bucket = bucket
        self.count = 0


class StoredReport:
    """A report, and the rows that are its results in their order."""

    __slots__ = ("cluster", "name", "rows")

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.rows = array("I")

    @property
    def namespace(self) -> str:
        """Where the report is; empty for those of the cluster."""
        _, *place = self.name.split("/")
        return place[0] if len(place) == 2 else ""


class RowStore:
    """All rows. Numbers of rows that are gone are used again."""

    def __init__(self) -> None:
        self.shapes: dict[ResultShape, StoredShape] = {}
        self.buckets: dict[tuple[int, int, str, str], Bucket] = {}
        self.shape_of: list[StoredShape | None] = []
        self.report_of: list[StoredReport | None] = []
        self.names: list[str] = []
        self.messages: list[str] = []
        self.properties: list[Mapping[str, str]] = []
        self.uids: list[str] = []
        self.times = array("I")
        self._positions = array("I")
        # Where a row stands in its bucket.
        self._places = array("I")
        self._free = array("I")

    def __len__(self) -> int:
        return len(self.names) - len(self._free)

    def add(self, result: ReadResult, report: StoredReport) -> None:
        """A new row at the end of a report."""
        row = self._free.pop() if self._free else self._extend()
        shape = self._share_shape(result.shape)
        shape.count += 1
        self.shape_of[row] = shape
        self.report_of[row] = report
        self.names[row] = result.name
        self.uids[row] = result.uid
        self.messages[row] = result.message
        self.properties[row] = result.properties
        self.times[row] = result.timestamp
        self._positions[row] = len(report.rows)
        report.rows.append(row)
        self._put_into(shape.bucket, row)

    def remove_all(self, report: StoredReport) -> None:
        """All rows of a report."""
        for row in report.rows:
            self._remove(row)
        report.rows = array("I")

    def build(self, row: int) -> ReportedResult:
        """The row as a record."""
        shape, report = self._get_shape(row).fields, self._get_report(row)
        return ReportedResult(
            cluster=shape.cluster,
            report=report.name,
            position=self._positions[row],
            source=shape.source,
            policy=shape.policy,
            rule=shape.rule,
            status=shape.status,
            severity=shape.severity,
            category=shape.category,
            namespace=shape.namespace,
            api_version=shape.api_version,
            kind=shape.kind,
            name=self.names[row],
            uid=self.uids[row],
            message=self.messages[row],
            timestamp=self.times[row],
            properties=self.properties[row],
        )

    def read(self, row: int) -> ReadResult:
        """The row as it was read."""
        return ReadResult(
            self._get_shape(row).fields,
            self.names[row],
            self.uids[row],
            self.messages[row],
            self.times[row],
            self.properties[row],
        )

    def sort(self, bucket: Bucket) -> "array[int]":
        """The rows of a bucket by resource, policy and rule. Kept in order from then on."""
        if bucket.order is None:
            bucket.order = array("I", sorted(bucket.rows, key=self.find_position))
        return bucket.order

    def find_position(self, row: int) -> tuple[Any, ...]:
        """By what the rows of a bucket are sorted."""
        # Ends with where the result stands, so that no two rows are equal.
        shape, report = self._get_shape(row).fields, self._get_report(row)
        return (
            shape.kind,
            self.names[row],
            shape.policy,
            shape.rule,
            report.name,
            self._positions[row],
        )

    def _get_shape(self, row: int) -> StoredShape:
        shape = self.shape_of[row]
        assert shape is not None  # noqa: S101  (only rows that are there have a number)
        return shape

    def _get_report(self, row: int) -> StoredReport:
        report = self.report_of[row]
        assert report is not None  # noqa: S101
        return report

    def _extend(self) -> int:
        for texts in (self.names, self.uids, self.messages):
            texts.append("")
        for numbers in (self.times, self._positions, self._places):
            numbers.append(0)
        self.properties.append(NO_PROPERTIES)
        self.shape_of.append(None)
        self.report_of.append(None)
        return len(self.names) - 1

    def _share_shape(self, fields: ResultShape) -> StoredShape:
        found = self.shapes.get(fields)
        if found is None:
            found = self.shapes[fields] = StoredShape(fields, self._share_bucket(fields))
        return found

    def _share_bucket(self, fields: ResultShape) -> Bucket:
        ranks = _STATUS_RANKS[fields.status], _SEVERITY_RANKS[fields.severity]
        key = (*ranks, fields.namespace, fields.cluster)
        found = self.buckets.get(key)
        if found is None:
            found = self.buckets[key] = Bucket(key)
        return found

    def _put_into(self, bucket: Bucket, row: int) -> None:
        self._places[row] = len(bucket.rows)
        bucket.rows.append(row)
        if bucket.order is not None:
            insort(bucket.order, row, key=self.find_position)

    def _remove(self, row: int) -> None:
        shape = self._get_shape(row)
        self._take_out(shape.bucket, row)
        shape.count -= 1
        if not shape.count:
            del self.shapes[shape.fields]
        if not shape.bucket.rows:
            self.buckets.pop(shape.bucket.key, None)
        self.shape_of[row] = self.report_of[row] = None
        self.names[row] = self.uids[row] = self.messages[row] = ""
        self.properties[row] = NO_PROPERTIES
        self._free.append(row)

    def _take_out(self, bucket: Bucket, row: int) -> None:
        if bucket.order is not None:
            del bucket.order[
                bisect_left(bucket.order, self.find_position(row), key=self.find_position)
            ]
        # The last one takes its place.
        last = bucket.rows.pop()
        if last != row:
            bucket.rows[self._places[row]] = last
            self._places[last] = self._places[row]
