"""Opens the files in tar and zip archives, and gzip files, as inputs. Nothing is extracted.

The first bytes decide the format, not the name. The unpacked size, the growth and the number of
files are limited.
"""

import io
import struct
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from lictor.cli.inputs.inputs import (
    CopyBounds,
    Input,
    Packing,
    TemporaryCopy,
    copy_stream,
    find_packing,
)
from lictor.core.errors import LoadError
from lictor.core.files import OBJECT_ENDINGS, is_visible

if TYPE_CHECKING:
    from tarfile import TarInfo
    from zipfile import ZipInfo

    from _typeshed import WriteableBuffer

MEMBER_ENDINGS: Final = (*OBJECT_ENDINGS, ".jsonl", ".ndjson")
MAX_UNPACKED_BYTES: Final = 16 << 30
# Manifests shrink to a fiftieth; a larger growth is an attack.
MAX_GROWTH: Final = 250
# Below this size, any growth is accepted.
_HARMLESS_BYTES: Final = 16 << 20
MAX_MEMBERS: Final = 200_000
# Headers and directories of archives are read at once.
_MAX_READ: Final = 16 << 20
_BLOCK: Final = 512
# Not compressed, and deflate.
_ZIP_METHODS: Final = (0, 8)


def unpack(given: Input, *, keep: bool = True, max_members: int = MAX_MEMBERS) -> Iterator[Input]:
    """The files in an archive, in its order; anything else as it is."""
    packing = find_packing(given)
    if packing is Packing.GZIP:
        given = _decompress(given, keep=keep)
        packing = find_packing(given)
    if packing is Packing.ZIP:
        yield from _check_any(_read_zip(given, max_members), given.path)
    elif packing is Packing.TAR:
        yield from _check_any(_read_tar(given, max_members), given.path)
    else:
        yield given


def _check_any(found: Iterator[Input], archive: str) -> Iterator[Input]:
    is_empty = True
    for each in found:
        is_empty = False
        yield each
    if is_empty:
        endings = ", ".join(MEMBER_ENDINGS)
        raise LoadError(f"there are no files with resources in it ({endings})", where=archive)


def _check_count(count: int, limit: int, archive: str) -> None:
    if count > limit:
        raise LoadError(f"holds more than {limit} files", where=archive)


class _InputStream(io.RawIOBase):
    """An input as the file that readers of archives expect."""

    def __init__(self, given: Input) -> None:
        self._given = given
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._given.size}
        self._position = max(starts[whence] + offset, 0)
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(self._given.size - self._position, 0)
        size = left if size < 0 else min(size, left)
        if size > _MAX_READ:
            message = f"has a header or directory of {size} bytes, more than {_MAX_READ}"
            raise LoadError(message, where=self._given.path)
        found = self._given.read(self._position, self._position + size)
        self._position += size
        return found


def _open(given: Input) -> BinaryIO:
    return cast("BinaryIO", _InputStream(given))


def _choose_bounds(archive: Input) -> CopyBounds:
    """How many bytes may come out of an archive."""
    limit = min(max(archive.size * MAX_GROWTH, _HARMLESS_BYTES), MAX_UNPACKED_BYTES)
    refusal = (
        f"unpacks to more than {limit} bytes: an archive may grow {MAX_GROWTH} times, and to "
        f"{MAX_UNPACKED_BYTES} bytes; give its files instead"
    )
    return CopyBounds(limit, refusal)


def _decompress(given: Input, *, keep: bool) -> Input:
    import gzip
    import zlib

    bounds = _choose_bounds(given)
    try:
        # Headers are read byte by byte.
        held = io.BufferedReader(_InputStream(given))
        with gzip.GzipFile(fileobj=held) as stream:
            return copy_stream(cast("BinaryIO", stream), given.path, bounds, keep=keep)
    except EOFError as error:
        raise LoadError("the compressed file is cut off", where=given.path) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise LoadError(f"is no sound gzip file ({error})", where=given.path) from error


def _is_wanted(name: str, archive: str) -> bool:
    """Whether a file may contain resources. Raises LoadError for a path out of the archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise LoadError(f"{name[:200]!r} leads out of the archive", where=archive)
    is_wanted = name.endswith(MEMBER_ENDINGS) and all(map(is_visible, path.parts))
    # The name is shown with each result: it must not control a terminal.
    if is_wanted and not name.isprintable():
        raise LoadError(f"{name[:200]!r} has signs in its name that cannot be shown", where=archive)
    return is_wanted


def _read_tar(given: Input, max_members: int) -> Iterator[Input]:
    import tarfile

    try:
        with tarfile.open(fileobj=_open(given), mode="r:") as archive:
            count, offset = 0, -1
            while (member := archive.next()) is not None:
                count += 1
                _check_count(count, max_members, given.path)
                if member.size < 0 or archive.offset <= offset:
                    # A negative size would lead back to the same file, in an endless loop.
                    raise LoadError("is no sound tar archive (a size is wrong)", where=given.path)
                offset = archive.offset
                # tarfile would keep all of them.
                archive.members.clear()  # type: ignore[attr-defined]  # missing in the stubs
                if not member.isdir() and _is_wanted(member.name, given.path):
                    yield _take_member(given, member)
            _check_end(given, archive.offset)
    except RecursionError as error:
        # Each header that belongs to another one is a call.
        raise LoadError("is no sound tar archive (too many headers)", where=given.path) from error
    except (tarfile.TarError, struct.error, ValueError, EOFError) as error:
        raise LoadError(f"is no sound tar archive ({error})", where=given.path) from error


def _take_member(given: Input, member: "TarInfo") -> Input:
    path = f"{given.path}/{member.name}"
    if not member.isreg() or member.sparse is not None:
        raise LoadError("is a link or no plain file: it is not followed", where=path)
    if member.offset_data + member.size > given.size:
        raise LoadError("the archive is cut off in the middle of this file", where=path)
    return given.part(path, member.offset_data, member.size)


def _check_end(given: Input, offset: int) -> None:
    """Raise LoadError if the final block of zeros is missing: files may be missing, too."""
    block = given.read(min(offset, given.size), min(offset + _BLOCK, given.size))
    if len(block) < _BLOCK or block.strip(b"\0"):
        raise LoadError("the archive is cut off", where=given.path)


def _read_zip(given: Input, max_members: int) -> Iterator[Input]:
    import zipfile
    import zlib

    copy, bounds = TemporaryCopy(), _choose_bounds(given)
    try:
        with zipfile.ZipFile(_open(given)) as archive:
            _check_count(len(archive.infolist()), max_members, given.path)
            for member in archive.infolist():
                if member.is_dir() or not _is_wanted(member.filename, given.path):
                    continue
                path = f"{given.path}/{member.filename}"
                _check_member(member, path)
                start = copy.size
                with archive.open(member) as stream:
                    copy.add(cast("BinaryIO", stream), path, bounds)
                yield copy.part(path, start)
    # A ValueError is about a name that is no UTF-8.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        struct.error,
        ValueError,
        NotImplementedError,
    ) as error:
        raise LoadError(f"is no sound zip archive ({error})", where=given.path) from error


def _check_member(member: "ZipInfo", where: str) -> None:
    if member.flag_bits & 1:
        raise LoadError("is encrypted", where=where)
    if member.compress_type not in _ZIP_METHODS:
        raise LoadError("is compressed neither by deflate nor not at all", where=where)
    # The upper half holds the mode of Unix, where a link is 0o12.
    if member.external_attr >> 28 == 0o12:
        raise LoadError("is a link or no plain file: it is not followed", where=where)
