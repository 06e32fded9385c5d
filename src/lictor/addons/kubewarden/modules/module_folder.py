"""The folder in which policy modules are kept: a tree shaped like their addresses, like kwctl's."""

import functools
import gzip
import os
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO, cast

import msgspec

from lictor.addons.kubewarden.modules.module_address import (
    UNFINISHED,
    ModuleAddress,
    locate_in_store,
    read_store_path,
)
from lictor.core.errors import LookupFailedError, ModuleError, UsageError

# Begins every binary module; what follows is the version of the format.
WASM_MAGIC = b"\x00asm"
_MOST_ENTRIES = 10_000
# Of an archive: what all of it unpacks to, and names that are too long for a plain header.
_MOST_UNPACKED = 4 * 2**30
_LONGEST_HEADER = 4096


class StoredModule(msgspec.Struct, frozen=True):
    """A module in the folder."""

    address: ModuleAddress
    path: Path
    size: int

    def compute_digest(self) -> str:
        """SHA-256 of the file, in hex."""
        return sha256(read_module_file(self.path, self.size)).hexdigest()


def find_cache_folder() -> Path:
    """Where programs keep what they can fetch again: XDG_CACHE_HOME, or .cache of the user."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(home):
        return Path(home)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        # A user without a home, as in containers.
        return Path(_make_folder().name)


@functools.cache
def _make_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for this process alone, which goes with it."""
    return tempfile.TemporaryDirectory(prefix="lictor-cache-")


def find_module_folder() -> Path:
    """kwctl's own folder, so that both know the same modules."""
    return find_cache_folder() / "kubewarden" / "store"


def read_module_file(path: Path, most_bytes: int) -> bytes:
    """The content of a module; LookupFailedError where there is none, or more than that."""
    try:
        # A pipe would block until a process writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LookupFailedError(f"{path} is no regular file")
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise LookupFailedError(f"{path}: {error.strerror or error}") from error
    if len(content) > most_bytes:
        raise LookupFailedError(f"{path} has more than {most_bytes} bytes")
    return content


def check_module(content: bytes, name: str) -> None:
    """ModuleError for what does not even begin as a module does."""
    if not content.startswith(WASM_MAGIC):
        raise ModuleError(f"{name} is no WebAssembly module")


class ModuleFolder:
    """Modules by address. A reader sees a whole file or none."""

    def __init__(self, folder: Path, module_bytes: int) -> None:
        self.path = folder
        self._module_bytes = module_bytes

    def read(self, address: ModuleAddress) -> bytes | None:
        """The module that was kept for an address; None where there is none."""
        if not address.is_kept:
            return None
        path = self.path / locate_in_store(address)
        return read_module_file(path, self._module_bytes) if path.is_file() else None

    def write(self, address: ModuleAddress, content: bytes) -> Path:
        """Keep a module; LookupFailedError where that cannot be done."""
        path = self.path / locate_in_store(address)
        try:
            write_whole(path, content)
        except OSError as error:
            raise LookupFailedError(f"{path} cannot be written: {error}") from error
        return path

    def list_modules(self) -> Iterator[StoredModule]:
        """All modules, in the order of their addresses."""
        for path in sorted(self.path.rglob("*"))[:_MOST_ENTRIES]:
            address = read_store_path(path.relative_to(self.path))
            if address is not None and path.is_file():
                yield StoredModule(address, path, path.stat().st_size)

    def find(self, address: ModuleAddress) -> StoredModule:
        """The module at an address; UsageError where it was never fetched."""
        path = self.path / locate_in_store(address)
        if not address.is_kept or not path.is_file():
            raise UsageError(f"Cannot find policy with uri: {address.text}")
        return StoredModule(address, path, path.stat().st_size)

    def find_by_digest(self, prefix: str) -> list[StoredModule]:
        """The modules whose SHA-256 begins so."""
        return [
            module for module in self.list_modules() if module.compute_digest().startswith(prefix)
        ]

    def remove(self, address: ModuleAddress) -> None:
        """Remove a module, and folders that are left empty."""
        found = self.find(address)
        found.path.unlink()
        for parent in found.path.parents:
            if parent == self.path:
                return
            try:
                parent.rmdir()
            except OSError:
                return

    def save(self, addresses: Iterable[ModuleAddress], archive: Path) -> None:
        """Write modules into a tar.gz with the same tree in it."""
        modules = [self.find(address) for address in addresses]
        try:
            with tarfile.open(archive, "w:gz") as file:
                for module in modules:
                    file.add(module.path, str(module.path.relative_to(self.path)))
        except OSError as error:
            raise UsageError(f"cannot write {archive}: {error}") from error

    def load(self, archive: Path) -> list[ModuleAddress]:
        """Take the modules of such an archive; nothing else that is in it is written anywhere."""
        try:
            with gzip.open(archive, "rb") as unpacked:
                stream = _BoundedStream(unpacked)
                # tarfile needs no more methods than these.
                with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:") as file:
                    return list(self._unpack(file, stream, archive))
        except (tarfile.TarError, EOFError, OSError, zlib.error, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot unpack file {archive}: {reason}") from error

    def _unpack(
        self, file: tarfile.TarFile, stream: "_BoundedStream", archive: Path
    ) -> Iterator[ModuleAddress]:
        for number, member in enumerate(file):
            if number >= _MOST_ENTRIES:
                raise UsageError(f"{archive} has more than {_MOST_ENTRIES} entries")
            if member.isdir():
                continue
            address = read_store_path(Path(PurePosixPath(member.name)))
            if address is None or not member.isreg() or member.issparse():
                raise UsageError(f"{archive}: {member.name[:200]!r} is no policy module")
            if member.size > self._module_bytes:
                raise UsageError(f"{archive}: {member.name} has {member.size} bytes")
            content = stream.read_module(member)
            check_module(content, f"{archive}: {member.name}")
            if len(content) != member.size:
                raise UsageError(f"{archive}: {member.name} is cut off")
            self.write(address, content)
            yield address


class _BoundedStream:
    """The unpacked bytes of an archive, for the reader of its headers; bounded.

    A few megabytes may unpack to terabytes. Headers are read whole, of any length, and
    looked through in a time that grows with the square of it.
    """

    def __init__(self, inner: gzip.GzipFile) -> None:
        self._inner = inner

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LONGEST_HEADER:
            raise tarfile.ReadError("it has a header that is too long")
        return self._inner.read(size)

    def read_module(self, entry: tarfile.TarInfo) -> bytes:
        """The content of an entry, whose size was looked at."""
        self.seek(entry.offset_data)
        return self._inner.read(entry.size)

    def seek(self, position: int) -> int:
        if position > _MOST_UNPACKED:
            raise tarfile.ReadError(f"it holds more than {_MOST_UNPACKED >> 30} GiB")
        return self._inner.seek(position)

    def tell(self) -> int:
        return self._inner.tell()


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file so that others see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
