"""Converts an AdmissionReview of the API server to a Request."""

import re
from collections.abc import Mapping

import msgspec
import orjson

from lictor.core.errors import LoadError
from lictor.core.lang.yaml.plain_json import MAX_DEPTH, YamlFault, check_depth, cut_depth
from lictor.core.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.core.raw import Json, JsonObject

_LARGE = 64 * 1024
_WHERE = "AdmissionReview"
# An API server writes the uid before anything from its clients.
_HEAD = 4096
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,128})"')
_VERSION = re.compile(rb'"apiVersion"\s*:\s*"(admission\.k8s\.io/[0-9a-z]{1,20})"')


_OPERATIONS = {each.value: each for each in Operation}
_REVIEW_TYPES = {"request": dict, "apiVersion": str}
_REQUEST_TYPES = {
    "uid": str, "kind": dict, "object": dict, "oldObject": dict, "operation": str,
    "subResource": str, "userInfo": dict,
}  # fmt: skip
_KIND_TYPES = {"group": str, "version": str, "kind": str}
_USER_TYPES = {"username": str, "uid": str, "extra": dict}


class Review(msgspec.Struct, frozen=True):
    """A request of the API server; the response must have its `uid` and `api_version`."""

    uid: str
    api_version: str
    request: Request
    # Size in bytes; 0 if unknown.
    size: int = 0


def _check_types(holder: JsonObject, types: Mapping[str, type]) -> None:
    for name, wanted in types.items():
        value = holder.get(name)
        if value is not None and not isinstance(value, wanted):
            what = "an object" if wanted is dict else "a string"
            raise LoadError(f"expected {what} at {name}", where=_WHERE)


def build_review(
    body: Json, *, namespace_labels: Mapping[str, str] | None = None, size: int = 0
) -> Review:
    """The request of an AdmissionReview, without the roles of its caller."""
    if not isinstance(body, dict) or body.get("request") is None:
        raise LoadError("expected an object with a request", where=_WHERE)
    _check_types(body, _REVIEW_TYPES)
    content: JsonObject = body["request"]
    _check_types(content, _REQUEST_TYPES)
    kind, user = content.get("kind") or {}, content.get("userInfo") or {}
    _check_types(kind, _KIND_TYPES)
    _check_types(user, _USER_TYPES)
    operation = _OPERATIONS.get(content.get("operation") or "")
    if operation is None:
        raise LoadError(f'unknown operation "{content.get("operation") or ""}"', where=_WHERE)
    groups = user.get("groups") or ()
    if not isinstance(groups, (list, tuple)) or not all(isinstance(g, str) for g in groups):
        raise LoadError("expected a list of strings at userInfo.groups", where=_WHERE)
    request = Request(
        kind=GroupVersionKind(
            kind.get("group") or "", kind.get("version") or "", kind.get("kind") or ""
        ),
        object=content.get("object"),
        old_object=content.get("oldObject"),
        operation=operation,
        subresource=content.get("subResource") or "",
        caller=Caller(
            username=user.get("username") or "",
            uid=user.get("uid") or "",
            groups=tuple(groups),
            extra=user.get("extra") or {},
        ),
        namespace_labels=namespace_labels or {},
        admission=content,
    )
    return Review(content.get("uid") or "", body.get("apiVersion") or "", request, size)


def find_head(data: bytes) -> tuple[str, str] | None:
    """The `uid` and `apiVersion` of a review that cannot be parsed, as far as they are readable.

    For a denial only: the API server must know which request it answers.
    """
    uid = _UID.search(data, 0, _HEAD)
    if uid is None:
        return None
    version = _VERSION.search(data, 0, _HEAD)
    return uid[1].decode(), version[1].decode() if version is not None else ""


def load_review(data: bytes, *, namespace_labels: Mapping[str, str] | None = None) -> Review:
    """The same from the body of an HTTP request."""
    if not data:
        raise LoadError("the body is empty")
    try:
        body = orjson.loads(data)
        # Only a body with this many brackets can be nested too deeply; counting them in a large one
        # takes longer than the check.
        if len(data) > _LARGE or data.count(b"{") + data.count(b"[") > MAX_DEPTH:
            _check_depth(body)
    except orjson.JSONDecodeError as error:
        raise LoadError(f"not JSON: {error}", where=_WHERE) from error
    except RecursionError as error:
        raise LoadError("nested too deeply") from error
    except YamlFault as fault:
        raise LoadError(fault.message, where=_WHERE) from fault
    review = build_review(body, namespace_labels=namespace_labels, size=len(data))
    _check_metadata(review.request.object, "object")
    _check_metadata(review.request.old_object, "oldObject")
    return review


def _check_depth(body: Json) -> None:
    """Raise YamlFault for excessive nesting, except on DELETE.

    A deletion is evaluated without the deep part: otherwise the object could never be deleted.
    """
    request = body.get("request") if isinstance(body, dict) else None
    if isinstance(request, dict) and request.get("operation") == Operation.DELETE:
        # The object of a deletion is at this level.
        cut_depth(request.get("oldObject"), MAX_DEPTH - 2)
    check_depth(body)


def _check_metadata(document: JsonObject | None, where: str) -> None:
    """Check what every object of an API server has, and other code relies on."""
    if document is None or "metadata" not in document:
        return
    metadata = document["metadata"]
    if not isinstance(metadata, dict):
        raise LoadError(f"expected an object at {where}.metadata")
    for name in ("labels", "annotations"):
        texts = metadata.get(name)
        if texts is None:
            continue
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise LoadError(f"expected an object of strings at {where}.metadata.{name}")
    for name in ("name", "namespace", "generateName", "uid"):
        if not isinstance(metadata.get(name, ""), str):
            raise LoadError(f"expected a string at {where}.metadata.{name}")
