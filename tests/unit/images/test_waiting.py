"""How many may wait for registries that keep silent."""

from contextlib import ExitStack

import pytest

from lictor.core.errors import LookupFailedError
from lictor.images.waiting import WaitingLines


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock) -> WaitingLines:
    return WaitingLines(clock)


def _wait(lines: WaitingLines, stack: ExitStack, registry: str, count: int) -> None:
    for _ in range(count):
        stack.enter_context(lines.wait(registry))


def test_many_may_wait_for_a_registry_that_is_only_busy(lines, clock: Clock) -> None:
    with ExitStack() as stack:
        for _ in range(10):
            _wait(lines, stack, "busy", 50)
            clock.now += 0.9
            lines.note_end("busy", is_answer=True)


def test_few_may_wait_for_a_registry_that_is_silent(lines, clock: Clock) -> None:
    with ExitStack() as stack:
        _wait(lines, stack, "silent", 30)
        clock.now += 1.5
        with pytest.raises(LookupFailedError, match="30 requests wait for it already"):
            _wait(lines, stack, "silent", 1)
        _wait(lines, stack, "other", 50)
    # Those who waited have given up: it is tried again.
    with ExitStack() as stack:
        _wait(lines, stack, "silent", 16)


def test_those_never_heard_of_do_not_take_everything_together(lines, clock: Clock) -> None:
    with ExitStack() as stack:
        with lines.wait("known"):
            lines.note_end("known", is_answer=True)
        for number in range(8):
            _wait(lines, stack, f"silent-{number}", 8)
        clock.now += 1.5
        with pytest.raises(LookupFailedError, match="has never answered"):
            _wait(lines, stack, "silent-9", 1)
        _wait(lines, stack, "known", 20)


def test_an_error_is_no_answer(lines, clock: Clock) -> None:
    with ExitStack() as stack:
        _wait(lines, stack, "silent", 1)
        lines.note_end("silent", is_answer=False)
        _wait(lines, stack, "dead", 64)
        clock.now += 1.5
        with pytest.raises(LookupFailedError, match="has never answered"):
            _wait(lines, stack, "silent", 1)


def test_only_so_many_registries_are_remembered(lines) -> None:
    for number in range(3000):
        with lines.wait(f"registry-{number}"):
            pass
    assert len(lines._lines) <= 1024
