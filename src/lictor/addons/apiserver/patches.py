"""The bodies of PATCH requests, as functions from an object to the patched object."""

import logging
from collections.abc import Callable, Hashable
from enum import StrEnum
from http import HTTPStatus
from typing import TypeAlias

from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.status_errors import bad_request, too_large, unsupported_media
from lictor.core.errors import CompileError, EvaluationError, RefusedRequestError, TooLargeError
from lictor.core.facts.merge_keys import PLAIN, MergedList, MergeShape, find_merges
from lictor.core.lang.patch.json_patch import apply_json_patch
from lictor.core.raw import Json, JsonObject

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def merge_strategic(document: JsonObject, patch: JsonObject) -> JsonObject:
    """The object with the patch merged into it; raises EvaluationError for a patch that is none."""
    try:
        return _merge_maps(document, patch, find_merges(document))
    except RecursionError as error:
        raise EvaluationError("the patch is nested too deeply") from error


def _merge_maps(current: JsonObject, patch: JsonObject, shape: MergeShape) -> JsonObject:
    if _DIRECTIVE in patch:
        return _follow_directive(patch)
    merged = _retain(current, patch)
    orders = {
        key.removeprefix(_ORDER): value for key, value in patch.items() if key.startswith(_ORDER)
    }
    for key, value in patch.items():
        if key == _RETAIN or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE):
            _delete_elements(merged, key.removeprefix(_DELETE), value)
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_values(merged.get(key), value, shape.get(key, PLAIN))
    for key, order in orders.items():
        _check_order(patch.get(key), order, shape.get(key, PLAIN))
        _reorder(merged, key, order, current.get(key), shape.get(key, PLAIN))
    return merged


def _follow_directive(patch: JsonObject) -> JsonObject:
    match patch[_DIRECTIVE]:
        case "replace":
            return {key: value for key, value in patch.items() if key != _DIRECTIVE}
        case "delete":
            return {}
        case other:
            raise EvaluationError(f"unknown patch type: {other} in map")


def _retain(current: JsonObject, patch: JsonObject) -> JsonObject:
    """A copy of what is there, of which only the named keys stay where the patch names some."""
    if _RETAIN not in patch:
        return dict(current)
    wanted = patch[_RETAIN]
    if not isinstance(wanted, list) or not all([isinstance(each, str) for each in wanted]):
        raise EvaluationError("invalid patch format of retainKeys")
    for key, value in patch.items():
        if value is not None and not key.startswith("$") and key not in wanted:
            raise EvaluationError("invalid patch format of retainKeys")
    return {key: value for key, value in current.items() if key in wanted}


def _delete_elements(merged: JsonObject, key: str, unwanted: Json) -> None:
    if not isinstance(unwanted, list):
        raise EvaluationError("invalid patch format of primitive list")
    if isinstance(merged.get(key), list):
        merged[key] = [each for each in merged[key] if each not in unwanted]


def _merge_values(current: Json, patch: Json, shape: MergeShape | MergedList) -> Json:
    if isinstance(patch, dict):
        inner = PLAIN if isinstance(shape, MergedList) else shape
        if isinstance(current, dict):
            return _merge_maps(current, patch, inner)
    elif isinstance(patch, list) and isinstance(current, list) and isinstance(shape, MergedList):
        return _merge_lists(current, patch, shape)
    return _clean(patch)


def _clean(patch: Json) -> Json:
    """What a patch stands for where nothing is yet: no directives, no null."""
    if isinstance(patch, dict):
        if _DIRECTIVE in patch and patch[_DIRECTIVE] != "replace":
            return {}
        return {
            key: _clean(value)
            for key, value in patch.items()
            if value is not None and not key.startswith("$")
        }
    if isinstance(patch, list):
        return [_clean(each) for each in patch if not _is_directive(each)]
    return patch


def _is_directive(element: Json) -> bool:
    return isinstance(element, dict) and _DIRECTIVE in element


# --- lists


def _merge_lists(current: list[Json], patch: list[Json], shape: MergedList) -> list[Json]:
    if not shape.keys:
        merged = list({_freeze(each): each for each in (*current, *patch)}.values())
        return _interleave(merged, [_freeze(each) for each in patch], current, "")
    key = shape.keys[0]
    _check_maps(current, patch)
    kept, wanted, replaces = _follow_elements(current, patch, key)
    if replaces:
        return wanted
    merged = list(kept)
    for element in wanted:
        place = _find(merged, key, _require_key(element, key))
        if place is None:
            # Unchanged: remaining directives are reported as unknown fields.
            merged.append(element)
        else:
            merged[place] = _merge_maps(merged[place], element, shape.element)
    return _interleave(merged, [_freeze(each[key]) for each in wanted], kept, key)


def _check_maps(*lists: list[Json]) -> None:
    for each in lists:
        if not all([isinstance(element, dict) for element in each]):
            raise EvaluationError("expected a map in a list that is merged by key")


def _follow_elements(
    current: list[Json], patch: list[Json], key: str
) -> tuple[list[Json], list[Json], bool]:
    """What stays, what is to be merged, and whether only the latter shall be there."""
    kept, wanted, replaces = list(current), [], False
    for element in patch:
        match element.get(_DIRECTIVE):
            case None:
                wanted.append(element)
            case "delete":
                name = _require_key(element, key)
                kept = [each for each in kept if each.get(key) != name]
            case "replace":
                replaces = True
            case "merge":
                raise EvaluationError("merging lists cannot yet be specified in the patch")
            case other:
                raise EvaluationError(f"unknown patch type: {other} in map")
    return kept, wanted, replaces


