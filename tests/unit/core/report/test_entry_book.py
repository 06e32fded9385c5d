"""Lines of reports are made once, and tell apart what differs."""

import pytest
from msgspec.structs import replace

from lictor.core.model.result import Action, ExceptionRef, PolicyRef, Result, RuleType, Status
from lictor.core.report.resource_report import (
    EntryCache,
    build_entry,
    hash_entries,
    sort_report_entries,
    stamp_entries,
)

POLICY = PolicyRef("p", annotations={"policies.kyverno.io/severity": "high"})
RESULT = Result(POLICY, "r", RuleType.VALIDATION, Status.FAIL, "no", Action.AUDIT)


def test_equal_results_make_one_line():
    book = EntryCache(background=True)
    assert book.find(RESULT) is book.find(replace(RESULT, action=Action.ENFORCE))


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "other"},
        {"message": "other"},
        {"status": Status.PASS},
        {"policy": PolicyRef("other")},
        {"exceptions": (ExceptionRef("e"),)},
        {"properties": {"a": "b"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_differs_makes_another(change):
    book = EntryCache(background=True)
    first, second = book.find(RESULT), book.find(replace(RESULT, **change))
    assert first.digest != second.digest
    assert hash_entries([first]) != hash_entries([second])


def test_a_policy_that_was_compiled_anew_is_not_taken_for_the_old_one():
    book = EntryCache(background=True)
    old = book.find(RESULT)
    policy = PolicyRef("p", annotations={"policies.kyverno.io/severity": "low"})
    new = book.find(replace(RESULT, policy=policy))
    assert (old.body["severity"], new.body["severity"]) == ("high", "low")


def test_stamped_lines_are_the_entries_of_a_report():
    book = EntryCache(background=True)
    made = stamp_entries([book.find(RESULT)], 99)
    assert made == [build_entry(RESULT, background=True, timestamp=99)]
    assert "timestamp" not in book.find(RESULT).body


def test_order_is_that_of_policy_and_rule():
    book = EntryCache(background=True)
    lines = [book.find(replace(RESULT, rule=rule)) for rule in ("b", "a")]
    assert [line.body["rule"] for line in sort_report_entries(lines)] == ["a", "b"]
    assert hash_entries(sort_report_entries(lines)) == hash_entries(
        sort_report_entries(reversed(lines))
    )
    assert hash_entries([]) == 0


def test_the_book_does_not_grow_without_end():
    book = EntryCache(background=True)
    for number in range(5000):
        book.find(replace(RESULT, message=str(number)))
    assert len(book._lines) <= 2048
