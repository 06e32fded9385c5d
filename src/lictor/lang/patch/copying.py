"""How much may an operation of a JSON Patch copy? A few copies into themselves fill any memory."""

from lictor.errors import TooLargeError
from lictor.raw import Json

# The API server copies no more with one patch.
MAX_COPY = 3 * 1024 * 1024
# What an element costs beside its text, roughly.
_ELEMENT = 8


def check_copy(value: Json) -> Json:
    """The same value; TooLargeError where it is larger than any copy needs to be."""
    left = MAX_COPY
    waiting = [value]
    while waiting:
        item = waiting.pop()
        left -= _ELEMENT
        if isinstance(item, str):
            left -= len(item)
        elif isinstance(item, dict):
            left -= sum(map(len, item))
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        if left < 0:
            raise TooLargeError("what a copy operation copies is too large")
    return value
