"""Questions about a web request and answers to it: `http.Denied("no").Response()`."""

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function, member
from lictor.raw import Json


def _get_values(attributes: Json, field: str, key: str) -> list[str]:
    values = attributes.get(field) if isinstance(attributes, dict) else None
    if not isinstance(values, dict):
        raise FunctionError(f"no such overload: a request without {field}")
    found = values.get(key) or []
    return [str(value) for value in found] if isinstance(found, list) else [str(found)]


def _get_header(attributes: Json, name: str) -> list[str]:
    # As Go writes the names of headers: Content-Type.
    canonical = "-".join(part.capitalize() for part in name.split("-"))
    return _get_values(attributes, "header", canonical)


OVERLOADS = (
    function("http.Allowed", "-> HttpOk", dict),
    function("http.Denied", "string -> HttpDenied", lambda reason: {"reason": reason}),
    member("Header", "dyn, string -> list<string>", _get_header),
    member("QueryParam", "dyn, string -> list<string>", lambda a, k: _get_values(a, "query", k)),
    member("Response", "HttpOk -> HttpResponse", lambda ok: {"ok": ok}),
    member("Response", "HttpDenied -> HttpResponse", lambda denied: {"denied": denied}),
)
