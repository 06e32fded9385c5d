"""The signed manifest in a resource's annotations, its signatures, and the differences."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import count, islice
from typing import TypeAlias

import msgspec

from lictor.core.errors import EvaluationError
from lictor.core.evaluate.manifests.difference import SignedDifference, find_differences, flatten
from lictor.core.evaluate.manifests.ignored import DOMAIN, Ignores, compile_ignores, read_text
from lictor.core.evaluate.manifests.message import decode_message, read_manifests
from lictor.core.model.signatures import Manifests
from lictor.core.raw import Json, JsonObject

# The number of manifests to compare if none has the resource's name.
_MAX_CANDIDATES = 3
# Each costs time, and they are untrusted.
_MAX_SIGNATURES = 64
# Enough to diagnose the problem.
_MAX_TOLD = 100
NO_MANIFEST = "YAML manifest not found for this resource"
_HIDDEN = "(hidden)"


class Signature(msgspec.Struct, frozen=True):
    """One signature, in base64, with its certificate and log entry, compressed."""

    text: str
    certificate: str = ""
    bundle: str = ""

    @property
    def is_logged(self) -> bool:
        """Whether a transparency log contains it."""
        return bool(self.certificate or self.bundle)


@contextmanager
def _prefix_errors(what: str) -> Iterator[None]:
    try:
        yield
    except EvaluationError as error:
        raise EvaluationError(f"{what}: {error}") from error


class Evidence:
    """The signed content of one resource; read on first use, and once.

    Reading takes time in proportion to the message, which is untrusted: it is read only after a
    signature of the message was verified.
    """

    def __init__(self, resource: JsonObject, domain: str, ignores: Ignores) -> None:
        self._resource = resource
        self._domain = domain
        self._ignores = ignores
        self.annotations = _read_annotations(resource)

    @property
    def image(self) -> str:
        """The image that contains the manifest, if it is not in the annotations."""
        return self._read_note("resourceBundleRef") or ""

    @property
    def has_message(self) -> bool:
        return self._read_note("message") is not None

    @cached_property
    def message(self) -> bytes:
        """The signed bytes. Raises EvaluationError if they cannot be read."""
        with _prefix_errors(NO_MANIFEST):
            return decode_message(self._read_note("message") or "")

    @cached_property
    def signatures(self) -> tuple[Signature, ...]:
        return tuple(islice(self._read_signatures(), _MAX_SIGNATURES))

    @cached_property
    def differences(self) -> tuple[SignedDifference, ...] | None:
        """How the resource differs from the signed manifest; None if there is none for it.

        Raises EvaluationError if that cannot be determined.
        """
        return self.compare(self.message)

    def compare(self, message: bytes) -> tuple[SignedDifference, ...] | None:
        """The same for a message from elsewhere, which must be verified."""
        with _prefix_errors(NO_MANIFEST):
            manifests = read_manifests(message)
        with _prefix_errors("error occurred during matching manifest"):
            return _compare(manifests, self._resource, self._ignores(self._resource))

    def _read_note(self, name: str) -> str | None:
        return self.annotations.get(f"{self._domain}/{name}")

    def _read_signatures(self) -> Iterable[Signature]:
        for number in count():
            suffix = f"_{number}" if number else ""
            text = self._read_note(f"signature{suffix}")
            if text is None:
                return
            certificate = self._read_note(f"certificate{suffix}") or ""
            yield Signature(text, certificate, self._read_note(f"bundle{suffix}") or "")


Gather: TypeAlias = Callable[[JsonObject], Evidence]


def compile_evidence(wanted: Manifests) -> Gather:
    """How to read the signed content of a resource."""
    domain = wanted.annotation_domain or DOMAIN
    ignores = compile_ignores(wanted.ignore_fields, domain)
    return lambda resource: Evidence(resource, domain, ignores)


def _read_annotations(resource: JsonObject) -> Mapping[str, str]:
    """The annotations of a resource; none if one of them is not a string."""
    metadata = resource.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return {}
    return found


def _compare(
    manifests: Iterable[JsonObject], resource: JsonObject, ignored: Callable[[str], bool]
) -> tuple[SignedDifference, ...] | None:
    candidates = [body for body in manifests if body["kind"] == resource.get("kind")]
    first: tuple[SignedDifference, ...] | None = None
    for candidate in _choose(candidates, resource, ignored) if candidates else ():
        kept = (each for each in find_differences(candidate, resource) if not ignored(each.key))
        found = tuple(islice(kept, _MAX_TOLD))
        if not found:
            return ()
        first = found if first is None else first
    if first is not None and resource.get("kind") == "Secret":
        return tuple(map(_hide, first))
    return first


def _hide(each: SignedDifference) -> SignedDifference:
    before, after = (None if value is None else _HIDDEN for value in (each.before, each.after))
    return SignedDifference(each.key, before, after)


def _choose(
    candidates: list[JsonObject], resource: JsonObject, ignored: Callable[[str], bool]
) -> list[JsonObject]:
    """The manifest with the resource's name; the most similar ones if none has it."""
    name = _identify(resource)
    named = [body for body in candidates if _identify(body) == name]
    if named:
        place = _read_namespace(resource)
        return [next((body for body in named if _read_namespace(body) == place), named[0])]
    leaves = {key: value for key, value in flatten(resource).items() if not ignored(key)}
    return _most_alike(candidates, leaves)[:_MAX_CANDIDATES]


def _most_alike(candidates: list[JsonObject], leaves: Mapping[str, Json]) -> list[JsonObject]:
    scores = [len(leaves.items() & flatten(body).items()) for body in candidates]
    best = max(scores)
    return [body for body, score in zip(candidates, scores, strict=True) if score == best]


def _identify(body: JsonObject) -> tuple[str, str]:
    group = read_text(body, "apiVersion").rpartition("/")[0]
    return group, read_text(body.get("metadata"), "name")


def _read_namespace(body: JsonObject) -> str:
    return read_text(body.get("metadata"), "namespace")
