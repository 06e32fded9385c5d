"""Measures how large a value is when serialized, and whether there is memory for it.

`{a: v, b: v}` needs almost no memory, but thirty of them nested represent a billion copies.
Serializing, comparing or copying such a value would never end, so values from expressions are
measured first. Values parsed from JSON need no measuring.

In a process with a memory limit, orjson and msgspec end the process instead of raising MemoryError
if an allocation fails. Callers that serialize values of policies check first.
"""

import mmap
from typing import Final

from lictor.core.errors import TooLargeError
from lictor.core.raw import Json

# Also for small values, as other code may have used all memory.
_LEAST: Final = 1024 * 1024
# While a buffer is doubled there are two of them, and the text may be encoded and copied again; the
# measured size is only approximate.
_TIMES: Final = 8


def ensure_room(value: Json) -> int:
    """The approximate size in bytes when serialized.

    Raises MemoryError if it could not be serialized, TooLargeError beyond the limit.
    """
    size = measure_written(value)
    try:
        # Allocated and freed untouched: this takes microseconds, and no memory.
        mmap.mmap(-1, _LEAST + size * _TIMES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        raise MemoryError("not enough memory to serialize a value") from None
    return size


# No object that an API server accepts is half as large.
MAX_WRITTEN: Final = 8 * 1024 * 1024
# The approximate overhead of an element.
_ELEMENT = 8


def check_written(value: Json) -> Json:
    """The same value; raises TooLargeError if it would be too large when serialized."""
    if isinstance(value, (dict, list)):
        _measure(value, {})
    return value


def measure_written(value: Json) -> int:
    """The approximate serialized size in bytes; raises TooLargeError beyond `MAX_WRITTEN`."""
    if isinstance(value, (dict, list)):
        return _measure(value, {})
    return _ELEMENT + (len(value) if isinstance(value, str) else 0)


def _measure(value: Json, known: dict[int, int]) -> int:
    """`known` are the sizes of objects and lists by identity: each is measured only once."""
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
    return TooLargeError(f"a value is larger than {MAX_WRITTEN >> 20} MiB when serialized")
