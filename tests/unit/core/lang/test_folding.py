"""What is computed while a query is compiled, and what is left for those who ask."""

import time

import pytest

from lictor.core.errors import TooLargeError
from lictor.core.lang.jmespath import FoldingBudget, compile_query
from lictor.core.lang.written_size import MAX_WRITTEN, check_written, measure_written


def _nest(levels: int) -> str:
    text = "'" + "a" * 100 + "'"
    for _ in range(levels):
        text = f"regex_replace_all('a', {text}, 'aaaaaaaaaa')"
    return text


@pytest.mark.parametrize("levels", [5, 12, 60])
def test_calls_that_feed_each_other_do_not_hold_up_the_compiler(levels: int) -> None:
    began = time.process_time()
    query = compile_query(_nest(levels))
    # Without a budget: six seconds for five levels, and ten times that for each more.
    assert time.process_time() - began < 1
    with pytest.raises(TooLargeError, match="too large"):
        query(None)


def test_many_constant_calls_share_a_budget() -> None:
    budget = FoldingBudget()
    text = "length(regex_replace_all('a', '" + "a" * 1000 + "', 'aaaaaaaaaa'))"
    began = time.process_time()
    queries = [compile_query(text, folding=budget) for _ in range(2000)]
    assert time.process_time() - began < 3
    assert queries[0](None) == queries[-1](None) == 10_000


def test_small_constants_are_computed_once() -> None:
    query = compile_query("split(replace_all('a+b', '+', '-'), '-')")
    assert query({}) is query({})
    assert query({}) == ["a", "b"]


def test_what_is_shared_counts_each_time() -> None:
    value = {"a": "x" * 100}
    once = measure_written(value)
    assert measure_written([value, value]) > 2 * once
    for _ in range(10):
        value = {"a": value, "b": value}
    assert 1024 * once < measure_written(value) < 2048 * once
    assert check_written(value) is value


def test_measuring_is_quick_whatever_is_measured() -> None:
    value: object = "x" * (MAX_WRITTEN // 2)
    began = time.process_time()
    for _ in range(10_000):
        measure_written([value])
    nothing: object = []
    for _ in range(200):
        nothing = [nothing]
    measure_written([nothing] * 1000)
    assert time.process_time() - began < 3
