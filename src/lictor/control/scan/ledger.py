"""Which objects have been judged in which state? Sixteen bytes for each, however many there are."""

import threading
from array import array
from hashlib import blake2b

_EMPTY = 0
_GRAVE = 1
_FIRST_SIZE = 1 << 10


def hash_text(*parts: str | bytes) -> int:
    """Sixty-three bits that stand for some text; never 0 or 1."""
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return (int.from_bytes(digest.digest(), "big") >> 1) | 2


class Ledger:
    """UID -> the state it was judged in, and whether it has a report. Open addressing.

    Several threads may use it at once: kinds are judged side by side.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = array("Q", bytes(8 * _FIRST_SIZE))
        self._values = array("Q", bytes(8 * _FIRST_SIZE))
        self._used = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, uid: str) -> tuple[int, bool] | None:
        """The state, and whether there is a report."""
        key = hash_text(uid)
        with self._lock:
            found = self._find(key)
            if found is None:
                return None
            value = self._values[found]
        return value >> 1, bool(value & 1)

    def put(self, uid: str, state: int, *, reported: bool) -> None:
        """Note in which state an object was judged."""
        key = hash_text(uid)
        value = (state << 1 | reported) & 0xFFFFFFFFFFFFFFFF
        with self._lock:
            found = self._find(key)
            if found is not None:
                self._values[found] = value
                return
            if self._used * 3 >= len(self._keys) * 2:
                self._grow()
            self._insert(key, value)
            self._count += 1

    def remove(self, uid: str) -> None:
        """Forget an object."""
        key = hash_text(uid)
        with self._lock:
            found = self._find(key)
            if found is not None:
                self._keys[found] = _GRAVE
                self._count -= 1

    def adopt(self, other: "Ledger") -> None:
        """Take what another one says in the place of all that this one does."""
        with self._lock:
            self._keys, self._values = other._keys, other._values  # noqa: SLF001  (of its own class)
            self._used, self._count = other._used, other._count  # noqa: SLF001

    def _find(self, key: int) -> int | None:
        mask = len(self._keys) - 1
        place = key & mask
        while (there := self._keys[place]) != _EMPTY:
            if there == key:
                return place
            place = (place + 1) & mask
        return None

    def _insert(self, key: int, value: int) -> None:
        mask = len(self._keys) - 1
        place = key & mask
        while self._keys[place] != _EMPTY:
            place = (place + 1) & mask
        self._keys[place] = key
        self._values[place] = value
        self._used += 1

    def _grow(self) -> None:
        """A table with room, without the graves; no list in between, as there may be millions."""
        keys, values = self._keys, self._values
        size = len(keys)
        while self._count * 3 >= size:
            size *= 2
        self._keys = array("Q", bytes(8 * size))
        self._values = array("Q", bytes(8 * size))
        self._used = 0
        for place, key in enumerate(keys):
            if key not in (_EMPTY, _GRAVE):
                self._insert(key, values[place])
