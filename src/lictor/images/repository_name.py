"""Names of repositories, tags and digests."""

import hashlib
import re
from functools import lru_cache
from ipaddress import ip_address

import msgspec

from lictor.core.errors import CorruptContentError, LookupFailedError

HUB = "index.docker.io"
# All names of Docker Hub.
_HUB_NAMES = frozenset(("", "docker.io", "index.docker.io", "registry-1.docker.io"))
_HOST = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_MAX_PATH = 255


class Repository(msgspec.Struct, frozen=True):
    """A repository: its registry as in image names, with the port, and its path."""

    registry: str
    path: str

    @property
    def text(self) -> str:
        return f"{self.registry}/{self.path}"


@lru_cache(maxsize=4096)
def parse_repository(text: str) -> Repository:
    """Parse a name without tag and digest; raises LookupFailedError if it is invalid."""
    first, slash, rest = text.partition("/")
    has_registry = bool(slash) and (first == "localhost" or any(sign in first for sign in ".:["))
    registry, path = (first, rest) if has_registry else ("", text)
    if registry in _HUB_NAMES:
        registry = HUB
        # Docker Hub's official images are in `library`, which is omitted in names.
        path = path if "/" in path else f"library/{path}"
    if not _PATH.fullmatch(path) or len(path) > _MAX_PATH:
        raise LookupFailedError(f"{text[:256]!r} is not a valid repository name")
    split_host(registry)
    return Repository(registry, path)


@lru_cache(maxsize=1024)
def split_host(registry: str) -> tuple[str, int | None]:
    """The host and the port, None by default; an IPv6 address without brackets."""
    found = _HOST.fullmatch(registry)
    port = int(found["port"]) if found is not None and found["port"] else None
    if found is None or (port is not None and not 0 < port < 65536):
        raise LookupFailedError(f"{registry[:256]!r} is not a valid registry name")
    return found["host"].strip("[]"), port


def is_loopback(host: str) -> bool:
    """Whether this name always means the local machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_digest(text: str) -> bool:
    """Whether it is a digest rather than a tag."""
    return ":" in text


def check_reference(tag_or_digest: str) -> None:
    """Raises LookupFailedError for what is neither a tag nor a digest."""
    pattern = _DIGEST if is_digest(tag_or_digest) else _TAG
    if not pattern.fullmatch(tag_or_digest):
        raise LookupFailedError(f"{tag_or_digest[:256]!r} is neither a tag nor a digest")


def compute_digest(content: bytes, like: str = "sha256:") -> str:
    """The digest of content, with the algorithm of another digest."""
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def check_digest(content: bytes, digest: str, what: str) -> None:
    """Raises CorruptContentError if the content does not match the digest."""
    found = compute_digest(content, digest)
    if found != digest:
        raise CorruptContentError(f"{what}: the content has the digest {found}, not {digest}")
