"""How large is a value when it is written out, and is there memory for it?

`{a: v, b: v}` costs next to nothing in memory, and thirty of them inside each other stand for a
billion copies. Whoever writes, compares or copies such a value would never come to an end, so that
values that expressions make are measured first. What was read from JSON needs no measuring.

Where a process has a memory limit, native code that asks for more gets nothing; orjson and msgspec
then end the process instead of raising MemoryError. Whoever writes values of policies asks first.
"""

import mmap
from typing import Final

from lictor.core.errors import TooLargeError
from lictor.core.raw import Json

# Also for small values, as others may have taken everything.
_LEAST: Final = 1024 * 1024
# While a buffer is doubled there are two of them, and what is written may be encoded and written
# again into something larger; what is measured is no more than a rough size.
_TIMES: Final = 8


def ensure_room(value: Json) -> int:
    """Roughly the bytes that it will be when written out.

    MemoryError where it could not be written, TooLargeError beyond all limits.
    """
    size = measure_written(value)
    try:
        # Asked for and given back untouched: this costs some microseconds, and no memory.
        mmap.mmap(-1, _LEAST + size * _TIMES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        raise MemoryError("no room to write a value out") from None
    return size


# No object that an API server takes is half as large.
MAX_WRITTEN: Final = 8 * 1024 * 1024
# What an element costs beside its text, roughly.
_ELEMENT = 8


def check_written(value: Json) -> Json:
    """The same value; TooLargeError where it would be too large when written out."""
    if isinstance(value, (dict, list)):
        _measure(value, {})
    return value


def measure_written(value: Json) -> int:
    """Roughly how many bytes it is when written out; TooLargeError beyond `MAX_WRITTEN`."""
    if isinstance(value, (dict, list)):
        return _measure(value, {})
    return _ELEMENT + (len(value) if isinstance(value, str) else 0)


def _measure(value: Json, known: dict[int, int]) -> int:
    """`known` are the sizes of objects and lists by identity: each is looked at only once."""
    size = known.get(id(value))
    if size is not None:
        return size
    size = _ELEMENT * (1 + len(value))
    items = value
    if isinstance(value, dict):
        size += len("".join(map(str, value)))
        items = value.values()
    for item in items:
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, (dict, list, tuple)):
            size += _measure(item, known)
            if size > MAX_WRITTEN:
                raise _too_large()
    if size > MAX_WRITTEN:
        raise _too_large()
    known[id(value)] = size
    return size


def _too_large() -> TooLargeError:
    return TooLargeError(f"a value is larger than {MAX_WRITTEN >> 20} MiB when it is written out")
