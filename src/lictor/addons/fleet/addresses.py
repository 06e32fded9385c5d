"""Lists the files that paths and addresses name, and the cluster of each.

Local paths and URLs are read as in any run. Any other address (`s3://`, `gs://`, `az://`) is read
through fsspec, with the credentials of the machine that reads. Messages show no credentials.
"""

import glob
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from lictor.cli.apply_plan import ADDRESS, is_address
from lictor.cli.inputs.document_reader import report_unreadable
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

# Fields of stores that change with the file; the first that is set counts.
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
    """One file, local or in a store."""

    # May contain credentials, and is never shown.
    address: str
    # The name in messages.
    name: str
    # None if it is unknown before the file is read.
    size: int | None = None
    # Changes with the file.
    version: str = ""


def list_inputs(
    paths: Iterable[str], warn: Callable[[str], None] | None = None
) -> Iterator[InputFile]:
    """List the files that paths name, in the order in which a local run reads them."""
    for number, path in enumerate(paths):
        try:
            found = list(_list_one(path))
        except LictorError as error:
            if is_address(path):
                raise
            report_unreadable(path, number, error, warn)
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
        # A worker may run in another folder: a relative path would be another one there.
        yield InputFile(os.path.abspath(found), found, status.st_size, str(status.st_mtime_ns))


# --- files in stores


def _list_stored(address: str) -> Iterator[InputFile]:
    shown = hide_credentials(address)
    files, path = _open_store(address)
    found = _call_store(shown, address, lambda: _look_up(files, path))
    if not found:
        raise LoadError("no such file, and no YAML file below it", where=shown)
    scheme = address.partition("://")[0]
    for name in sorted(found):
        full = name_stored(scheme, name, shown)
        size, version = _read_facts(found[name])
        yield InputFile(full, hide_credentials(full), size, version)


def name_stored(scheme: str, name: str, shown: str) -> str:
    """Return the address of a file that a store (`shown`) lists."""
    if scheme == "file":
        return f"file://{name}"
    full = name if ADDRESS.match(name) else f"{scheme}://{name.lstrip('/')}"
    if not full.startswith(f"{scheme}://"):
        # The content of a store must not decide which other files are read.
        raise LoadError(f"it names a file elsewhere: {hide_credentials(full)}", where=shown)
    return full


def _look_up(files: "AbstractFileSystem", path: str) -> dict[str, dict[str, Any]]:
    """List the files of a pattern, a file, or the YAML files of a folder; no hidden ones."""
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


def _call_store(shown: str, address: str, question: Callable[[], Answer]) -> Answer:
    """Call a store; errors show no credentials."""
    try:
        return question()
    except FileNotFoundError as error:
        raise LoadError("no such file", where=shown) from error
    except PermissionError as error:
        raise LoadError("the store refuses access: check the credentials", where=shown) from error
    except Exception as error:  # noqa: BLE001  (each store has its own errors)
        raise LoadError(_describe_fault(error, address), where=shown) from None


def _describe_fault(error: Exception, address: str) -> str:
    return hide_secrets(f"could not be read ({type(error).__name__}: {error})", address)


def read_stored(file: InputFile, start: int, end: int) -> bytes:
    """Read the bytes from start to end of a file in a store; fewer if the file is shorter."""
    if start >= end:
        return b""
    files, path = _open_store(file.address)

    def fetch() -> bytes:
        content: bytes = files.cat_file(path, start=start, end=end)
        return content

    return _call_store(file.name, file.address, fetch)


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
    """Return the function from a path to its cluster; the name is empty without a template.

    The template describes the end of the path; a path that it does not match is an error, because
    the cluster of its results would be unknown.
    """
    if not template:
        return lambda _: ""
    if template.count(_PLACE) != 1:
        raise UsageError(
            f"--cluster-from {template}: write {_PLACE} once, in the position of the name, "
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
