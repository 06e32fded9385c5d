"""The history of totals: what a viewer sees of it, its bounds, and its file."""

import json
from pathlib import Path

import pytest
from web_reports import see_all, see_namespaces

from lictor.addons.web.history import TotalsHistory

SHOP, BANK = ("here", "shop"), ("here", "bank")
DAY = 86_400


def counts(fail: int = 0, passed: int = 0) -> tuple[int, ...]:
    return (fail, 0, 0, passed, 0)


class Clock:
    """A time that only moves when it is told to."""

    def __init__(self, now: float = 1_000_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def list_failures(history: TotalsHistory, *namespaces: str) -> list[int]:
    viewer = see_namespaces(*namespaces) if namespaces else see_all()
    return [point.counts["fail"] for point in history.list_points(viewer)]


def test_totals_are_those_of_what_a_viewer_sees() -> None:
    clock = Clock()
    history = TotalsHistory(clock=clock)
    history.note({SHOP: counts(3, 5), BANK: counts(1)})
    clock.now += 600
    history.note({SHOP: counts(2, 6), BANK: counts(1)})
    clock.now += 600
    # A namespace that is gone has nothing any more.
    history.note({BANK: counts(4)})
    assert list_failures(history) == [4, 3, 4]
    assert list_failures(history, "shop") == [3, 2, 0]
    # When something happened elsewhere is not told either.
    assert list_failures(history, "bank") == [1, 4]
    assert list_failures(history, "other") == [0]
    points = history.list_points(see_all())
    assert [point.timestamp - 1_000_000_000 for point in points] == [0, 600, 1200]
    assert [point.counts["pass"] for point in points] == [5, 6, 0]


def test_what_changes_within_a_step_is_one_point_and_what_does_not_is_none() -> None:
    clock = Clock()
    history = TotalsHistory(clock=clock)
    for fail in (1, 2, 3):
        history.note({SHOP: counts(fail)})
        clock.now += 60
    assert list_failures(history) == [3]
    clock.now += 600
    history.note({SHOP: counts(3)})
    assert list_failures(history) == [3]


def test_a_namespace_that_comes_back_counts_again() -> None:
    clock = Clock()
    history = TotalsHistory(clock=clock)
    for totals in ({SHOP: counts(2)}, {}, {SHOP: counts(2)}):
        history.note(totals)
        clock.now += 600
    assert list_failures(history) == [2, 0, 2]


def test_old_times_are_thinned_out_and_then_forgotten() -> None:
    clock = Clock(1_000_000_800.0)
    history = TotalsHistory(clock=clock)
    # Every four hours for 33 days, then every ten minutes for two.
    pauses = [4 * 3600] * (33 * 6) + [600] * (2 * 24 * 6)
    for number, pause in enumerate(pauses):
        history.note({SHOP: counts(number + 1)})
        clock.now += pause
    points = history.list_points(see_all())
    # 28 days of four hours, a day of hours, a day of ten minutes; what was before is one point.
    expected = 28 * 6 + 24 + 24 * 6
    assert expected - 3 <= len(points) <= expected + 3
    assert points[0].timestamp < clock.now - 30 * DAY + 4 * 3600
    # Totals do not depend on what was forgotten.
    assert points[-1].counts["fail"] == len(pauses)
    assert [point.counts["fail"] for point in points] == sorted(
        point.counts["fail"] for point in points
    )


def test_there_are_never_more_changes_than_there_is_room_for() -> None:
    clock = Clock()
    history = TotalsHistory(most_changes=100, clock=clock)
    for step in range(50):
        history.note({("here", f"ns{n}"): counts(step + n) for n in range(10)})
        clock.now += 600
    points = history.list_points(see_all())
    assert len(points) == 10
    assert points[-1].counts["fail"] == sum(49 + n for n in range(10))


def test_a_history_outlives_its_process(tmp_path: Path) -> None:
    clock = Clock()
    first = TotalsHistory(tmp_path, clock=clock)
    first.note({SHOP: counts(3), BANK: counts(1)})
    clock.now += 600
    again = TotalsHistory(tmp_path, clock=clock)
    again.note({SHOP: counts(3), BANK: counts(2)})
    assert list_failures(again) == [4, 5]
    assert list_failures(TotalsHistory(tmp_path, clock=clock), "bank") == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["totals.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        json.dumps({"format": 2, "statuses": [], "moments": []}),
        json.dumps({"format": 1, "statuses": ["fail"], "moments": [[1, [["a", "b", [1]]]]]}),
    ],
)
def test_a_file_that_cannot_be_read_is_kept_and_a_new_history_begins(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "totals.json").write_text(text)
    history = TotalsHistory(tmp_path, clock=Clock())
    assert history.list_points(see_all()) == []
    assert (tmp_path / "totals.unreadable").read_text() == text
    history.note({SHOP: counts(1)})
    assert list_failures(TotalsHistory(tmp_path, clock=Clock())) == [1]


def test_a_folder_that_cannot_be_written_to_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    history = TotalsHistory(folder, clock=Clock())
    history.note({SHOP: counts(1)})
    assert list_failures(history) == [1]
