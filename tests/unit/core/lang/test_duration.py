"""Durations are read and written as Go does it."""

import pytest

from lictor.core.lang.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds", "written"),
    [
        ("0", 0, "0s"),
        ("-0", 0, "0s"),
        ("0s", 0, "0s"),
        ("1ns", 1, "1ns"),
        ("1us", 1_000, "1µs"),
        ("1µs", 1_000, "1µs"),
        ("1μs", 1_000, "1µs"),
        ("1.5ms", 1_500_000, "1.5ms"),
        (".5s", 500_000_000, "500ms"),
        ("1.s", 1_000_000_000, "1s"),
        ("90s", 90_000_000_000, "1m30s"),
        ("1h", 3_600_000_000_000, "1h0m0s"),
        ("1h15m30.918s", 4_530_918_000_000, "1h15m30.918s"),
        ("-1.5h", -5_400_000_000_000, "-1h30m0s"),
        ("+5m", 300_000_000_000, "5m0s"),
        ("1m1m", 120_000_000_000, "2m0s"),
        ("0.0000000001s", 0, "0s"),
        ("9223372036854775807ns", 9223372036854775807, "2562047h47m16.854775807s"),
        ("-9223372036854775808ns", -9223372036854775808, "-2562047h47m16.854775808s"),
        ("0.100000000000000000000h", 360_000_000_000, "6m0s"),
    ],
)
def test_read_and_written(text, nanoseconds, written):
    assert parse_duration(text) == nanoseconds
    assert format_duration(nanoseconds) == written


@pytest.mark.parametrize(
    "text",
    ["", "+", "-", "1", "1.5", "s", ".s", "-.s", "1d", "1y", "1 s", " 1s", "1s ", "1e3s", "1h-5m", "1.5.5s",
     "9223372036854775808ns", "99999999999999999999h", "1" * 5000 + "s", "٣s"],
)  # fmt: skip
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="time: "):
        parse_duration(text)
