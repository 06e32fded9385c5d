"""One entry of the ConfigMap changes how much is logged, while lictor runs."""

import logging
from collections.abc import Callable, Iterator

import pytest

from lictor.kubernetes.process_log import choose_level, follow_log_level, read_level, set_level
from lictor.kubernetes.settings import LOG_LEVELS, Settings, read_settings


class FakeSettings:
    """Settings that a test changes."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Settings], None]] = []

    def listen(self, listener: Callable[[Settings], None]) -> None:
        self._listeners.append(listener)

    def change(self, **data: str) -> None:
        for listener in self._listeners:
            listener(read_settings({"data": data}))


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, chatty = logging.getLogger().level, logging.getLogger("httpx2").level
    yield
    set_level("info")
    logging.getLogger().setLevel(root)
    logging.getLogger("httpx2").setLevel(chatty)


@pytest.mark.parametrize(
    ("verbosity", "level", "number", "libraries"),
    [
        (0, "info", logging.INFO, logging.WARNING),
        (2, "info", logging.INFO, logging.WARNING),
        (4, "debug", logging.DEBUG, logging.WARNING),
        (9, "trace", logging.DEBUG, logging.NOTSET),
    ],
)
def test_numbers_of_the_flag(verbosity: int, level: str, number: int, libraries: int) -> None:
    assert choose_level(verbosity) == level
    set_level(level)
    assert logging.getLogger().level == number
    assert logging.getLogger("httpx2").level == libraries
    assert read_level() == level


@pytest.mark.parametrize("usual", LOG_LEVELS)
@pytest.mark.parametrize("wanted", LOG_LEVELS)
def test_the_setting_counts_while_it_is_there(usual: str, wanted: str, caplog) -> None:
    set_level(usual)
    settings = FakeSettings()
    follow_log_level(settings)
    settings.change(logLevel=wanted)
    assert read_level() == wanted
    told = [record for record in caplog.records if record.message == "log level changed"]
    # Nobody is told where neither level lets it through.
    quiet = {usual, wanted} <= {"error", "warning"}
    assert len(told) == (0 if usual == wanted or quiet else 1)
    settings.change(logLevel=wanted, defaultRegistry="ghcr.io")
    settings.change()
    assert read_level() == usual


def test_a_level_that_there_is_not_is_told_and_changes_nothing() -> None:
    read = read_settings({"data": {"logLevel": "loud"}})
    assert read.log_level == ""
    assert read.problems == (
        "logLevel: expected one of error, warning, info, debug, trace, not 'loud'",
    )