def _require_key(element: JsonObject, key: str) -> Json:
    if key not in element:
        raise EvaluationError(f"map: does not contain declared merge key: {key}")
    return element[key]


def _find(elements: list[Json], key: str, value: Json) -> int | None:
    for place, element in enumerate(elements):
        if key in element and element[key] == value:
            return place
    return None


def _reorder(
    merged: JsonObject, key: str, order: Json, before: Json, shape: MergeShape | MergedList
) -> None:
    """Put a list into the order of the patch."""
    if not isinstance(order, list):
        raise EvaluationError("invalid patch format of setElementOrder list")
    elements = merged.get(key)
    if not isinstance(elements, list) or not isinstance(shape, MergedList):
        return
    name = shape.keys[0] if shape.keys else ""
    if name:
        _check_maps(elements, order)
        order = [_require_key(each, name) for each in order]
    live = before if isinstance(before, list) else []
    merged[key] = _interleave(elements, [_freeze(each) for each in order], live, name)


def _check_order(patch: Json, order: Json, shape: MergeShape | MergedList) -> None:
    """The elements of a patch must be in the order that it sets."""
    if not isinstance(patch, list) or not isinstance(order, list):
        return
    key = shape.keys[0] if isinstance(shape, MergedList) and shape.keys else ""
    wanted = iter([_name_loosely(each, key) for each in order])
    named = [_name_loosely(each, key) for each in patch if not _is_directive(each)]
    if not all([name in wanted for name in named]):
        raise EvaluationError("The order in patch list doesn't match $setElementOrder list")


def _name_loosely(element: Json, key: str) -> Hashable:
    return _freeze(element.get(key)) if key and isinstance(element, dict) else _freeze(element)


def _interleave(
    merged: list[Json], order: list[Hashable], live: list[Json], key: str
) -> list[Json]:
    """Those of the patch in its order; the others before the first that was behind them."""
    places = {name: place for place, name in reversed(list(enumerate(order)))}
    server = {_name(each, key): place for place, each in reversed(list(enumerate(live)))}
    named = sorted(
        (each for each in merged if _name(each, key) in places),
        key=lambda each: places[_name(each, key)],
    )
    others = [each for each in merged if _name(each, key) not in places]
    others.sort(key=lambda each: server.get(_name(each, key), len(server)))
    result: list[Json] = []
    for each in named:
        place = server.get(_name(each, key))
        while others and place is not None and _is_before(others[0], place, server, key):
            result.append(others.pop(0))
        result.append(each)
    return result + others


def _is_before(element: Json, place: int, server: dict[Hashable, int], key: str) -> bool:
    found = server.get(_name(element, key))
    return found is not None and found < place


def _name(element: Json, key: str) -> Hashable:
    return _freeze(element.get(key) if key else element)


def _freeze(value: Json) -> Hashable:
    """A value that can be looked up; 1 and true are not the same."""
    if isinstance(value, (dict, list)):
        return repr(value)
    return (type(value), value)


log = logging.getLogger(__name__)
ObjectEdit: TypeAlias = Callable[[JsonObject], JsonObject]
_MAX_OPERATIONS = 10_000


class PatchKind(StrEnum):
    """The content types of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


def read_patch_kind(kind: ServedKind, content_type: str) -> PatchKind:
    """Which patch is this? Custom kinds know no strategic one."""
    media = content_type.partition(";")[0].strip().lower()
    accepted = [each for each in PatchKind if not (kind.is_custom and each is PatchKind.STRATEGIC)]
    for each in accepted:
        if media == each.value:
            return each
    if kind.is_custom:
        raise unsupported_media(each.value for each in accepted)
    raise RefusedRequestError(
        "415: Unsupported Media Type",
        code=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        reason="UnsupportedMediaType",
        details={},
    )


def compile_patch(patch_kind: PatchKind, patch: Json) -> ObjectEdit:
    """A function that patches an object; raises RefusedRequestError, as the function itself."""
    if patch_kind is PatchKind.JSON:
        return _compile_operations(patch)
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a patch must be an object")
    if patch_kind is PatchKind.MERGE:
        return lambda document: _require_object(merge_json(document, patch))
    return lambda document: _merge(document, patch)


def _compile_operations(patch: Json) -> ObjectEdit:
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: a JSON patch must be a list of operations")
    if len(patch) > _MAX_OPERATIONS:
        raise too_large(
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, got {len(patch)}"
        )

    def edit(document: JsonObject) -> JsonObject:
        try:
            return _require_object(apply_json_patch(document, patch, must_pass_tests=True))
        except (CompileError, EvaluationError, TooLargeError) as error:
            raise _refuse(str(error)) from error

    return edit


def _merge(document: JsonObject, patch: JsonObject) -> JsonObject:
    try:
        return merge_strategic(document, patch)
    except EvaluationError as error:
        raise bad_request(str(error)) from error


def merge_json(current: Json, patch: Json) -> Json:
    """RFC 7386: maps are merged, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_json(merged.get(key), value)
    return merged


def _require_object(patched: Json) -> JsonObject:
    if not isinstance(patched, dict):
        raise _refuse("what the patch leaves is no object")
    return patched


def _refuse(why: str) -> RefusedRequestError:
    # An API server does not report the reason either; its log does.
    log.info("patch refused", extra={"why": why})
    return RefusedRequestError(
        "the server rejected our request due to an error in our request",
        code=HTTPStatus.UNPROCESSABLE_ENTITY,
        reason="Invalid",
        details={},
    )
