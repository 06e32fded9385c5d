"""Where a policy module is: `file://`, `https://`, `http://` and `registry://`, taken apart."""

import re
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from lictor.core.errors import EvaluationError, LookupFailedError, ModuleError
from lictor.core.lang.image_reference import parse_image
from lictor.images.repository_name import split_host

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
# How the names of files begin that are being written.
UNFINISHED = ".new-"
_HUB = "docker.io"
_LONGEST = 2048
_LONGEST_NAME = 255


class ModuleScheme(StrEnum):
    """How a module is fetched."""

    FILE = "file"
    HTTP = "http"
    HTTPS = "https"
    REGISTRY = "registry"


class ModuleAddress(msgspec.Struct, frozen=True):
    """An address in its parts. A file has a path only; what is downloaded has a host."""

    scheme: ModuleScheme
    # With the port, as it is written.
    host: str
    # Of a file: where it is; of a repository: without tag and digest.
    path: str
    tag: str = ""
    digest: str = ""
    query: str = ""

    @property
    def text(self) -> str:
        """The whole address, as `policies` lists it."""
        if self.scheme is ModuleScheme.FILE:
            return f"file://{self.path}"
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.host}/{self.name}{query}"

    @property
    def name(self) -> str:
        """The path with what stands after it."""
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.path}{tag}{digest}"

    @property
    def repository(self) -> str:
        return f"{self.host}/{self.path}"

    @property
    def reference(self) -> str:
        """The reference for a registry: the digest if there is one."""
        return self.digest or self.tag

    @property
    def is_kept(self) -> bool:
        """Has it a place in the folder of modules? Two queries of one URL would share it."""
        return self.scheme is not ModuleScheme.FILE and not self.query


def parse_module_address(text: str) -> ModuleAddress:
    """Take an address apart; without a scheme it is a registry's. ModuleError for what is none."""
    if len(text) > _LONGEST or "\x00" in text:
        raise ModuleError(f"{text[:80]!r} is no address of a module")
    found = _SCHEME.fullmatch(text)
    scheme, rest = (found["scheme"].lower(), found["rest"]) if found else ("registry", text)
    match scheme:
        case ModuleScheme.FILE:
            return _parse_file(rest, text)
        case ModuleScheme.HTTP | ModuleScheme.HTTPS:
            return _parse_url(text, ModuleScheme(scheme))
        case ModuleScheme.REGISTRY:
            return _parse_reference(rest, text)
        case _:
            raise ModuleError(
                f"unknown scheme {scheme}:// in {text!r}: file://, https:// and registry:// are "
                "known"
            )


def _parse_file(rest: str, text: str) -> ModuleAddress:
    path = unquote(rest)
    if not path or "\x00" in path:
        raise ModuleError(f"{text!r} names no file")
    return ModuleAddress(ModuleScheme.FILE, "", path)


def _parse_url(text: str, scheme: ModuleScheme) -> ModuleAddress:
    if "@" in text.partition("://")[2].partition("/")[0]:
        # It would appear in statuses and logs; so it is left out here, too.
        raise ModuleError("a URL of a module must not hold a name or a password")
    try:
        parts = urlsplit(text)
        split_host(parts.netloc)
    except (ValueError, LookupFailedError) as error:
        raise ModuleError(f"{text!r} is no URL of a module") from error
    path = parts.path.lstrip("/")
    _check_segments(path, text)
    return ModuleAddress(scheme, parts.netloc, path, query=parts.query)


def _parse_reference(rest: str, text: str) -> ModuleAddress:
    try:
        image = parse_image(rest)
        split_host(image.registry)
    except (EvaluationError, LookupFailedError) as error:
        raise ModuleError(f"{text!r} is no reference to an OCI artifact: {error}") from error
    path = image.path
    if image.registry == _HUB and "/" not in path:
        path = f"library/{path}"
    found = ModuleAddress(ModuleScheme.REGISTRY, image.registry, path, image.tag, image.digest)
    _check_segments(found.name, text)
    return found


def _check_segments(path: str, text: str) -> None:
    """The path becomes that of a file: it must stay in its folder."""
    for segment in path.split("/"):
        is_bad = segment in ("", ".", "..") or "\\" in segment
        if is_bad or len(segment.encode()) > _LONGEST_NAME:
            raise ModuleError(f"{text!r} has no path that a module could have")


def locate_in_store(address: ModuleAddress) -> Path:
    """Its place in the folder of modules, below the folder itself."""
    return Path(address.scheme, address.host, *address.name.split("/"))


def read_store_path(path: Path) -> ModuleAddress | None:
    """The address of a file in the folder; None for a file that does not belong there."""
    scheme, _, rest = path.as_posix().partition("/")
    is_known = scheme in (ModuleScheme.HTTP, ModuleScheme.HTTPS, ModuleScheme.REGISTRY)
    if not is_known or path.name.startswith(UNFINISHED):
        return None
    try:
        found = parse_module_address(f"{scheme}://{rest}")
    except ModuleError:
        return None
    return found if locate_in_store(found) == path else None
