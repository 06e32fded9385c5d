"""Which queries are refused for the size that their answers could have."""

import pytest

from lictor.core.errors import CompileError
from lictor.core.evaluate.expressions import check_growth


def repeat(step, times):
    return " | ".join([step] * times)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "request.object.spec.[initContainers, containers][]",
        repeat("[@, @]", 9),
        "[" + ", ".join(["a"] * 500) + "]",
        "{" + ", ".join(f"k{n}: a" for n in range(500)) + "}",
        "join(', ', [" + ", ".join(["`1`"] * 20) + "])",
        " || ".join(["[a, b]"] * 50),
        "a[?[b, c] == `[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]`].d",
    ],
)
def test_what_is_taken(text):
    check_growth(text)


@pytest.mark.parametrize(
    "text",
    [
        repeat("[@, @]", 10),
        repeat("[@, @][]", 60),
        repeat("{a: @, b: @}", 60),
        repeat("map(&[@, @], to_array(@))", 60),
        repeat("[@, @]", 60) + " == `1`",
        f"a[?{repeat('[@, @]', 60)}]",
        f"length({repeat('[@, @]', 60)})",
        ".".join(["[@, @]"] * 11),
        "[" + ", ".join(["a"] * 1001) + "]",
    ],
)
def test_what_is_refused(text):
    with pytest.raises(CompileError, match="more than 1000 times"):
        check_growth(text)
