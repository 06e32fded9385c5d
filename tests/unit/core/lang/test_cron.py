from datetime import UTC, datetime

import pytest

from lictor.core.errors import CompileError
from lictor.core.lang.schedule import compile_schedule

NOW = datetime(2024, 2, 28, 22, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/5 * * * *", "2024-02-28T22:35:00"),
        ("0 0 29 2 *", "2024-02-29T00:00:00"),
        ("0 0 ? * ?", "2024-02-29T00:00:00"),
        ("@daily", "2024-02-29T00:00:00"),
        ("@hourly", "2024-02-28T23:00:00"),
        ("@weekly", "2024-03-03T00:00:00"),
        ("@every 1h30m", "2024-02-29T00:00:15"),
        ("TZ=Europe/Berlin 0 0 * * *", "2024-02-28T23:00:00"),
        ("CRON_TZ=Asia/Tokyo @daily", "2024-02-29T15:00:00"),
    ],
)
def test_next_run(text, expected):
    assert compile_schedule(text)(NOW) == datetime.fromisoformat(f"{expected}+00:00")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "61 * * * *",
        "@sometimes",
        "@every soon",
        "TZ=No/Where * * * * *",
        pytest.param(f"TZ={'a' * 20_000} * * * * *", id="long zone"),
        "TZ=Europe * * * * *",
        "a b c d e",
    ],
)
def test_refuse(text):
    with pytest.raises(CompileError, match="is not a cron expression"):
        compile_schedule(text)
