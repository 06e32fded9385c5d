"""What lies in a compressed archive? Bounded at every step, as anybody may have packed it."""

import re
import zlib
from collections.abc import Iterator

from lictor.errors import EvaluationError

# Annotations hold 256 KiB at most; well packed text of that size is a few times as long.
MAX_SIZE = 4 << 20
_MAX_PIECES = 64

_BLOCK = 512
_NAME, _SIZE, _SUM = slice(0, 100), slice(124, 136), slice(148, 156)
_TYPE, _MAGIC, _PREFIX = 156, slice(257, 263), slice(345, 500)
_FILE, _FOLDER, _LONG_NAME, _RECORDS = "0", "5", "L", "x"
_RECORD = re.compile(rb"([0-9]{1,8}) ")


def unpack_gzip(data: bytes) -> bytes:
    """What was compressed; ValueError where it is not gzip. What is too much is an error."""
    found = bytearray()
    for _ in range(_MAX_PIECES):
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            found += unpacker.decompress(data, MAX_SIZE - len(found) + 1)
        except zlib.error as error:
            raise ValueError("gzip: invalid header") from error
        if len(found) > MAX_SIZE:
            raise EvaluationError(f"the message unpacks to more than {MAX_SIZE >> 20} MiB")
        if not unpacker.eof:
            raise ValueError("unexpected EOF")
        data = unpacker.unused_data
        if not data:
            return bytes(found)
    raise EvaluationError(f"the message is packed in more than {_MAX_PIECES} pieces")


def read_archive(data: bytes) -> dict[str, bytes]:
    """The files of a tar archive by name, later ones in place of earlier; ValueError for others."""
    files: dict[str, bytes] = {}
    for kind, name, content in _read_entries(data):
        if name.startswith(".."):
            continue
        if kind == _FILE:
            files[_clean(name)] = content
        elif kind != _FOLDER:
            raise ValueError(f"faced uknown type {kind} in {name}")
    return files


def _clean(name: str) -> str:
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _read_entries(data: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Each entry's type, name and content; entries that only name the next one are folded in."""
    position, long_name = 0, ""
    while header := data[position : position + _BLOCK]:
        if len(header) < _BLOCK:
            raise ValueError("unexpected EOF")
        if not any(header):
            return
        size = _read_header_size(header)
        start = position + _BLOCK
        content = data[start : start + size]
        if len(content) < size:
            raise ValueError("unexpected EOF")
        position = start + -(-size // _BLOCK) * _BLOCK
        kind = _read_kind(header)
        if kind == _LONG_NAME:
            long_name = _read_text(content)
        elif kind == _RECORDS:
            long_name = _read_path(content) or long_name
        else:
            yield kind, long_name or _read_name(header), content
            long_name = ""


def _read_header_size(header: bytes) -> int:
    blank = header[: _SUM.start] + b" " * 8 + header[_SUM.stop :]
    if _read_octal(header[_SUM]) != sum(blank):
        raise ValueError("archive/tar: invalid tar header")
    return _read_octal(header[_SIZE])


def _read_octal(field: bytes) -> int:
    # Sizes beyond eight gigabytes have another notation, which nothing in here can need.
    text = field.strip(b" \0")
    if not re.fullmatch(rb"[0-7]*", text):
        raise ValueError("archive/tar: invalid tar header")
    return int(text or b"0", 8)


def _read_kind(header: bytes) -> str:
    kind = chr(header[_TYPE])
    if kind not in ("\0", _FILE):
        return kind
    return _FOLDER if _read_name(header).endswith("/") else _FILE


def _read_name(header: bytes) -> str:
    name = _read_text(header[_NAME])
    prefix = _read_text(header[_PREFIX]) if header[_MAGIC] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _read_text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _read_path(records: bytes) -> str:
    """The path in records of the form `LENGTH KEY=VALUE`; a file in pieces is refused."""
    path = ""
    while records:
        found = _RECORD.match(records)
        length = int(found[1]) if found else 0
        if found is None or not found.end() < length <= len(records):
            raise ValueError("archive/tar: invalid tar header")
        key, _, value = records[found.end() : length - 1].partition(b"=")
        if key.startswith(b"GNU.sparse.") or key == b"size":
            raise ValueError("archive/tar: invalid tar header")
        path = value.decode("utf-8", "replace") if key == b"path" else path
        records = records[length:]
    return path
