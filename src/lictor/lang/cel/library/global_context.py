"""Kyverno's `globalContext.get(name)`: entries of the shared cache."""

from lictor.errors import LookupFailedError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.world import current_world
from lictor.raw import Json


def _get(name: str, projection: str = "") -> Json:
    try:
        return current_world.get().global_context(name, projection)
    except LookupFailedError as error:
        raise type(error)(f"failed to get global reference: {error}") from error


OVERLOADS = tuple(
    function(f"globalContext.{name}", signature, _get)
    for name in ("get", "Get")
    for signature in ("string -> dyn", "string, string -> dyn")
)
