"""Lists the files of a path and reads them. The only code that walks folders.

Reads are bounded. Pipes and devices are opened only if named explicitly, never found in a folder.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, TypeAlias

from lictor.core.errors import LoadError

YAML_ENDINGS: Final = (".yaml", ".yml")
OBJECT_ENDINGS: Final = (*YAML_ENDINGS, ".json")
# A larger file is a mistake; reading without a limit could exhaust a pipeline's memory.
MAX_BYTES: Final = 1 << 30
# Credentials in a URL; a password may contain a slash, as Amazon's do. Bounded: linear.
# re: bounded - each part has at most 512 characters
LOGIN: Final = re.compile(
    r"(?<=://)(?:[^\s/@:]{0,256}:(?!\d{1,5}(?:/|$))[^\s@]{0,512}|[^\s/@]{1,512})@"
)
_CHUNK_BYTES: Final = 1 << 20

# Whether to include a file or folder of this name.
TakesName: TypeAlias = Callable[[str], bool]


def is_visible(name: str) -> bool:
    """Whether a name does not begin with a dot."""
    return not name.startswith(".")


def is_yaml(name: str) -> bool:
    """Whether this is the name of a YAML file that is not hidden."""
    return name.endswith(YAML_ENDINGS) and is_visible(name)


def is_object_file(name: str) -> bool:
    """Whether this is the name of a YAML or JSON file that is not hidden."""
    return name.endswith(OBJECT_ENDINGS) and is_visible(name)


def list_files(path: str, takes: TakesName, enters: TakesName = is_visible) -> Iterator[str]:
    """The path itself, or the files below it sorted by name.

    A link to a folder is followed, but no folder is entered twice, nor one that contains the start.
    """
    if os.path.isdir(path):
        yield from walk_folder(path, takes, enters, follow_links=True)
    else:
        yield path


def walk_folder(
    folder: str, takes: TakesName, enters: TakesName = is_visible, *, follow_links: bool = False
) -> Iterator[str]:
    """The files below a folder, sorted by name; raises LoadError for what is no file."""
    walk = _Walk(folder, follow_links=follow_links)
    # A stack instead of recursion: folders can nest deeper than Python's call stack.
    waiting = [os.path.join(folder, name) for name in reversed(list_names(folder))]
    while waiting:
        path = waiting.pop()
        name = os.path.basename(path)
        if _is_folder(path):
            if enters(name) and walk.may_enter(path):
                below = reversed(list_names(path))
                waiting.extend(os.path.join(path, each) for each in below)
        elif takes(name):
            check_regular(path)
            yield path


def _is_folder(path: str) -> bool:
    """Raises LoadError if the type is unknown: files below would be missed silently."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        # A dangling link is no folder.
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return False
        raise LoadError(error.strerror or str(error), where=path) from error


class _Walk:
    """The folders entered so far."""

    def __init__(self, folder: str, *, follow_links: bool) -> None:
        self._start = os.path.realpath(folder)
        self._entered = {self._start}
        self._follow_links = follow_links

    def may_enter(self, path: str) -> bool:
        if os.path.islink(path) and not self._follow_links:
            return False
        real = os.path.realpath(path)
        # A folder above the start contains the start: a loop, or the whole disk.
        if real in self._entered or is_within(self._start, real):
            return False
        self._entered.add(real)
        return True


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or below it; both absolute and resolved."""
    return os.path.commonpath((path, folder)) == folder


def list_names(folder: str) -> list[str]:
    """The names in a folder, in order."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=folder) from error


def check_regular(path: str) -> None:
    """Raise LoadError for a pipe, a device or a socket, without opening it."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=path) from error
    if not stat.S_ISREG(mode):
        raise LoadError(f"is {_describe_mode(mode)}, not a regular file", where=path)


def read_bytes(path: str) -> bytes:
    """The content of a file or of a pipe such as `<(command)`; errors name it."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            refuse_devices(path, found)
        if found.st_size > MAX_BYTES:
            raise LoadError(f"larger than {MAX_BYTES} bytes", where=path)
        with open(path, "rb") as stream:
            is_sized = stat.S_ISREG(found.st_mode) and found.st_size
            return stream.read() if is_sized else read_bounded(stream, path)
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=path) from error


def read_bounded(stream: BinaryIO, where: str) -> bytes:
    """Everything in a stream of unknown length."""
    chunks = []
    size = 0
    while chunk := stream.read(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BYTES:
            raise LoadError(f"larger than {MAX_BYTES} bytes", where=where)
    return b"".join(chunks)


def refuse_devices(path: str, found: os.stat_result) -> None:
    """Raise LoadError for a device other than `/dev/null`."""
    is_device = stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)
    # Other devices never end, or are a terminal.
    if is_device and found.st_rdev != os.stat(os.devnull).st_rdev:
        raise LoadError("is a device, not a file", where=path)


def _describe_mode(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a folder" if stat.S_ISDIR(mode) else "a device"


def look_at(path: str) -> tuple[int, ...]:
    """A value that changes when the file or a link to it changes; empty if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
