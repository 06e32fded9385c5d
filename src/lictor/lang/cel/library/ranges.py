"""`lists.range(n)`, of which one evaluation may make only so much: the engine would take any n."""

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.rewriting import RANGE

_MOST = 100_000


class Spent:
    """What the evaluation that runs has made so far."""

    elements = 0


def _make(length: int) -> list[int]:
    if length < 0:
        raise FunctionError("lists.range: size must be non-negative")
    Spent.elements += length
    if Spent.elements > _MOST:
        raise FunctionError("operation cancelled: actual cost limit exceeded")
    return list(range(length))


OVERLOADS = (function(f"lists.{RANGE}", "int -> list<int>", _make),)
