"""An AdmissionReview, as the API server sends it, into a Request."""

import re
from collections.abc import Mapping

import msgspec
import orjson

from lictor.errors import LoadError
from lictor.lang.yaml.build import check_depth
from lictor.lang.yaml.nodes import MAX_DEPTH, YamlFault
from lictor.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.raw import Json, JsonObject

_WHERE = "AdmissionReview"
# An API server writes the uid before anything that its clients sent.
_HEAD = 4096
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,128})"')
_VERSION = re.compile(rb'"apiVersion"\s*:\s*"(admission\.k8s\.io/[0-9a-z]{1,20})"')


class Review(msgspec.Struct, frozen=True):
    """A question of the API server; the answer must carry its `uid` and `api_version`."""

    uid: str
    api_version: str
    request: Request
    # Bytes that came; 0 where nobody counted.
    size: int = 0


def _read_object(holder: JsonObject, name: str) -> JsonObject | None:
    value = holder.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise LoadError(f"expected an object at {name}", where=_WHERE)


def _read_text(holder: JsonObject, name: str) -> str:
    value = holder.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise LoadError(f"expected a string at {name}", where=_WHERE)


def _read_operation(request: JsonObject) -> Operation:
    text = _read_text(request, "operation")
    try:
        return Operation(text)
    except ValueError:
        raise LoadError(f'unknown operation "{text}"', where=_WHERE) from None


def _read_caller(request: JsonObject) -> Caller:
    user = _read_object(request, "userInfo") or {}
    groups = user.get("groups") or ()
    if not isinstance(groups, (list, tuple)) or not all(isinstance(g, str) for g in groups):
        raise LoadError("expected a list of strings at userInfo.groups", where=_WHERE)
    return Caller(
        username=_read_text(user, "username"),
        uid=_read_text(user, "uid"),
        groups=tuple(groups),
        extra=_read_object(user, "extra") or {},
    )


def build_review(body: Json, *, namespace_labels: Mapping[str, str] | None = None) -> Review:
    """The request of an AdmissionReview; the roles of its caller are not known to it."""
    asked = _read_object(body, "request") if isinstance(body, dict) else None
    if asked is None:
        raise LoadError("expected an object with a request", where=_WHERE)
    kind = _read_object(asked, "kind") or {}
    request = Request(
        kind=GroupVersionKind(
            _read_text(kind, "group"), _read_text(kind, "version"), _read_text(kind, "kind")
        ),
        object=_read_object(asked, "object"),
        old_object=_read_object(asked, "oldObject"),
        operation=_read_operation(asked),
        subresource=_read_text(asked, "subResource"),
        caller=_read_caller(asked),
        namespace_labels=namespace_labels or {},
        admission=asked,
    )
    return Review(_read_text(asked, "uid"), _read_text(body, "apiVersion"), request)


def find_head(data: bytes) -> tuple[str, str] | None:
    """The `uid` and `apiVersion` of a review that cannot be read as a whole, as far as they stand.

    Good for a refusal only: whoever asked must know which question it answers.
    """
    uid = _UID.search(data, 0, _HEAD)
    if uid is None:
        return None
    version = _VERSION.search(data, 0, _HEAD)
    return uid[1].decode(), version[1].decode() if version is not None else ""


def load_review(data: bytes, *, namespace_labels: Mapping[str, str] | None = None) -> Review:
    """The same from the body of an HTTP request."""
    try:
        body = orjson.loads(data)
        # Only what holds so many brackets can be nested too deep to walk.
        if data.count(b"{") + data.count(b"[") > MAX_DEPTH:
            check_depth(body)
    except orjson.JSONDecodeError as error:
        raise LoadError(f"not JSON: {error}", where=_WHERE) from error
    except YamlFault as fault:
        raise LoadError(fault.message, where=_WHERE) from fault
    review = build_review(body, namespace_labels=namespace_labels)
    return Review(review.uid, review.api_version, review.request, len(data))
