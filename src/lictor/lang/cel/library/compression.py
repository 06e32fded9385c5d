"""Kyverno's `gzip.compress(text)` and `gzip.decompress(bytes)`."""

import struct
import zlib

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function
from lictor.lang.json_type import name_cel_type
from lictor.raw import Json

_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
# A few kilobytes can unpack to gigabytes.
_LARGEST = 16 << 20


def _compress(value: Json) -> bytes:
    if not isinstance(value, str):
        raise FunctionError(f"unsupported type conversion from '{name_cel_type(value)}' to string")
    data = value.encode()
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(data) + packer.flush()
    return _HEADER + packed + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _decompress(data: bytearray) -> str:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(bytes(data), _LARGEST)
    except zlib.error:
        raise FunctionError("gzip: invalid header") from None
    if len(text) == _LARGEST:
        raise FunctionError("gzip: the text is too large")
    if not unpacker.eof:
        raise FunctionError("unexpected EOF")
    return text.decode("utf-8", "replace")


OVERLOADS = (
    function("gzip.compress", "dyn -> bytes", _compress),
    function("gzip.decompress", "bytes -> string", _decompress),
)
