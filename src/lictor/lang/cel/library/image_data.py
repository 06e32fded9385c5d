"""Kyverno's `image.getMetadata(reference)`: what a registry knows about an image."""

from lictor.errors import LookupFailedError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.world import current_world
from lictor.raw import JsonObject


def _get(reference: str) -> JsonObject:
    try:
        return current_world.get().image_data(reference)
    except LookupFailedError as error:
        raise type(error)(f"failed to get image data: {error}") from error


OVERLOADS = tuple(
    function(f"image.{name}", "string -> dyn", _get) for name in ("getMetadata", "GetMetadata")
)
