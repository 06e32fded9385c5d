"""Reads policies and resources from paths, globs, standard input and URLs."""

import fnmatch
import glob
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from lictor.cli.inputs.repositories import (
    GitAccess,
    confine,
    is_repository_url,
    list_repository_files,
)
from lictor.core.errors import LoadError, LookupFailedError, UsageError
from lictor.core.files import (
    LOGIN,
    YAML_ENDINGS,
    check_regular,
    is_visible,
    is_yaml,
    list_files,
    read_bounded,
    read_bytes,
    walk_folder,
)

STDIN = "-"
MAX_FETCHED_BYTES = 64 << 20
# For each wait, and for the body of an answer in all: a server may send a byte now and then.
FETCH_TIMEOUT_SECONDS = 30.0
FETCH_TOTAL_SECONDS = 600.0


class SourceText(msgspec.Struct, frozen=True):
    """The bytes of one file, with the name that errors show."""

    path: str
    content: bytes


class PolicySource(msgspec.Struct, frozen=True):
    """How policy paths are read: credentials and branch for repositories."""

    git: GitAccess = msgspec.field(default_factory=GitAccess)


def is_url(path: str) -> bool:
    """Whether a path names something on the network."""
    return path.startswith(("http://", "https://"))


def hide_credentials(address: str) -> str:
    """Remove user, password and query, which contains the signature of signed links."""
    if "://" not in address:
        return address
    return LOGIN.sub("", address).partition("?")[0]


def hide_secrets(text: str, address: str) -> str:
    """A message without the credentials of an address."""
    secrets = [*LOGIN.findall(address), *address.partition("?")[2:]]
    for secret in filter(None, secrets):
        text = text.replace(secret, "...")
    return text


def read_file(path: str) -> SourceText:
    """Read one file; an error names it."""
    return SourceText(path, read_bytes(path))


def open_stdin() -> BinaryIO:
    """Return standard input, unread."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("'-' means standard input, but nothing is piped in")
    return sys.stdin.buffer


def read_stdin() -> SourceText:
    """Read standard input."""
    return SourceText(STDIN, read_bounded(open_stdin(), "standard input"))


def fetch_url(url: str) -> SourceText:
    """Fetch a file by HTTP; an error names the URL."""
    if not is_url(url):
        raise UsageError(f"{hide_credentials(url)}: only http and https URLs can be fetched")
    shown = hide_credentials(url)
    # Loaded on first use: most runs read files only, and this costs more than a small run.
    from lictor.http.addresses import OPERATOR_RULES
    from lictor.images.registries import RemoteRegistries
    from lictor.images.settings import RegistrySettings

    settings = RegistrySettings(
        connect_seconds=FETCH_TIMEOUT_SECONDS,
        exchange_seconds=FETCH_TOTAL_SECONDS,
        question_seconds=FETCH_TOTAL_SECONDS,
        manifest_bytes=MAX_FETCHED_BYTES,
        attempts=1,
        addresses=OPERATOR_RULES,
    )
    try:
        status, content = RemoteRegistries(settings).fetch_url(url)
    except LookupFailedError as error:
        raise LoadError(
            f"could not be fetched ({hide_secrets(str(error), url)})", where=shown
        ) from None
    if status != 200:
        raise LoadError(f"could not be fetched (the server answered {status})", where=shown)
    return SourceText(shown, content)


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern of paths; an existing path and an address are not."""
    return glob.has_magic(path) and not is_url(path) and not os.path.lexists(path)


def expand_glob(path: str) -> list[str]:
    """Return the paths that a pattern matches, sorted."""
    if not is_pattern(path):
        return [path]
    found = sorted(_walk_glob(path) if "**" in path.split(os.sep) else glob.glob(path))
    for each in found:
        # The user did not name them: a pattern opens no pipe.
        if not os.path.isdir(each):
            check_regular(each)
    return found or [path]


def _walk_glob(pattern: str) -> Iterator[str]:
    """The files that a pattern with `**` names; Python's own walks through loops of links."""
    start, _, rest = pattern.partition("**")
    steps = ["**", *rest.lstrip(os.sep).split(os.sep)]
    last = steps[-1] if steps[-1] not in ("", "**") else "*"

    def takes(name: str) -> bool:
        return is_visible(name) and fnmatch.fnmatchcase(name, last)

    for folder in glob.glob(start or os.curdir):
        for path in walk_folder(folder, takes):
            if _fits(os.path.relpath(path, folder).split(os.sep), [*steps[:-1], last]):
                yield os.path.normpath(path)


def _fits(names: list[str], steps: list[str]) -> bool:
    """Whether the parts of a path match the steps of a pattern."""
    if not steps or not names:
        return not names and all(step == "**" for step in steps)
    if steps[0] == "**":
        return _fits(names, steps[1:]) or _fits(names[1:], steps)
    return fnmatch.fnmatchcase(names[0], steps[0]) and _fits(names[1:], steps[1:])


def list_policy_files(path: str) -> Iterator[str]:
    """A file, or all YAML files below a folder in the order of their names; hidden ones never."""
    return list_files(path, is_yaml)


def list_resource_files(path: str) -> list[str]:
    """A file, or all YAML files below a folder in the order of their names."""
    found = list(list_files(path, lambda name: name.endswith(YAML_ENDINGS)))
    if not found:
        raise LoadError("there are no YAML files in this folder", where=path)
    return found


def read_policies(paths: Iterable[str], source: PolicySource | None = None) -> Iterator[SourceText]:
    """Read every policy file that the paths name."""
    access = (source or PolicySource()).git
    for given in paths:
        if given == STDIN:
            yield read_stdin()
        elif "://" not in given and os.path.isfile(given):
            yield read_file(given)
        elif is_repository_url(given, branch=access.branch):
            yield from map(read_file, list_repository_files(given, access))
        elif is_url(given):
            yield fetch_url(given)
        else:
            for path in expand_glob(given):
                yield from map(read_file, list_policy_files(path))


def locate_resources(paths: Iterable[str]) -> Iterator[str]:
    """The files, URLs and stdin that resource paths name; nothing is read yet."""
    for given in paths:
        if given == STDIN or is_url(given) or os.path.isfile(given):
            yield given
            continue
        for path in expand_glob(given):
            yield from list_resource_files(path)


def read_any(path: str) -> SourceText:
    """Read a file, a URL or stdin."""
    if path == STDIN:
        return read_stdin()
    return fetch_url(path) if is_url(path) else read_file(path)


def resolve_path(path: str, folder: Path) -> str:
    """Resolve a path of a test file relative to the folder of that file.

    A file of a cloned repository may name nothing but files of that repository.
    """
    found = path if is_url(path) or os.path.isabs(path) else os.path.join(folder, path)
    return confine(found, str(folder))
