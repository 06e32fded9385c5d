"""What expressions of mutations have: `Object{}`, `JSONPatch{}` and `jsonpatch.escapeKey(key)`."""

from lictor.lang.cel.declaration import function, member
from lictor.lang.cel.selections import FIELDS, SET_FIELDS
from lictor.lang.cel.wire import OBJECT_MARK, PATCH_MARK
from lictor.raw import JsonObject


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _fill_texts(patch: JsonObject) -> JsonObject:
    """All fields; a text that was not set is empty."""
    return {"op": "", "path": "", "from": "", "value": None, **patch}


def _drop_empty(patch: JsonObject) -> JsonObject:
    """The fields that are set: a text that is empty is not."""
    return {name: value for name, value in patch.items() if name == "value" or value != ""}


OVERLOADS = (
    function("jsonpatch.escapeKey", "string -> string", _escape_key),
    # See `literals`.
    function(OBJECT_MARK, "dyn -> Object", lambda value: value),
    function(PATCH_MARK, "dyn -> JSONPatch", lambda value: value),
    # See `selections`.
    member(FIELDS, "Object -> map<string,dyn>", lambda value: value),
    member(SET_FIELDS, "Object -> map<string,dyn>", lambda value: value),
    member(FIELDS, "JSONPatch -> map<string,dyn>", _fill_texts),
    member(SET_FIELDS, "JSONPatch -> map<string,dyn>", _drop_empty),
)
