"""Times are read by Go's layouts and written in RFC 3339."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lictor.core.lang.gotime import GoTime, from_datetime, parse_rfc3339, parse_time


@pytest.mark.parametrize(
    ("layout", "text", "written"),
    [
        ("2006-01-02", "2024-02-29", "2024-02-29T00:00:00Z"),
        ("2006-1-2", "2024-02-09", "2024-02-09T00:00:00Z"),
        ("02.01.06", "09.02.68", "2068-02-09T00:00:00Z"),
        ("02.01.06", "09.02.69", "1969-02-09T00:00:00Z"),
        ("Jan _2 2006", "Mar  4 2020", "2020-03-04T00:00:00Z"),
        ("January 2, 2006", "OCTOBER 12, 1999", "1999-10-12T00:00:00Z"),
        ("Monday 2 Jan 2006", "Friday 3 May 2024", "2024-05-03T00:00:00Z"),
        ("2006-002", "2024-366", "2024-12-31T00:00:00Z"),
        ("3:04PM", "12:15AM", "0000-01-01T00:15:00Z"),
        ("3:04pm", "12:15pm", "0000-01-01T12:15:00Z"),
        ("15:04:05", "7:08:09.25", "0000-01-01T07:08:09Z"),
        ("15:04:05.000", "07:08:09.250", "0000-01-01T07:08:09Z"),
        ("15:04:05.99", "07:08:09", "0000-01-01T07:08:09Z"),
        ("2006-01-02 15:04 -0700", "2024-05-06 07:08 -0330", "2024-05-06T07:08:00-03:30"),
        ("2006-01-02 15:04 Z07", "2024-05-06 07:08 +02", "2024-05-06T07:08:00+02:00"),
        ("2006-01-02 15:04 MST", "2024-05-06 07:08 UTC", "2024-05-06T07:08:00Z"),
        ("2006-01-02 15:04 MST", "2024-05-06 07:08 CEST", "2024-05-06T07:08:00Z"),
        ("2006-01-02 15:04 MST", "2024-05-06 07:08 GMT+2", "2024-05-06T09:08:00+02:00"),
        ("2006  01", "2024 05", "2024-05-01T00:00:00Z"),
        ("", "", "0000-01-01T00:00:00Z"),
    ],
)
def test_layouts(layout, text, written):
    assert str(parse_time(layout, text)) == written


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("2006-01-02", "2023-02-29"),
        ("a" * 50_000, "a" * 50_000),
        ("2006-01-02", "2023-13-01"),
        ("2006-01-02", "2023-1-01"),
        ("2006-01-02", "23-01-01"),
        ("2006-01-02", "2023-01-01 "),
        ("2006-002", "2023-366"),
        ("Jan 2", "Foo 2"),
        ("15:04", "24:00"),
        ("3:04PM", "13:04PM"),
        ("3:04PM", "1:04pm"),
        ("15:04:05", "01:02:60"),
        ("15:04:05.000", "01:02:03.12"),
        ("-0700", "0700"),
        ("-07:00", "+0700"),
        ("Z07:00", "+25:00"),
        ("MST", "abc"),
        ("x", ""),
    ],
)
def test_what_does_not_fit(layout, text):
    with pytest.raises(ValueError, match="parsing time"):
        parse_time(layout, text)


@pytest.mark.parametrize(
    "text", ["2024-05-06T07:08:09Z", "2024-05-06T07:08:09+05:30", "0001-01-01T00:00:00-01:00"]
)
def test_rfc3339_comes_back(text):
    assert str(parse_rfc3339(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "2024-05-06", "2024-05-06 07:08:09Z", "2024-05-06T07:08:09", "2024-05-06t07:08:09z"],
)
def test_what_is_not_rfc3339(text):
    with pytest.raises(ValueError, match="parsing time"):
        parse_rfc3339(text)


def test_arithmetic():
    moment = parse_rfc3339("2024-05-06T07:08:09+02:00")
    assert str(moment.utc()) == "2024-05-06T05:08:09Z"
    assert str(moment.add(-(10**9) * 60)) == "2024-05-06T07:07:09+02:00"
    assert str(moment.truncate(3600 * 10**9)) == "2024-05-06T07:00:00+02:00"
    assert moment.truncate(0) is moment
    assert moment.weekday() == 1
    assert parse_rfc3339("9999-12-31T23:59:59Z").since(GoTime(-(10**30))) == 2**63 - 1


def test_years_beyond_the_calendar_of_python():
    assert str(GoTime(10**9 * 99_999_999_999)) == "5138-11-16T09:46:39Z"
    assert str(GoTime(10**9 * 999_999_999_999)) == "33658-09-27T01:46:39Z"
    assert str(parse_rfc3339("0000-01-01T00:00:00Z").add(-1)) == "-0001-12-31T23:59:59Z"


def test_from_datetime():
    zone = timezone(timedelta(hours=-3))
    assert (
        str(from_datetime(datetime(2024, 5, 6, 7, 8, 9, tzinfo=zone)))
        == "2024-05-06T07:08:09-03:00"
    )
    naive = datetime(2024, 5, 6)
    assert from_datetime(naive) == from_datetime(datetime(2024, 5, 6, tzinfo=UTC))
