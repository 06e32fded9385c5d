"""Many objects in little memory: those that nobody has written lately rest as bytes.

A Pod is five times as large in memory as in JSON. Kinds of which there are few are left as they
are: they are read again and again.
"""

import zlib
from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar

import orjson

from lictor.raw import Json, JsonObject

Key = TypeVar("Key")

_FAST = 1
# So many objects of a kind are kept ready to read.
AWAKE = 256


class PackedObjects(MutableMapping[Key, JsonObject], Generic[Key]):
    """Objects by key; nobody may change one in place, as it may be a copy."""

    def __init__(self, awake: int = AWAKE) -> None:
        self._objects: dict[Key, JsonObject | bytes] = {}
        self._awake: OrderedDict[Key, None] = OrderedDict()
        self._most = awake

    def __getitem__(self, key: Key) -> JsonObject:
        found = self._objects[key]
        if isinstance(found, bytes):
            unpacked: JsonObject = unpack(found)
            return unpacked
        return found

    def __setitem__(self, key: Key, document: JsonObject) -> None:
        self._objects[key] = document
        self._awake[key] = None
        self._awake.move_to_end(key)
        if len(self._awake) > self._most:
            oldest, _ = self._awake.popitem(last=False)
            self._objects[oldest] = pack(self._objects[oldest])

    def __delitem__(self, key: Key) -> None:
        del self._objects[key]
        self._awake.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


def pack(value: Json) -> bytes:
    """JSON in little room."""
    return zlib.compress(orjson.dumps(value), _FAST)


def unpack(packed: bytes) -> Json:
    """What was packed."""
    return orjson.loads(zlib.decompress(packed))
