"""Results as they leave the page: CSV for spreadsheets, JSON for programs; in pieces."""

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import assert_never

import msgspec

from lictor.addons.web.records import ExportFormat, ReportedResult

_PIECE = 500
_COLUMNS = tuple(
    name for name in ReportedResult.__struct_fields__ if name not in ("properties", "timestamp")
)
_read_columns = attrgetter(*_COLUMNS)
_HEADER = (*_COLUMNS, "timestamp", "properties")
# A spreadsheet takes a cell that begins so for a formula, and runs it; also in full width (as some
# keyboards write them), and after what it leaves out: spaces, controls and invisible marks.
_FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20\u2212")


def export_results(results: Iterable[ReportedResult], form: ExportFormat) -> Iterator[bytes]:
    """The whole document in pieces; one without results is complete, too."""
    match form:
        case ExportFormat.CSV:
            return _write_csv(results)
        case ExportFormat.JSON:
            return _write_json(results)
        case _:
            assert_never(form)


def _write_csv(results: Iterable[ReportedResult]) -> Iterator[bytes]:
    rows = (_list_cells(result) for result in results)
    yield _render_csv([_HEADER])
    while piece := list(islice(rows, _PIECE)):
        yield _render_csv(piece)


def _render_csv(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    # In quotes where a spreadsheet may separate cells by something else than commas, too.
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode()


def _list_cells(result: ReportedResult) -> list[str]:
    properties = "; ".join(f"{name}={value}" for name, value in result.properties.items())
    cells = (*map(str, _read_columns(result)), _write_time(result.timestamp), properties)
    return [f"'{cell}" if _is_risky(cell[:1]) else cell for cell in cells]


def _is_risky(first: str) -> bool:
    """A cell can begin with invisible characters that a formula follows."""
    return first in _FORMULA or first == " " or bool(first and not first.isprintable())


@lru_cache(maxsize=1024)
def _write_time(timestamp: int) -> str:
    return datetime.fromtimestamp(timestamp, UTC).isoformat() if timestamp else ""


def _write_json(results: Iterable[ReportedResult]) -> Iterator[bytes]:
    """One array. Reports are not read again by it, so its fields are those of ReportedResult."""
    rows = iter(results)
    start = b"["
    while piece := list(islice(rows, _PIECE)):
        yield start + b",\n".join(map(msgspec.json.encode, piece))
        start = b",\n"
    yield b"[]\n" if start == b"[" else b"]\n"
