"""Every path and method of an API server that names objects, and what discovery says of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lictor.core.raw import JsonObject

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_LIST = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_PART = {**_OBJECT, "POST": "create"}
_PROXY = {**_PART, "HEAD": "get"}
# It need not exist: whether a verb is known is decided before anything is looked up.
NAME = "no-such-object"


@dataclass(frozen=True)
class Call:
    """One request, and whether discovery lists its verb; `status` is that of a refusal."""

    method: str
    path: str
    is_listed: bool
    status: int = 405

    @property
    def body(self) -> bytes | None:
        """None where there is none."""
        if self.method == "DELETE":
            # A body replaces the options of the query: without this, everything would be deleted.
            return b'{"dryRun": ["All"]}'
        return None if self.method in ("GET", "HEAD", "OPTIONS") else b"{}"

    @property
    def content_type(self) -> str:
        """Of the body."""
        return f"application/{'merge-patch+json' if self.method == 'PATCH' else 'json'}"


def list_calls(version: str, resources: Iterable[JsonObject], namespace: str) -> Iterator[Call]:
    """All calls for one APIResourceList; `version` is a path such as `/apis/apps/v1`."""
    for entry in resources:
        plural, _, part = entry["name"].partition("/")
        home = f"{version}/namespaces/{namespace}" if entry["namespaced"] else version
        named, verbs = f"{home}/{plural}/{NAME}", set(entry["verbs"])
        if part:
            table = _PROXY if part == "proxy" else _PART
            yield from _list_methods(f"{named}/{part}", table, verbs)
            if part != "proxy":
                yield from _list_methods(f"{named}/{part}/more", {}, verbs)
            # An object is never watched by its path, so this is a plain read.
            continue
        yield from _list_methods(f"{home}/{plural}", _LIST, verbs)
        yield from _list_methods(named, _OBJECT, verbs)
        yield from _list_methods(f"{named}/no-such-part", {}, verbs)
        # What cannot be read that far back is refused; but only where it could be watched at all.
        watch = f"{home}/{plural}?watch=1&resourceVersion=x"
        status = 405 if verbs & {*_LIST.values()} else 404
        yield Call("GET", watch, "watch" in verbs, status)
        if entry["namespaced"]:
            yield from _list_methods(f"{version}/{plural}", {"GET": "list"}, verbs)


def _list_methods(path: str, table: dict[str, str], verbs: set[str]) -> Iterator[Call]:
    status = 405 if verbs & {*table.values()} else 404
    for method in METHODS:
        if table is _PROXY and method == "OPTIONS":
            # It is handed on, and discovery has no verb for it.
            continue
        yield Call(method, f"{path}?dryRun=All", table.get(method) in verbs, status)


def explain(call: Call, status: int, body: str) -> str:
    """What is wrong with an answer; empty where nothing is."""
    if not call.is_listed:
        return "" if status == call.status else f"{call.method} {call.path}: {status}, not listed"
    is_unknown = "could not find the requested resource" in body or "page not found" in body
    # Kubernetes answers 500 to the version that makes a watch end at once, and to an empty Binding.
    is_broken = status == 500 and "?watch=" not in call.path and "/bindings?" not in call.path
    if status == 405 or (status == 404 and is_unknown) or is_broken:
        return f"{call.method} {call.path}: {status}, but it is listed"
    return ""
