"""Which object or objects does a path name?"""

from urllib.parse import unquote

import msgspec

from lictor.apiserver.kind import Catalogue, ServedKind
from lictor.apiserver.status_errors import no_such_resource

# What may stand behind the name of a namespace without being a kind of object in it.
_OF_NAMESPACES = frozenset(("status", "finalize"))


class ResourceRoute(msgspec.Struct, frozen=True):
    """A kind, and perhaps one object of it; what is empty was not named."""

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # What follows the subresource, as of a proxy.
    rest: str = ""


def is_resource_path(path: str) -> bool:
    """Does it name objects? All else is about the server itself."""
    parts = path.strip("/").split("/", 4)
    if parts[0] == "api":
        return len(parts) > 2
    return parts[0] == "apis" and len(parts) > 3


def find_route(catalogue: Catalogue, path: str) -> ResourceRoute:
    """What a path names; raises RefusedRequestError 404 where there is no such kind."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not _is_part(group, rest):
        namespace, rest = rest[1], rest[2:]
    kind = catalogue.find(group, version, rest[0])
    if kind is None or not all(rest):
        raise no_such_resource()
    # An object that lies in no namespace is not found in one.
    if namespace and not kind.namespaced:
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if name and kind.namespaced and not namespace:
        raise no_such_resource()
    return ResourceRoute(kind, namespace, name, subresource, "/".join(rest[3:]))


def _is_part(group: str, rest: list[str]) -> bool:
    """Is it a namespace's own subresource, such as `namespaces/x/finalize`?"""
    return not group and len(rest) == 3 and rest[2] in _OF_NAMESPACES
