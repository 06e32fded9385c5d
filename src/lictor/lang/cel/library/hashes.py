"""Kyverno's `sha256(text)` and its older sisters."""

from collections.abc import Callable
from hashlib import md5, sha1, sha256

from lictor.lang.cel.declaration import function
from lictor.raw import Json


def _hexadecimal(algorithm: Callable[..., Json]) -> Callable[[str], str]:
    return lambda text: algorithm(text.encode(), usedforsecurity=False).hexdigest()


OVERLOADS = tuple(
    function(f"{prefix}{name}", "string -> string", _hexadecimal(algorithm))
    for prefix in ("", "hash.")
    for name, algorithm in (("sha1", sha1), ("sha256", sha256), ("md5", md5))
)
