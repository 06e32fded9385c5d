"""Does work on one text end when its CPU time is over?"""

import time

import pytest

from lictor.cli.inputs.time_limit import limit_cpu_time
from lictor.core.errors import LictorError, TooSlowError


def swallow_once() -> None:
    try:
        while True:
            sum(range(1000))
    except LictorError:
        while True:
            sum(range(1000))


def test_it_ends_even_where_an_error_is_swallowed() -> None:
    begin = time.thread_time()
    with pytest.raises(TooSlowError, match="rule x"), limit_cpu_time(0.2, "rule x"):
        swallow_once()
    assert time.thread_time() - begin < 2


def test_what_is_done_in_time_is_not_disturbed() -> None:
    with limit_cpu_time(0.05, "rule x"):
        pass
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
