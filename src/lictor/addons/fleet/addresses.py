"""Which files do addresses name, in which store, and of which cluster?

Local paths and URLs are read as everywhere else. Any other address (`s3://`, `gs://`, `az://`) is
read through fsspec, with the credentials of the machine that reads. What people are shown holds no
credentials.
"""

import glob
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from lictor.cli.apply_plan import ADDRESS, is_address
from lictor.cli.inputs.resource_inputs import tell_unreadable
from lictor.cli.inputs.sources import (
    STDIN,
    hide_credentials,
    hide_secrets,
    is_url,
    locate_resources,
)
from lictor.core.errors import LictorError, LoadError, UsageError
from lictor.core.files import YAML_ENDINGS, is_visible

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Answer = TypeVar("Answer")

# Where a store tells whether a file is still the same; the first that is there counts.
_VERSION_FIELDS = ("ETag", "etag", "version", "generation", "mtime", "LastModified", "created")
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}


class InputFile(msgspec.Struct, frozen=True):
    """One file to judge, wherever it lies."""

    # As it is opened: may hold credentials, and is never shown.
    address: str
    # As people are told.
    name: str
    # None where nobody says before it is read.
    size: int | None = None
    # Another one means that the file has changed.
    version: str = ""


def list_inputs(
    paths: Iterable[str], say: Callable[[str], None] | None = None
) -> Iterator[InputFile]:
    """The files that paths name, in the order in which a run on one machine reads them."""
    for number, path in enumerate(paths):
        try:
            found = list(_list_one(path))
        except LictorError as error:
            if is_address(path):
                raise
            tell_unreadable(path, number, error, say)
            continue
        yield from found


def _list_one(path: str) -> Iterator[InputFile]:
    if path == STDIN:
        raise UsageError("standard input cannot be shared out: give files, folders or addresses")
    if is_url(path):
        yield InputFile(path, hide_credentials(path))
        return
    if is_address(path):
        yield from _list_stored(path)
        return
    for found in locate_resources((path,)):
        try:
            status = os.stat(found)
        except OSError as error:
            raise LoadError(error.strerror or str(error), where=found) from error
        # Seen from the folder of whoever reads, a relative path is another one.
        yield InputFile(os.path.abspath(found), found, status.st_size, str(status.st_mtime_ns))


# --- files in stores


def _list_stored(address: str) -> Iterator[InputFile]:
    shown = hide_credentials(address)
    files, path = _open_store(address)
    found = _ask(shown, address, lambda: _look_up(files, path))
    if not found:
        raise LoadError("no file is there, or no YAML file below it", where=shown)
    scheme = address.partition("://")[0]
    for name in sorted(found):
        full = name_stored(scheme, name, shown)
        size, version = _read_facts(found[name])
        yield InputFile(full, hide_credentials(full), size, version)


def name_stored(scheme: str, name: str, shown: str) -> str:
    """The address of a file that a store (`shown`) names."""
    if scheme == "file":
        return f"file://{name}"
    full = name if ADDRESS.match(name) else f"{scheme}://{name.lstrip('/')}"
    if not full.startswith(f"{scheme}://"):
        # Who fills a store does not choose what else is read here.
        raise LoadError(f"it names a file elsewhere: {hide_credentials(full)}", where=shown)
    return full


def _look_up(files: "AbstractFileSystem", path: str) -> dict[str, dict[str, Any]]:
    """The files of a pattern, or a file, or the YAML files below a folder; hidden ones never."""
    if glob.has_magic(path):
        found = files.glob(path, detail=True)
        return {name: facts for name, facts in found.items() if facts.get("type") == "file"}
    below: dict[str, dict[str, Any]] = files.find(path, detail=True)
    if list(below) == [path.rstrip("/")] or set(below) == {files.info(path)["name"]}:
        return below
    return {name: facts for name, facts in below.items() if _is_taken(name, path)}


def _is_taken(name: str, folder: str) -> bool:
    steps = posixpath.relpath(f"/{name.lstrip('/')}", f"/{folder.strip('/')}").split("/")
    return all(map(is_visible, steps)) and steps[-1].endswith(YAML_ENDINGS)


def _read_facts(facts: dict[str, Any]) -> tuple[int | None, str]:
    version = next((str(facts[name]) for name in _VERSION_FIELDS if facts.get(name)), "")
    size = facts.get("size")
    return (size if isinstance(size, int) else None), version


def _open_store(address: str) -> tuple["AbstractFileSystem", str]:
    scheme = address.partition("://")[0]
    shown = hide_credentials(address)
    if "::" in address:
        raise UsageError(f"{shown}: addresses within addresses (`::`) are not read")
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UsageError(
            f"{shown}: addresses need fsspec; install it with: pip install 'lictor[ray]'"
        ) from error
    try:
        files, path = url_to_fs(address)
    except ImportError as error:
        package = _PACKAGES.get(scheme, "the package that fsspec names")
        raise UsageError(
            f"{shown}: {scheme}:// needs {package}; install it with: pip install {package}"
        ) from error
    except ValueError as error:
        raise UsageError(f"{shown}: nothing is known that reads {scheme}://") from error
    return files, path


def _ask(shown: str, address: str, question: Callable[[], Answer]) -> Answer:
    """What a store answers; whatever goes wrong there is told without credentials."""
    try:
        return question()
    except FileNotFoundError as error:
        raise LoadError("no such file", where=shown) from error
    except PermissionError as error:
        raise LoadError("the store refuses access: check the credentials", where=shown) from error
    except Exception as error:  # noqa: BLE001  (each store has errors of its own)
        raise LoadError(_describe_fault(error, address), where=shown) from None


def _describe_fault(error: Exception, address: str) -> str:
    return hide_secrets(f"could not be read ({type(error).__name__}: {error})", address)


def read_stored(file: InputFile, start: int, end: int) -> bytes:
    """The bytes from start to end of a file in a store, as far as they are there."""
    if start >= end:
        return b""
    files, path = _open_store(file.address)

    def fetch() -> bytes:
        content: bytes = files.cat_file(path, start=start, end=end)
        return content

    return _ask(file.name, file.address, fetch)


# --- the clusters that files belong to

_PLACE = "{cluster}"
_PIECES = re.compile(r"(\{cluster\}|\*\*/|\*\*|\*|\?)")
_PATTERNS = {
    _PLACE: "(?P<cluster>[^/]+?)",
    "**/": "(?:[^/]+/)*",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
}

NameCluster = Callable[[str], str]


def compile_cluster_template(template: str) -> NameCluster:
    """The function from a path to the name of its cluster; empty where there is no template.

    The template describes the end of the path; a path that it does not fit is an error, because
    results without a cluster would be lost among the others.
    """
    if not template:
        return lambda _: ""
    if template.count(_PLACE) != 1:
        raise UsageError(
            f"--cluster-from {template}: write {_PLACE} once, where the name stands in paths, "
            "as in 'snapshots/{cluster}/*.json'"
        )
    parts = _PIECES.split(template.removeprefix("./"))
    body = "".join(_PATTERNS.get(part, re.escape(part)) for part in parts)
    # re: bounded - paths of files, with a template of the user
    pattern = re.compile(body if template.startswith("/") else f"(?:.*?/)??{body}")

    def name_cluster(path: str) -> str:
        found = pattern.fullmatch(path)
        if found is None:
            raise LoadError(
                f"--cluster-from {template} does not fit this path: no cluster can be named",
                where=path,
            )
        return found["cluster"]

    return name_cluster
