"""Kyverno's `random("[a-z]{5}")`: text made up to fit an expression."""

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.world import current_world
from lictor.lang.random_text import make_random_text


def _make(pattern: str = "[0-9a-z]{8}") -> str:
    if not pattern:
        return ""
    try:
        return make_random_text(pattern, current_world.get().choose)
    except ValueError as error:
        raise FunctionError(str(error)) from None


OVERLOADS = tuple(
    function(name, signature, _make)
    for name in ("random", "random.random")
    for signature in ("-> string", "string -> string")
)
