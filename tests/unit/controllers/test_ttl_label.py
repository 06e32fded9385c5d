"""The label that limits an object's life: which moment it means."""

from datetime import UTC, datetime, timedelta

import pytest

from lictor.core.lang.schedule import NEVER, find_deletion_time

BORN = datetime(2026, 3, 1, 12, tzinfo=UTC)

LENGTHS = [
    ("10s", timedelta(seconds=10)),
    ("1h30m", timedelta(hours=1, minutes=30)),
    ("1.5h", timedelta(hours=1, minutes=30)),
    ("0", timedelta()),
    ("2d", timedelta(days=2)),
    ("1w2d", timedelta(days=9)),
    ("5days", timedelta(days=5)),
    ("3Hours", timedelta(hours=3)),
    ("2wk", timedelta(weeks=2)),
    # Not what the author may have meant, but what everyone who reads the label makes of it.
    ("1M", timedelta(minutes=1)),
    ("1.5d", timedelta(days=5)),
    ("10s3x", timedelta(seconds=10)),
]


@pytest.mark.parametrize(("text", "length"), LENGTHS, ids=[text for text, _ in LENGTHS])
def test_lengths_count_from_the_creation(text, length):
    assert find_deletion_time(text, BORN) == BORN + length


MOMENTS = [
    ("2030-01-02T150405Z", datetime(2030, 1, 2, 15, 4, 5, tzinfo=UTC)),
    ("2023-07-19T120000Z", datetime(2023, 7, 19, 12, tzinfo=UTC)),
    ("2030-01-02", datetime(2030, 1, 2, tzinfo=UTC)),
]


@pytest.mark.parametrize(("text", "moment"), MOMENTS, ids=[text for text, _ in MOMENTS])
def test_times_stand_for_themselves(text, moment):
    assert find_deletion_time(text, BORN) == moment


NONSENSE = ["", "10ay", "never", "2030-13-01", "2030-01-02T15:04:05Z", "2030-01-02T150405", "10"]


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        find_deletion_time(text, BORN)


def test_a_length_beyond_the_calendar_is_never():
    assert find_deletion_time("99999999w", BORN) == NEVER
