"""The report of `apply -p`: valid in both forms, complete, and made in pieces."""

import json

import pytest
import yaml
from msgspec.structs import replace

from lictor.core.model.result import ExceptionRef, RuleType, Status, Verdict
from lictor.core.report.policy_report import ReportFormat, ReportOptions, stream_verdicts


def read_reports(text, form):
    if form is ReportFormat.YAML:
        return [report for report in yaml.safe_load_all(text) if report]
    return [json.loads(line) for line in text.splitlines()]


def render(verdicts, form=ReportFormat.YAML, **options):
    return "".join(stream_verdicts(verdicts, ReportOptions(form, timestamp=7, **options)))


@pytest.mark.parametrize("form", list(ReportFormat))
def test_reports_have_kyvernos_shape(made, form):
    merged, local = read_reports(render(made.verdicts, form), form)
    assert (merged["kind"], merged["apiVersion"]) == ("ClusterReport", "openreports.io/v1alpha1")
    assert merged["metadata"] == {"name": "merged"}
    assert merged["source"] == ""
    assert merged["summary"] == {"pass": 1, "fail": 2, "warn": 1, "error": 1, "skip": 1}
    assert merged["results"][0] == {
        "source": "kyverno",
        "policy": "require-team",
        "rule": "team",
        "category": "Sample: one",
        "severity": "medium",
        "timestamp": {"seconds": 7, "nanos": 0},
        "result": "pass",
        "scored": True,
        "resources": [
            {"apiVersion": "v1", "kind": "Pod", "name": "good", "namespace": "shop", "uid": "12"}
        ],
        "message": "rule passed",
        "properties": {"process": "background scan"},
    }
    assert [(r["rule"], r["result"]) for r in merged["results"][1:]] == [
        ("team", "fail"),
        ("lines", "fail"),
        ("hint", "warn"),
        ("broken", "error"),
        ("spared", "skip"),
    ]
    assert merged["results"][2]["message"] == "one\ntwo\n"
    assert local["kind"] == "PolicyReport"
    assert local["metadata"] == {"name": "local", "namespace": "shop"}
    assert local["results"][0]["policy"] == "shop/local"
    assert local["results"][0]["message"] == '<no> & "quotes"'
    assert local["summary"]["fail"] == 1


@pytest.mark.parametrize("form", list(ReportFormat))
def test_both_forms_say_the_same(made, form):
    assert read_reports(render(made.verdicts, form), form) == read_reports(
        render(made.verdicts, ReportFormat.JSON), ReportFormat.JSON
    )


def test_audit_warn(made):
    merged, local = read_reports(render(made.verdicts, audit_warn=True), ReportFormat.YAML)
    assert merged["summary"] == {"pass": 1, "fail": 1, "warn": 2, "error": 1, "skip": 1}
    assert local["results"][0]["result"] == "warn"


def test_nothing_to_report(made):
    assert render([]) == ""
    assert render([Verdict(made.request(), ())]) == ""
    (report,) = read_reports(render([], ReportFormat.JSON), ReportFormat.JSON)
    assert (report["kind"], report["results"], report["summary"]["fail"]) == (
        "ClusterReport",
        [],
        0,
    )


@pytest.mark.parametrize("form", list(ReportFormat))
def test_only_namespaced(made, form):
    verdicts = [Verdict(made.request(name), (made.result(made.local),)) for name in ("a", "b")]
    (report,) = read_reports(render(verdicts, form), form)
    assert [r["resources"][0]["name"] for r in report["results"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("properties", "status", "message"),
    [
        ({"passMessage": "fine"}, Status.PASS, "fine"),
        ({"passMessage": "fine"}, Status.FAIL, "said"),
        ({"failMessage": "bad", "message": "any"}, Status.FAIL, "any"),
        ({"failMessage": ""}, Status.FAIL, "said"),
    ],
)
def test_report_properties(made, properties, status, message):
    result = made.result(status=status, message="said", properties=properties)
    (report,) = read_reports(render([Verdict(made.request(), (result,))]), ReportFormat.YAML)
    assert report["results"][0]["message"] == message
    assert report["results"][0]["properties"] == {"process": "background scan", **properties}


def test_exceptions_are_named(made):
    refs = (ExceptionRef("one", "ns"), ExceptionRef("two"))
    result = made.result(status=Status.SKIP, exceptions=refs)
    (report,) = read_reports(render([Verdict(made.request(), (result,))]), ReportFormat.YAML)
    assert report["results"][0]["properties"]["exceptions"] == "one,two"
    assert "message" not in report["results"][0]


@pytest.mark.parametrize("form", list(ReportFormat))
@pytest.mark.parametrize(
    "resource",
    [
        {},
        {"metadata": None},
        {"metadata": {"name": 5, "namespace": ["x"]}, "kind": {"a": 1}},
        {"metadata": {"name": 10**5000}},
        {"metadata": {"name": "a\nb: c", "namespace": "yes"}, "kind": "\x00\ud800"},
    ],
)
def test_odd_resources_do_not_break_a_report(made, form, resource):
    request = replace(made.request(), object=resource)
    text = render([Verdict(request, (made.result(type=RuleType.MUTATION),))], form)
    assert read_reports(text, form)[0]["results"][0]["rule"] == "team"


def test_it_comes_in_pieces(made):
    seen = []

    def verdicts():
        for index in range(3):
            seen.append(index)
            yield Verdict(made.request(f"p{index}"), (made.result(),))

    pieces = stream_verdicts(verdicts(), ReportOptions())
    next(pieces)
    assert seen == [0]
