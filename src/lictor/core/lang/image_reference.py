"""Names of container images, `registry/path:tag@digest`, parsed and completed."""

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from lictor.core.errors import EvaluationError

_COMPONENT = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_COMPONENT}(?:\.{_COMPONENT})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = rf"{_PATH_COMPONENT}(?:/{_PATH_COMPONENT})*"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(
    rf"(?:({_DOMAIN})/)?({_PATH})(?::([\w][\w.-]{{0,127}}))?(?:@({_DIGEST}))?", re.ASCII
)
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
_MAX_PATH = 255
_MAX_TEXT = 4096
_OPEN = frozenset("*?{}")
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io")
_HTTPS_PORT = 443


class ImageReference(msgspec.Struct, frozen=True):
    """The parts of an image's name; `path` is the repository, `name` its last part."""

    registry: str
    path: str
    name: str
    tag: str
    digest: str

    @property
    def repository(self) -> str:
        return f"{self.registry}/{self.path}" if self.registry else self.path

    @property
    def reference(self) -> str:
        """The full name: with the digest if there is one, otherwise with the tag."""
        if self.digest:
            return f"{self.repository}@{self.digest}"
        return f"{self.repository}:{self.tag}"

    @property
    def reference_with_tag(self) -> str:
        return f"{self.repository}:{self.tag}"


def parse_image(
    text: str, default_registry: str = "docker.io", *, add_default: bool = True
) -> ImageReference:
    """Parse a name; raises EvaluationError for an invalid one.

    `add_default`: whether the default registry appears in the result if the text has none.
    """
    full = text if _has_registry(text) else f"{default_registry}/{text}"
    found = _REFERENCE.fullmatch(full) if len(full) <= _MAX_TEXT else None
    if found is None:
        raise EvaluationError(f"bad image: {full[:256]}: {_explain(full)}")
    registry, path, tag, digest = (part or "" for part in found.groups())
    if len(path) > _MAX_PATH:
        limit = f"repository name must not be more than {_MAX_PATH} characters"
        raise EvaluationError(f"bad image: {full[:256]}: {limit}")
    _check_digest(full, digest)
    if full is not text and not add_default:
        registry = ""
    name = path.rpartition("/")[2]
    return ImageReference(registry, path, name, tag if tag or digest else "latest", digest)


@lru_cache(maxsize=4096)
def list_aliases(text: str) -> tuple[str, ...]:
    """All names by which runtimes pull the same image, the canonical one first.

    For patterns that include images; an exemption must not become wider by this.
    """
    try:
        image = parse_image(text, add_default=False)
    except EvaluationError:
        return (text,)
    rest = text.removeprefix(image.repository)
    registry = _name_registry(image.registry or _HUB_NAMES[0])
    if registry not in _HUB_NAMES:
        return (f"{registry}/{image.path}{rest}",)
    name = image.path.removeprefix("library/")
    paths = (image.path,) if "/" in name else (image.path, name, f"library/{name}")
    names = (f"{host}/{path}{rest}" for host in _HUB_NAMES for path in paths)
    return tuple(dict.fromkeys(names))


def _name_registry(registry: str) -> str:
    host, colon, port = registry.lower().rpartition(":")
    is_usual = bool(colon) and port.isdecimal() and int(port) == _HTTPS_PORT
    return host if is_usual else registry.lower()


def list_named_registries(patterns: Iterable[str]) -> frozenset[str]:
    """The registries that image patterns name in full: without wildcards and variables."""
    heads = (pattern.partition("/")[0] for pattern in patterns if _has_registry(pattern))
    return frozenset(head for head in heads if _OPEN.isdisjoint(head))


def _has_registry(text: str) -> bool:
    first, slash, _ = text.partition("/")
    if not slash:
        return False
    return "." in first or ":" in first or first == "localhost" or first.lower() != first


def _explain(full: str) -> str:
    if len(full) <= _MAX_TEXT and _REFERENCE.fullmatch(full.lower()):
        return "repository name must be lowercase"
    return "invalid reference format"


def _check_digest(full: str, digest: str) -> None:
    if not digest:
        return
    algorithm, _, checksum = digest.partition(":")
    length = _DIGEST_LENGTHS.get(algorithm)
    if length is None:
        raise EvaluationError(f"bad image: {full[:256]}: unsupported digest algorithm")
    if len(checksum) != length:
        raise EvaluationError(f"bad image: {full[:256]}: invalid checksum digest length")
    if checksum.lower() != checksum:
        raise EvaluationError(f"bad image: {full[:256]}: invalid checksum digest format")
