"""Limits a namespaced policy to its namespace, after variables are resolved."""

import posixpath
import re
from urllib.parse import unquote

from lictor.core.errors import EvaluationError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.raw import Json, JsonObject

_INSIDE = re.compile(r"/(?:api/[^/]+|apis/[^/]+/[^/]+)/namespaces/([^/]+)(?:/.*)?")
# What identifies an object.
_IDENTITY = ("name", "namespace", "uid")


def check_path(url_path: str, namespace: str) -> None:
    """Reject a path that leaves the namespace, in any notation."""
    # The API server's interpretation counts: it decodes percent signs.
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
        # A proxy before the server may interpret dots and double slashes differently.
        raise EvaluationError(
            f"path {path} must not contain dots, double slashes or escapes in namespaced policies"
        )


def check_namespace(found: Json, own: str, what: str) -> None:
    """Reject any namespace other than the policy's; none at all is another one too."""
    if found == own:
        return
    where = f"namespace {found}" if found else "no namespace"
    raise EvaluationError(
        f"a policy of namespace {own} cannot reach {where}: {what} must be in namespace {own}"
    )


def check_kind(api_version: str, kind: str, own: str) -> None:
    """Reject a cluster-scoped kind."""
    group, _, version = api_version.rpartition("/")
    if builtin_names().of_kind(group, version, kind).namespaced is False:
        raise EvaluationError(
            f"a policy of namespace {own} cannot reach {api_version} {kind}: "
            "the kind is cluster-scoped"
        )


def check_same_object(before: JsonObject, after: JsonObject) -> None:
    """Reject a change that would be written to another object than the one that was read."""
    if any(before.get(name) != after.get(name) for name in ("apiVersion", "kind")):
        raise EvaluationError("a mutation must not change apiVersion or kind of its target")
    old, new = before.get("metadata"), after.get("metadata")
    if not isinstance(old, dict) or not isinstance(new, dict):
        raise EvaluationError("a mutation must not remove the metadata of its target")
    for name in _IDENTITY:
        if old.get(name) != new.get(name):
            raise EvaluationError(
                f"a mutation must not change metadata.{name} of its target: "
                f"{old.get(name)!r} became {new.get(name)!r}"
            )
