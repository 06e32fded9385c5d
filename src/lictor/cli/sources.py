"""Where do policies and resources come from? Paths, globs, stdin and URLs become named bytes."""

import glob
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from lictor.cli.offline.repositories import GitAccess, is_repository_url, list_repository_files
from lictor.errors import LoadError, UsageError

YAML_ENDINGS = (".yaml", ".yml")
STDIN = "-"
# A file of this size is a mistake; a reader without a limit is a way to kill a pipeline.
MAX_BYTES = 1 << 30
MAX_FETCHED_BYTES = 64 << 20
FETCH_TIMEOUT_SECONDS = 30.0


class Text(msgspec.Struct, frozen=True):
    """The bytes of one file, with the name that errors show."""

    path: str
    content: bytes


class PolicySource(msgspec.Struct, frozen=True):
    """How policy paths are read: credentials and branch for repositories."""

    git: GitAccess = msgspec.field(default_factory=GitAccess)


def is_url(path: str) -> bool:
    """Whether a path names something on the network."""
    return path.startswith(("http://", "https://"))


def read_file(path: str) -> Text:
    """Read one file; an error names it."""
    try:
        size = os.stat(path).st_size
        if size > MAX_BYTES:
            raise LoadError(f"larger than {MAX_BYTES} bytes", where=path)
        with open(path, "rb") as stream:
            return Text(path, stream.read())
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=path) from error


def read_stdin() -> Text:
    """Read what is piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("'-' means standard input, but nothing is piped in")
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise LoadError(f"larger than {MAX_BYTES} bytes", where="standard input")
    return Text(STDIN, content)


def fetch_url(url: str) -> Text:
    """Fetch a file by HTTP; an error names the URL."""
    if not is_url(url):
        raise UsageError(f"{url}: only http and https URLs can be fetched")
    # Loaded on first use: most runs read files only, and these cost more than a small run.
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_SECONDS) as answer:  # noqa: S310
            content: bytes = answer.read(MAX_FETCHED_BYTES + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise LoadError(f"could not be fetched ({reason})", where=url) from error
    if len(content) > MAX_FETCHED_BYTES:
        raise LoadError(f"larger than {MAX_FETCHED_BYTES} bytes", where=url)
    return Text(url, content)


def expand_glob(path: str) -> list[str]:
    """The paths a pattern names, in order; a path that exists is itself, whatever its letters."""
    if os.path.lexists(path) or not glob.has_magic(path):
        return [path]
    return sorted(glob.glob(path, recursive=True)) or [path]


def list_policy_files(path: str) -> Iterator[str]:
    """A file, or all YAML files below a folder in the order of their names; hidden ones never."""
    if not os.path.isdir(path):
        yield path
        return
    for name in _list_folder(path):
        below = os.path.join(path, name)
        if name.startswith("."):
            continue
        if os.path.isdir(below):
            yield from list_policy_files(below)
        elif name.endswith(YAML_ENDINGS):
            yield below


def list_resource_files(path: str) -> list[str]:
    """A file, or the YAML files of a folder (not of the folders below it) in order."""
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(path, n) for n in _list_folder(path) if n.endswith(YAML_ENDINGS)]


def read_policies(paths: Iterable[str], source: PolicySource | None = None) -> Iterator[Text]:
    """Read every policy file that the paths name."""
    access = (source or PolicySource()).git
    for given in paths:
        if given == STDIN:
            yield read_stdin()
        elif is_repository_url(given, branch=access.branch):
            yield from map(read_file, list_repository_files(given, access, YAML_ENDINGS))
        elif is_url(given):
            yield fetch_url(given)
        else:
            for path in expand_glob(given):
                yield from map(read_file, list_policy_files(path))


def locate_resources(paths: Iterable[str]) -> Iterator[str]:
    """The files, URLs and stdin that resource paths name; nothing is read yet."""
    for given in paths:
        if given == STDIN or is_url(given):
            yield given
            continue
        for path in expand_glob(given):
            yield from list_resource_files(path)


def read_any(path: str) -> Text:
    """Read a file, a URL or stdin."""
    if path == STDIN:
        return read_stdin()
    return fetch_url(path) if is_url(path) else read_file(path)


def resolve_path(path: str, folder: Path) -> str:
    """A path that a test file names, seen from the folder of that file."""
    return path if is_url(path) or os.path.isabs(path) else os.path.join(folder, path)


def _list_folder(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=path) from error
