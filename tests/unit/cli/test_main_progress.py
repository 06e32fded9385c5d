"""Progress is for people who wait: never in a pipe, never for short work, and no item is lost."""

import io
import sys

import pytest

from lictor.cli.terminal import track


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ticking():
    moment = 0.0

    def clock():
        nonlocal moment
        moment += 0.3
        return moment

    return clock


@pytest.mark.parametrize(
    ("stream", "count", "is_shown"),
    [(io.StringIO(), 500, False), (Terminal(), 20, False), (Terminal(), 500, True)],
)
def test_progress(monkeypatch, stream, count, is_shown):
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(track(range(count), count, "Evaluating", clock=ticking())) == list(range(count))
    assert ("Evaluating" in stream.getvalue()) is is_shown


def test_progress_in_bytes_tells_how_long_it_may_take(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    items = [b"x" * 1000] * 500
    assert list(track(items, 500_000, "Reading", measure=len, clock=ticking())) == items
    assert "500.0 kB" in stream.getvalue()
    assert "left" in stream.getvalue()
