"""Is there room to write a value out? The serializers in use do not survive it if there is none.

Where a process is held to a limit, native code that asks for more gets nothing; orjson and msgspec
then end the process instead of raising MemoryError. Whoever writes values of policies asks first.
"""

import mmap
from typing import Final

from lictor.lang.written_size import measure_written
from lictor.raw import Json

# Also for small values, as others may have taken everything.
_LEAST: Final = 1024 * 1024
# While a buffer is doubled there are two of them; what is measured is no more than a rough size.
_TIMES: Final = 4


def ensure_room(value: Json) -> None:
    """Raise MemoryError where this value could not be written, TooLargeError beyond all limits."""
    size = measure_written(value)
    try:
        # Asked for and given back untouched: this costs some microseconds, and no memory.
        mmap.mmap(-1, _LEAST + size * _TIMES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        raise MemoryError("no room to write a value out") from None
