"""Tables keep Kyverno's shape: borders, columns, a count, wrapped text."""

import pytest

from lictor.core.model.result import Status
from lictor.core.report.outcome_formats import render_markdown
from lictor.core.report.outcomes import TestOutcome, keep_failures, list_outcomes
from lictor.core.report.table import render_table


def outcome(number=1, **more):
    given = {
        "policy": "team",
        "rule": "r",
        "resource": "v1/Pod/a/web",
        "result": Status.PASS,
        "reason": "Ok",
    }
    return TestOutcome(id=number, **{**given, **more})


def test_table():
    bad = outcome(2, result=Status.FAIL, reason="Want pass, got fail", ok=False)
    assert render_table([outcome(), bad]).splitlines() == [
        "│────│────────│──────│──────────────│────────│─────────────────────│",
        "│ ID │ POLICY │ RULE │ RESOURCE     │ RESULT │ REASON              │",
        "│────│────────│──────│──────────────│────────│─────────────────────│",
        "│ 1  │ team   │ r    │ v1/Pod/a/web │ Pass   │ Ok                  │",
        "│ 2  │ team   │ r    │ v1/Pod/a/web │ Fail   │ Want pass, got fail │",
        "│────│────────│──────│──────────────│────────│─────────────────────│",
    ]


def test_more_than_ten_rows_are_counted():
    lines = render_table([outcome(number) for number in range(1, 13)]).splitlines()
    assert lines[1].startswith("│ ID (12)  │ POLICY │")
    assert lines[3].startswith("│ 1        │ team   │")


def test_messages_take_as_many_lines_as_they_need():
    lines = render_table([outcome(message="one\ntwo\n")], detailed=True).splitlines()
    assert lines[1].endswith("│ MESSAGE │")
    assert lines[3].endswith("│ one     │")
    assert lines[4].endswith("│ two     │")
    assert lines[5].endswith("│         │")
    long = render_table([outcome(message="word " * 100)], detailed=True).splitlines()
    assert len(long) == 6
    assert max(map(len, long)) < 380


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("名前", "名前"),
        ("e\u0301", "e\u0301"),
        ("a\x1b]0;x\x07b", "a�]0;x�b"),
        ("\x1b[31mred\x1b[0m", "red"),
    ],
)
def test_width_and_controls(text, shown):
    lines = render_table([outcome(rule=text)]).splitlines()
    assert shown in lines[3]
    assert "\x1b" not in lines[3]


def test_color_only_when_asked():
    text = render_table([outcome(result=Status.FAIL, reason="Not found")], color=True)
    assert "\x1b[31;1mFail\x1b[0m" in text
    assert "\x1b[33;1mNot found\x1b[0m" in text
    assert "\x1b[40;32mID\x1b[0m" in text
    assert "\x1b" not in render_table([outcome(result=Status.FAIL, reason="Not found")])


def test_no_rows_no_table():
    assert render_table([]) == ""


def test_rows_of_verdicts(made):
    rows = list(list_outcomes(made.verdicts))
    assert [(r.id, r.policy, r.rule, r.resource, r.title, r.ok) for r in rows[:4]] == [
        (1, "require-team", "team", "shop/Pod/good", "Pass", True),
        (2, "require-team", "team", "shop/Pod/bad", "Fail", False),
        (3, "require-team", "lines", "shop/Pod/bad", "Fail", False),
        (4, "shop/local", "here", "shop/Pod/bad", "Fail", False),
    ]
    assert [r.title for r in rows[4:]] == ["Warn", "Error", "Skip"]
    warned = list(list_outcomes(made.verdicts, audit_warn=True))
    assert [r.title for r in warned[1:4]] == ["Warn", "Fail", "Warn"]


def test_failures_are_kept_and_counted_anew():
    rows = [outcome(1), outcome(2, ok=False), outcome(3, ok=False)]
    assert [row.id for row in keep_failures(rows)] == [2, 3]
    assert [row.id for row in keep_failures(rows, renumber=True)] == [1, 2]


def test_markdown():
    text = render_markdown([outcome(message="a|b\nc <d>")], detailed=True)
    assert text == (
        "| ID | POLICY | RULE | RESOURCE | RESULT | REASON | MESSAGE | \n"
        "|----|----|----|----|----|----|----|\n"
        "| 1 | team | r | v1/Pod/a/web | Pass | Ok | a\\|b<br>c &lt;d> |\n"
    )
    assert render_markdown([]).count("\n") == 2
