"""Many objects in little memory: those that nobody has written lately rest as compressed bytes.

A Pod is five times as large in memory as in JSON, and all Pods are much alike. Kinds of which there
are few are left as they are: they are read again and again.
"""

import zlib
from collections import OrderedDict
from collections.abc import Iterator, MutableMapping
from typing import Generic, TypeVar

import orjson

from lictor.raw import Json, JsonObject

Key = TypeVar("Key")

# So many objects of a kind are kept ready to read.
UNCOMPRESSED = 256
# For texts of a few thousand bytes a small window is as good as a large one, and far quicker.
_WINDOW = -12
_LEVEL = 1
_MEMORY = 4


class Compressor:
    """Packs JSON values that are like one another: the first becomes the model of all."""

    def __init__(self) -> None:
        self._model = b""

    def pack(self, value: Json) -> bytes:
        """The value in little room; only this packer can read it."""
        text = orjson.dumps(value)
        if not self._model:
            # orjson gives bytes with room for far more.
            self._model = memoryview(text)[: 1 << -_WINDOW].tobytes()
        packing = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=self._model)
        return packing.compress(text) + packing.flush()

    def unpack(self, packed: bytes) -> Json:
        """What was packed."""
        unpacking = zlib.decompressobj(_WINDOW, self._model)
        return orjson.loads(unpacking.decompress(packed))


class CompressedObjects(MutableMapping[Key, JsonObject], Generic[Key]):
    """Objects by key; nobody may change one in place, as it may be a copy."""

    def __init__(self, awake: int = UNCOMPRESSED) -> None:
        self._objects: dict[Key, JsonObject | bytes] = {}
        self._awake: OrderedDict[Key, None] = OrderedDict()
        self._most = awake
        self._packer = Compressor()

    def __getitem__(self, key: Key) -> JsonObject:
        found = self._objects[key]
        if isinstance(found, bytes):
            unpacked: JsonObject = self._packer.unpack(found)
            return unpacked
        return found

    def __setitem__(self, key: Key, document: JsonObject) -> None:
        self._objects[key] = document
        self._awake[key] = None
        self._awake.move_to_end(key)
        if len(self._awake) > self._most:
            oldest, _ = self._awake.popitem(last=False)
            self._objects[oldest] = self._packer.pack(self._objects[oldest])

    def __delitem__(self, key: Key) -> None:
        del self._objects[key]
        self._awake.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)
