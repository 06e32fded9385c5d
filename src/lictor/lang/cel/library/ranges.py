"""`lists.range(n)`, of which one evaluation may make only so much: the engine would take any n."""

from contextvars import ContextVar

from lictor.errors import FunctionError, TooLargeError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.rewriting import RANGE

_MOST = 20_000


# How many elements the evaluation that runs has made so far.
spent: ContextVar[int] = ContextVar("spent", default=0)


def _make(length: int) -> list[int]:
    if length < 0:
        raise FunctionError("lists.range: size must be non-negative")
    made = spent.get() + length
    spent.set(made)
    if made > _MOST:
        raise TooLargeError("operation cancelled: actual cost limit exceeded")
    return list(range(length))


OVERLOADS = (function(f"lists.{RANGE}", "int -> list<int>", _make),)
