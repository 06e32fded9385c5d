"""What expressions of mutations have: `Object{}`, `JSONPatch{}` and `jsonpatch.escapeKey(key)`."""

from lictor.lang.cel.declaration import function
from lictor.lang.cel.wire import OBJECT_MARK, PATCH_MARK


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


OVERLOADS = (
    function("jsonpatch.escapeKey", "string -> string", _escape_key),
    # See `literals`.
    function(OBJECT_MARK, "dyn -> Object", lambda value: value),
    function(PATCH_MARK, "dyn -> JSONPatch", lambda value: value),
)
