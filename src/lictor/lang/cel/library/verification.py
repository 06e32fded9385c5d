"""Kyverno's `verifyImageSignatures(image, attestors)` and its sisters, for policies on images."""

from lictor.errors import LookupFailedError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.world import current_world
from lictor.raw import Json


def _verify_signatures(image: str, attestors: list[Json]) -> int:
    return current_world.get().verify_signatures(image, attestors)


def _verify_attestations(image: str, attestation: str, attestors: list[Json]) -> int:
    return current_world.get().verify_attestations(image, attestation, attestors)


def _get_payload(image: str, attestation: str) -> Json:
    return current_world.get().attestation_payload(image, attestation)


def _get_image(image: str) -> Json:
    try:
        return current_world.get().image_data(image)
    except LookupFailedError as error:
        raise type(error)(f"failed to get imagedata: {error}") from error


OVERLOADS = (
    function("verifyImageSignatures", "string, list<dyn> -> int", _verify_signatures),
    function(
        "verifyAttestationSignatures", "string, string, list<dyn> -> int", _verify_attestations
    ),
    function("extractPayload", "string, string -> dyn", _get_payload),
    function("getImageData", "string -> dyn", _get_image),
)
