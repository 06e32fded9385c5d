"""May a Policy of one namespace read or change this? Asked of what was resolved, not written."""

import posixpath
import re
from urllib.parse import unquote

from lictor.core.errors import EvaluationError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.raw import Json, JsonObject

_INSIDE = re.compile(r"/(?:api/[^/]+|apis/[^/]+/[^/]+)/namespaces/([^/]+)(?:/.*)?")
# What says which object it is.
_IDENTITY = ("name", "namespace", "uid")


def check_path(url_path: str, namespace: str) -> None:
    """Refuse a path that leads out of the namespace, however it is written."""
    # What counts is what the API server makes of it: percent signs are undone there.
    path = unquote(re.split(r"[?#]", url_path, maxsplit=1)[0])
    clean = posixpath.normpath(path) if path else "."
    found = _INSIDE.fullmatch(clean)
    if found is None:
        raise EvaluationError(
            f"path {clean} does not contain a namespace segment, "
            "which is required for namespaced policies"
        )
    if found[1] != namespace:
        raise EvaluationError(
            f"path {clean} refers to namespace {found[1]}, "
            f"which is different from the policy namespace {namespace}"
        )
    if clean != path.rstrip("/") or "%" in path or "#" in url_path or not url_path.isprintable():
        # Between us and the server someone may read dots and double slashes differently.
        raise EvaluationError(f"path {path} must be written plainly in namespaced policies")


def check_namespace(found: Json, own: str, what: str) -> None:
    """Refuse any other namespace than a policy's own; none at all is another one too."""
    if found == own:
        return
    where = f"namespace {found}" if found else "no namespace"
    raise EvaluationError(
        f"a policy of namespace {own} cannot reach {where}: {what} must be in namespace {own}"
    )


def check_kind(api_version: str, kind: str, own: str) -> None:
    """Refuse a kind whose objects live in no namespace."""
    group, _, version = api_version.rpartition("/")
    if builtin_names().of_kind(group, version, kind).namespaced is False:
        raise EvaluationError(
            f"a policy of namespace {own} cannot reach {api_version} {kind}: "
            "its objects belong to the whole cluster"
        )


def check_same_object(before: JsonObject, after: JsonObject) -> None:
    """Refuse a change that would be written to another object than the one that was read."""
    if any(before.get(name) != after.get(name) for name in ("apiVersion", "kind")):
        raise EvaluationError("a change must leave apiVersion and kind of its target as they are")
    old, new = before.get("metadata"), after.get("metadata")
    if not isinstance(old, dict) or not isinstance(new, dict):
        raise EvaluationError("a change must leave its target the metadata")
    for name in _IDENTITY:
        if old.get(name) != new.get(name):
            raise EvaluationError(
                f"a change must leave metadata.{name} of its target as it is: "
                f"{old.get(name)!r} became {new.get(name)!r}"
            )
