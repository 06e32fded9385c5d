"""Numbers and texts as lengths of time, as conditions read them."""

import math

from lictor.lang.duration import NANOSECONDS
from lictor.lang.pattern.amount import read_duration
from lictor.raw import Json


def is_number(value: Json) -> bool:
    """Tell numbers from everything else, booleans above all."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def count_seconds(value: Json) -> int | None:
    """Take a number for whole seconds, and give them in nanoseconds; None for anything else."""
    if not is_number(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return int(value) * NANOSECONDS


def read_length(text: str) -> int | None:
    """Read a duration, in nanoseconds; a bare `0` may as well be a number, and is taken for one."""
    return None if text == "0" else read_duration(text)
