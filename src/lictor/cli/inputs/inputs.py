"""Opens the files that resource paths name, and reads ranges of their bytes.

A file is read by ranges, also by worker processes. Data that can be read only once (a pipe,
compressed data) is copied to an unnamed temporary file first.
"""

import os
import stat
import weakref
from collections.abc import Iterator
from enum import StrEnum
from typing import BinaryIO, Final, Protocol

import msgspec

from lictor.cli.inputs.sources import STDIN, fetch_url, is_url, open_stdin
from lictor.core.errors import LoadError
from lictor.core.files import refuse_devices

# A file up to this size is read at once and kept, up to a total of KEPT_BYTES.
KEPT_FILE_BYTES: Final = 256 << 10
KEPT_BYTES: Final = 8 << 20
# A pipe may never end.
MAX_COPIED_BYTES: Final = 16 << 30
COPY_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 512
_CHANGED = "changed while it was read: give a file that no program writes to"


class Input(Protocol):
    """Bytes that can be read in any order, under the name that errors show."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, start: int, end: int) -> bytes: ...

    def part(self, path: str, start: int, size: int) -> "Input": ...


class KeptInput(msgspec.Struct, frozen=True):
    """Bytes in memory."""

    path: str
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, start: int, end: int) -> bytes:
        return self.content if (start, end) == (0, self.size) else self.content[start:end]

    def part(self, path: str, start: int, size: int) -> Input:
        """Return a range of it under another path."""
        return KeptInput(path, self.content[start : start + size])


class FileInput(msgspec.Struct, frozen=True):
    """A regular file, or a part of one; opened for each read, so that processes can share it."""

    path: str
    file: str
    size: int
    # Shows whether the file has changed since; see `_identify`.
    identity: tuple[int, ...]
    # The start of the part.
    begin: int = 0

    def read(self, start: int, end: int) -> bytes:
        try:
            descriptor = os.open(self.file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise LoadError(error.strerror or str(error), where=self.path) from error
        try:
            if _identify(os.fstat(descriptor)) != self.identity:
                raise LoadError(_CHANGED, where=self.path)
            return read_range(descriptor, self.begin + start, self.begin + end, self.path)
        finally:
            os.close(descriptor)

    def part(self, path: str, start: int, size: int) -> Input:
        """Return a range of it under another path."""
        return msgspec.structs.replace(self, path=path, begin=self.begin + start, size=size)


def _identify(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _read_at(descriptor: int, size: int, start: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, start)
    # Systems without pread have no forked processes that share the position.
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.read(descriptor, size)


def read_range(descriptor: int, start: int, end: int, path: str) -> bytes:
    """Return all bytes from start to end."""
    parts: list[bytes] = []
    try:
        while start < end and (part := _read_at(descriptor, end - start, start)):
            parts.append(part)
            start += len(part)
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=path) from error
    if start < end:
        raise LoadError(_CHANGED, where=path)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class CopyBounds(msgspec.Struct, frozen=True):
    """How much may be copied, and the error for more."""

    limit: int = MAX_COPIED_BYTES
    refusal: str = f"larger than {MAX_COPIED_BYTES} bytes"


class TemporaryCopy:
    """An unnamed file that bytes are copied to; it is removed when it is no longer used."""

    def __init__(self) -> None:
        # Imported here: most runs copy nothing, and start-up time matters.
        import tempfile

        with tempfile.TemporaryFile(dir=choose_folder()) as file:
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        self.size = 0

    def __reduce__(self) -> str:
        # Only forked processes have the same file descriptor.
        raise TypeError("a temporary copy can be read by forked processes only")

    def add(self, stream: BinaryIO, path: str, bounds: CopyBounds) -> None:
        """Copy the rest of a stream."""
        while part := stream.read(COPY_BYTES):
            self.write(part, path)
            if self.size > bounds.limit:
                raise LoadError(bounds.refusal, where=path)

    def write(self, part: bytes, where: str) -> None:
        rest = memoryview(part)
        try:
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
        except OSError as error:
            advice = f"could not be copied to {choose_folder()}; TMPDIR names another folder"
            raise LoadError(f"{error.strerror}: {advice}", where=where) from error
        self.size += len(part)

    def part(self, path: str, start: int = 0) -> "CopiedInput":
        """Return what was copied after the first `start` bytes."""
        return CopiedInput(path, self, self.size - start, start)


class CopiedInput(msgspec.Struct, frozen=True):
    """A range of a temporary file; forked processes share it."""

    path: str
    copy: TemporaryCopy
    size: int
    begin: int = 0

    def read(self, start: int, end: int) -> bytes:
        first = self.begin + start
        return read_range(self.copy.descriptor, first, self.begin + end, self.path)

    def part(self, path: str, start: int, size: int) -> Input:
        """Return a range of it under another path."""
        return msgspec.structs.replace(self, path=path, begin=self.begin + start, size=size)


def choose_folder() -> str:
    """Return the folder for temporary files: not `/tmp` if possible, which may be memory."""
    import tempfile

    is_set = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    roomy = "/var/tmp"  # noqa: S108  (files there have no name)
    return roomy if not is_set and os.access(roomy, os.W_OK) else tempfile.gettempdir()


def copy_stream(
    stream: BinaryIO, path: str, bounds: CopyBounds | None = None, *, keep: bool = True
) -> Input:
    """Read a stream; with `keep`, a short one stays in memory."""
    part = stream.read(KEPT_FILE_BYTES + 1)
    if keep and len(part) <= KEPT_FILE_BYTES:
        return KeptInput(path, part)
    copy = TemporaryCopy()
    copy.write(part, path)
    copy.add(stream, path, bounds or CopyBounds())
    return copy.part(path)


def open_input(path: str, *, keep: bool = True) -> Input:
    """Open a file, a URL or stdin; with `keep`, a small file is read at once."""
    if path == STDIN:
        return copy_stream(open_stdin(), STDIN)
    if is_url(path):
        text = fetch_url(path)
        return KeptInput(text.path, text.content)
    try:
        found = os.stat(path)
        is_regular = stat.S_ISREG(found.st_mode)
        if not is_regular:
            refuse_devices(path, found)
        is_small = keep and found.st_size <= KEPT_FILE_BYTES
        # Virtual files of the kernel report a size of zero.
        if is_small or not is_regular or not found.st_size:
            with open(path, "rb") as stream:
                return copy_stream(stream, path, keep=keep)
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=path) from error
    return FileInput(path, path, found.st_size, _identify(found))


def read_windows(given: Input, start: int, end: int) -> Iterator[bytes]:
    """Return the bytes from start to end in parts that are small enough to be held."""
    for position in range(start, end, COPY_BYTES):
        yield given.read(position, min(position + COPY_BYTES, end))


class Packing(StrEnum):
    """Formats of archives and compressed files."""

    GZIP = "gzip"
    ZIP = "zip"
    TAR = "tar"


def find_packing(given: Input) -> Packing | None:
    """Return the format of an archive by its first bytes, which no text begins with."""
    head = given.read(0, min(_HEAD_BYTES, given.size))
    if head.startswith(b"\x1f\x8b"):
        return Packing.GZIP
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Packing.ZIP
    return Packing.TAR if head[257:262] == b"ustar" else None
