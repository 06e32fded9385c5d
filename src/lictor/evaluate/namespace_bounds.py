"""May a Policy of one namespace read what this path of the API leads to?"""

import posixpath
import re
from urllib.parse import unquote, urlsplit

from lictor.errors import EvaluationError

_INSIDE = re.compile(r"/(?:api/[^/]+|apis/[^/]+/[^/]+)/namespaces/([^/]+)(?:/.*)?")


def check_path(url_path: str, namespace: str) -> None:
    """Refuse a path that leads out of the namespace, however it is written."""
    # What counts is what the API server makes of it: percent signs are undone there.
    path = unquote(urlsplit(url_path).path)
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
    if clean != path.rstrip("/"):
        # Between us and the server someone may read dots and double slashes differently.
        raise EvaluationError(f"path {path} must be written plainly in namespaced policies")
