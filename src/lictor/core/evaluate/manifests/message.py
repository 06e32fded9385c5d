"""Decodes the signed text of an annotation: compressed YAML with manifests."""

import re
import zlib
from base64 import b64decode
from collections.abc import Iterator

from lictor.core.errors import EvaluationError
from lictor.core.lang.yaml.build import parse_yaml_text
from lictor.core.raw import Json, JsonObject

# Annotations are at most 256 KiB; compressed text of that size expands a few times.
MAX_SIZE = 4 << 20
_MAX_PIECES = 64

_BLOCK = 512
_NAME, _SIZE, _SUM = slice(0, 100), slice(124, 136), slice(148, 156)
_TYPE, _MAGIC, _PREFIX = 156, slice(257, 263), slice(345, 500)
_FILE, _FOLDER, _LONG_NAME, _RECORDS = "0", "5", "L", "x"
_RECORD = re.compile(rb"([0-9]{1,8}) ")


def unpack_gzip(data: bytes) -> bytes:
    """Decompress; raises ValueError if it is not gzip, EvaluationError if it is too large."""
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
    """The files of a tar archive by name, the last of each name; ValueError for other types."""
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
    """Each entry's type, name and content; entries that only name the next one are merged."""
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
    # Sizes beyond eight gigabytes have another notation, which is not needed here.
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
    """The path in records of the form `LENGTH KEY=VALUE`; a split file is rejected."""
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


_FOREIGN = re.compile(r"[^A-Za-z0-9+/=]")
_PADDED = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_SUFFIXES = (".yaml", ".yml")
_SEPARATOR = b"---"


def decode_base64(text: str) -> bytes:
    """Go's base64, which ignores line ends; raises ValueError for invalid text."""
    plain = text.replace("\n", "").replace("\r", "")
    if len(plain) % 4 or not _PADDED.fullmatch(plain):
        foreign = _FOREIGN.search(plain)
        at = foreign.start() if foreign else len(plain) // 4 * 4
        raise ValueError(f"illegal base64 data at input byte {at}")
    return b64decode(plain)


def decode_message(text: str) -> bytes:
    """The signed bytes: the annotation's content, decompressed once if compressed."""
    try:
        packed = decode_base64(text)
    except ValueError as error:
        raise EvaluationError(
            f"failed to decode base64 message in the annotation: {error}"
        ) from None
    try:
        return unpack_gzip(packed)
    except ValueError:
        return packed


def read_manifests(message: bytes) -> list[JsonObject]:
    """The manifests in a signed text, which is YAML or a compressed archive of YAML files."""
    documents = list(_read_documents(message))
    if not documents:
        try:
            documents = list(_read_documents(_join_files(message)))
        except ValueError as error:
            raise EvaluationError(
                f"failed to read YAMLs in the gzipped message: {error}"
            ) from error
    return [body for body in documents if _is_manifest(body)]


def _is_manifest(body: Json) -> bool:
    return isinstance(body, dict) and isinstance(body.get("kind"), str) and bool(body["kind"])


def _join_files(message: bytes) -> bytes:
    step = "gzip.NewReader()"
    try:
        unpacked = unpack_gzip(message)
        step = "tarReader.Next()"
        files = read_archive(unpacked)
    except ValueError as error:
        raise ValueError(f"{step} failed while decompressing tar gz: {error}") from error
    ordered = sorted((name.split("/"), data) for name, data in files.items())
    found = [data for path, data in ordered if path[-1].endswith(_SUFFIXES)]
    return b"\n---\n".join(data for data in found if _begins_with_manifest(data))


def _begins_with_manifest(data: bytes) -> bool:
    return _is_manifest(next(_read_documents(data), None))


def _read_documents(data: bytes) -> Iterator[Json]:
    """The documents before the first broken one; later ones are ignored."""
    for part in _split(data):
        try:
            yield parse_yaml_text(part.decode())
        except ValueError:
            return


def _split(data: bytes) -> Iterator[bytes]:
    lines: list[bytes] = []
    for line in data.split(b"\n"):
        if line.startswith(_SEPARATOR):
            rest = line[len(_SEPARATOR) :].strip()
            if rest and not rest.startswith(b"#"):
                return
            if any(lines):
                yield b"\n".join(lines)
            lines = []
        else:
            lines.append(line)
    if any(lines):
        yield b"\n".join(lines)
