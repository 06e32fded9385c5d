"""The scale of an object: how many replicas it has and shall have, whatever its kind."""

from http import HTTPStatus

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.kinds.custom_shapes import CustomShape
from lictor.apiserver.kinds.schema_words import INVALID
from lictor.apiserver.reading import read_object, read_text
from lictor.apiserver.tables.table_columns import tell_labels, tell_selector
from lictor.errors import RefusedRequestError
from lictor.raw import Json, JsonObject

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_USUAL = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def read_scale(kind: ServedKind, document: JsonObject) -> JsonObject:
    """The Scale of an object."""
    paths = _find_paths(kind)
    metadata = read_object(document, "metadata")
    status: JsonObject = {"replicas": _read_number(document, paths["statusReplicasPath"])}
    selector = _read_selector(kind, document, paths)
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in _SHOWN if field in metadata},
        "spec": {"replicas": _read_number(document, paths["specReplicasPath"])},
        "status": status,
    }


def write_scale(kind: ServedKind, document: JsonObject, scale: JsonObject) -> JsonObject:
    """The object with as many replicas as its Scale wants; raises RefusedRequestError."""
    wanted = read_object(scale, "spec").get("replicas", 0)
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise RefusedRequestError(
            "spec.replicas of a Scale is a whole number",
            code=HTTPStatus.BAD_REQUEST,
            reason="BadRequest",
        )
    path = _find_paths(kind)["specReplicasPath"]
    if wanted < 0:
        raise _refuse(kind, document, path, wanted)
    return _write(document, _split(path), wanted)


def _find_paths(kind: ServedKind) -> JsonObject:
    return kind.shape.scale if isinstance(kind.shape, CustomShape) else _USUAL


def _split(path: str) -> list[str]:
    return path.lstrip(".").split(".")


def _read_number(document: JsonObject, path: str) -> int:
    found = _read(document, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _read(document: JsonObject, path: str) -> Json:
    *holders, last = _split(path)
    holder = document
    for field in holders:
        holder = read_object(holder, field)
    return holder.get(last)


def _write(holder: JsonObject, fields: list[str], value: int) -> JsonObject:
    first, *rest = fields
    inner = _write(read_object(holder, first), rest, value) if rest else value
    return {**holder, first: inner}


def _read_selector(kind: ServedKind, document: JsonObject, paths: JsonObject) -> str:
    if kind.is_custom:
        path = read_text(paths, "labelSelectorPath")
        found = _read(document, path) if path else None
        return found if isinstance(found, str) else ""
    selector = read_object(document, "spec").get("selector")
    if kind.kind == "ReplicationController":
        return tell_labels(selector or {}, "")
    return tell_selector(selector, "")


def _refuse(kind: ServedKind, document: JsonObject, path: str, wanted: int) -> RefusedRequestError:
    name = read_text(read_object(document, "metadata"), "name")
    group, told = kind.group, kind.kind
    field, why = path, "should be a non-negative integer"
    if not kind.is_custom:
        group, told, field = "autoscaling", "Scale", "spec.replicas"
        why = "must be greater than or equal to 0"
    message = f"Invalid value: {wanted}: {why}"
    cause = {"reason": INVALID, "message": message, "field": field}
    return RefusedRequestError(
        f'{told}.{group} "{name}" is invalid: {field}: {message}',
        code=HTTPStatus.UNPROCESSABLE_ENTITY,
        reason="Invalid",
        details={"name": name, "group": group, "kind": told, "causes": [cause]},
    )
