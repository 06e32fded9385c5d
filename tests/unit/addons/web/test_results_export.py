"""Results as CSV and JSON: complete, and harmless to whatever opens them."""

import csv
import io
import json

from web_reports import entry, report, see_all

from lictor.addons.web.records import ExportFormat, ResultFilter
from lictor.addons.web.results import ResultIndex
from lictor.addons.web.results_export import export_results


def render(index: ResultIndex, form: ExportFormat) -> str:
    return b"".join(export_results(index.export(ResultFilter(), see_all()), form)).decode()


def make_index(count: int, **fields: object) -> ResultIndex:
    index = ResultIndex()
    for number in range(count):
        index.put_report("here", report(f"web-{number}", "shop", entry("p", "fail", **fields)))
    return index


def test_nothing_is_a_whole_document() -> None:
    assert json.loads(render(ResultIndex(), ExportFormat.JSON)) == []
    assert render(ResultIndex(), ExportFormat.CSV).count("\n") == 1


def test_many_results_come_in_pieces_and_none_is_lost() -> None:
    index = make_index(1201, timestamp={"seconds": 86_400}, properties={"a": "1", "b": "2"})
    read = json.loads(render(index, ExportFormat.JSON))
    assert sorted(row["name"] for row in read) == sorted(f"web-{n}" for n in range(1201))
    rows = list(csv.DictReader(io.StringIO(render(index, ExportFormat.CSV))))
    assert [row["name"] for row in rows] == [row["name"] for row in read]
    assert rows[0]["timestamp"] == "1970-01-02T00:00:00+00:00"
    assert rows[0]["properties"] == "a=1; b=2"
    assert rows[0]["report"].startswith("policyreports.wgpolicyk8s.io/shop/")


def test_no_cell_is_a_formula_and_no_text_ends_its_cell() -> None:
    usual = (
        "=cmd|' /C calc'!A0",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        "\n=1",
        "\u00a0=1",
    )
    for bad in (
        *usual,
        "\uff1d1",
        "\uff0b1",
        "\uff0d1",
        "\uff201",
        "\ufeff=1",
        "\u200b=1",
        "\x1f=1",
    ):
        index = make_index(1, message=bad, source=bad, properties={"=1": bad})
        (row,) = csv.DictReader(io.StringIO(render(index, ExportFormat.CSV)))
        assert row["message"] == f"'{bad}"
        assert row["source"] == f"'{bad}"
        assert row["properties"].startswith("'=1=")
    index = make_index(1, message='a","b\nnext,"')
    (row,) = csv.DictReader(io.StringIO(render(index, ExportFormat.CSV)))
    assert row["message"] == 'a","b\nnext,"'
