"""Documents with variables, compiled once for each way in which requests fill them in."""

from collections.abc import Callable
from typing import TypeVar

import orjson

from lictor.lang.written_size import ensure_room
from lictor.raw import Json

Made = TypeVar("Made")

_MAX_FILLED = 64


def remember_compiled(compile_one: Callable[[Json], Made]) -> Callable[[Json], Made]:
    """The same compiler, which knows the last few documents that it was given."""
    known: dict[bytes, Made] = {}

    def compile_filled(filled: Json) -> Made:
        ensure_room(filled)
        try:
            key = orjson.dumps(filled)
        except TypeError:
            # Not what a file can hold, such as a number beyond 64 bits; rare, so made anew.
            return compile_one(filled)
        made = known.get(key)
        if made is None:
            if len(known) >= _MAX_FILLED:
                known.clear()
            made = known[key] = compile_one(filled)
        return made

    return compile_filled
