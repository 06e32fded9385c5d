"""What a resource says of itself: the manifest that was signed, how it differs, the signatures."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TypeAlias

import msgspec

from lictor.errors import EvaluationError
from lictor.evaluate.manifests.difference import Difference, find_differences, flatten
from lictor.evaluate.manifests.ignored import DOMAIN, Ignores, compile_ignores, read_text
from lictor.evaluate.manifests.message import decode_message, read_manifests
from lictor.model.policy import Manifests
from lictor.raw import Json, JsonObject

# So many manifests are compared where none has the resource's name.
_MAX_CANDIDATES = 3
_HIDDEN = "(hidden)"


class Signature(msgspec.Struct, frozen=True):
    """One signature, in base64; with a certificate or a bundle, a transparency log knows of it."""

    text: str
    is_logged: bool


class Evidence(msgspec.Struct, frozen=True):
    """Gathered once for a request; each attestor draws its own conclusions from it."""

    annotations: Mapping[str, str]
    # The image that holds the manifest, where it is not in the annotations.
    image: str = ""
    # Why there is no manifest to compare with: because none is there, or something is broken.
    absence: str = ""
    fault: str = ""
    message: bytes = b""
    signatures: tuple[Signature, ...] = ()
    differences: tuple[Difference, ...] = ()


Gather: TypeAlias = Callable[[JsonObject], Evidence]


def compile_evidence(wanted: Manifests) -> Gather:
    """How to gather what a resource says of itself."""
    domain = wanted.annotation_domain or DOMAIN
    ignores = compile_ignores(wanted.ignore_fields, domain)

    def gather(resource: JsonObject) -> Evidence:
        annotations = read_annotations(resource)
        image = annotations.get(f"{domain}/resourceBundleRef", "") or wanted.repository
        message = annotations.get(f"{domain}/message")
        if image:
            return Evidence(annotations, image)
        if message is None:
            return Evidence(annotations, absence="message not found")
        try:
            signed = decode_message(message)
            differences = _compare(read_manifests(signed), resource, ignores)
        except EvaluationError as error:
            return Evidence(annotations, fault=str(error))
        if differences is None:
            return Evidence(
                annotations, absence="failed to find a YAML manifest in the gzipped message"
            )
        signatures = tuple(_read_signatures(annotations, domain))
        return Evidence(
            annotations, message=signed, signatures=signatures, differences=tuple(differences)
        )

    return gather


def read_annotations(resource: JsonObject) -> dict[str, str]:
    """The annotations of a resource; none at all where one of them is not a text."""
    metadata = resource.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return {}
    return found


def _read_signatures(annotations: Mapping[str, str], domain: str) -> Iterable[Signature]:
    for number in count():
        suffix = f"_{number}" if number else ""
        text = annotations.get(f"{domain}/signature{suffix}")
        if text is None:
            return
        logged = (annotations.get(f"{domain}/{what}{suffix}") for what in ("certificate", "bundle"))
        yield Signature(text, any(logged))


def _compare(
    manifests: Iterable[JsonObject], resource: JsonObject, ignores: Ignores
) -> list[Difference] | None:
    """How the resource differs from its manifest; None where it has none."""
    candidates = [body for body in manifests if body["kind"] == resource.get("kind")]
    if not candidates:
        return None
    ignored = ignores(resource)
    found: list[Difference] | None = None
    for candidate in _choose(candidates, resource, ignored):
        all_differences = find_differences(candidate, resource)
        differences = [each for each in all_differences if not ignored(each.key)]
        if not differences:
            return []
        found = differences if found is None else found
    return [_hide(each) for each in found or ()] if resource["kind"] == "Secret" else found


def _hide(each: Difference) -> Difference:
    before, after = (None if value is None else _HIDDEN for value in (each.before, each.after))
    return Difference(each.key, before, after)


def _choose(
    candidates: list[JsonObject], resource: JsonObject, ignored: Callable[[str], bool]
) -> list[JsonObject]:
    """The manifest with the resource's name; those most alike where none has it."""
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
