"""Hostile expressions: every evaluation ends, within its cost and its time."""

import pytest
from cel_rows import KUBERNETES, KYVERNO

from lictor.core.lang.cel.faults import (
    CelCompileError,
    CelError,
    CostExceededError,
    TimeExceededError,
)
from lictor.core.lang.cel.values import equal

NUMBERS = list(range(10_000))


class Clock:
    """A clock that moves on each time it is read."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 1
        return self.now


@pytest.mark.parametrize(
    "text",
    [
        "object.all(x, object.all(y, x + y >= 0))",
        "object.map(x, object.map(y, y))",
        "object.map(x, {'a': x}).distinct().size() > 0",
        "sets.equivalent(object, object)",
        "lists.range(1000000).size() > 0",
        "object.all(x, x in object)",
        "object.all(x, [1, 2, 3].all(y, [1, 2, 3].all(z, object.size() + x + y + z > 0)))",
    ],
)
def test_the_cost_is_limited(text):
    with pytest.raises(CostExceededError):
        KUBERNETES.compile(text).evaluate({"object": NUMBERS})


def test_errors_of_limits_are_not_absorbed():
    with pytest.raises(CostExceededError):
        KUBERNETES.compile("lists.range(10).all(x, x < 0) || true").evaluate({}, limit=1)
    with pytest.raises(CostExceededError):
        KUBERNETES.compile("object.all(x, object.all(y, x >= 0)) || true").evaluate(
            {"object": NUMBERS}
        )


def test_a_bound_that_is_exceeded_is_counted_again():
    # The upper bound of the ordinary evaluation has both branches; Kubernetes counts the one taken.
    text = "object.all(x, x >= 0 || [x, x, x, x].map(y, y).size() > object.size())"
    assert KUBERNETES.compile(text).evaluate({"object": NUMBERS}, limit=100_000) is True


@pytest.mark.parametrize(
    "text",
    [
        "object.all(x, object.all(y, x + y >= 0))",
        "object.all(x, object == object)",
        "object.filter(x, x in object).size() > 0",
        "object.map(x, object.indexOf(x)).size() > 0",
        "object.transformMap(i, v, object.exists(x, x < 0)).size() > 0",
    ],
)
def test_the_deadline_interrupts(text):
    with pytest.raises(TimeExceededError):
        KUBERNETES.compile(text).evaluate(
            {"object": NUMBERS}, limit=10**12, deadline=20, clock=Clock()
        )


@pytest.mark.parametrize(
    "text",
    [
        "cel.bind(a, object + object, cel.bind(b, a + a + a + a + a + a + a + a, cel.bind(c, b + b + b + b + b + b + b + b, c.size())))",
        "object.map(x, object).flatten().size()",
        "cel.bind(a, 'aaaaaaaaaa'.replace('a', 'aaaaaaaaaa'), cel.bind(b, a.replace('a', a), cel.bind(c, b.replace('a', b), c.size())))",
        "object.map(x, 'x'.replace('x', 'y')).map(x, object.map(y, 'aaaaaaaaaaaaaaaaaaaa').join()).join().size()",
    ],
)
def test_values_have_a_bound(text):
    with pytest.raises(CelError, match="too l"):
        KYVERNO.compile(text).evaluate({"object": NUMBERS}, limit=10**12)


def test_long_expressions_are_read_in_linear_time():
    assert KUBERNETES.compile("[" + "1," * 30_000 + "].size()").evaluate({}) == 30_000
    assert KUBERNETES.compile("!" * 60_000 + "true").evaluate({}) is True
    for text in ("(" * 64_000, "'" * 64_001, "1" * 100_001, "a." * 30_000, "-" * 64_000):
        with pytest.raises(CelCompileError):
            KUBERNETES.compile(text)


def test_repeated_targets_are_compiled_once():
    text = "optional.of(1)" + ".optMap(x, x + 1)" * 100 + ".value()"
    assert KUBERNETES.compile(text).evaluate({}) == 101


def test_shared_parts_are_compared_once():
    left, right = [1], [1]
    for _ in range(60):
        left, right = [left, {"a": left}], [right, {"a": right}]
    assert equal(left, right)
    assert not equal([left, 1], [right, 2])
