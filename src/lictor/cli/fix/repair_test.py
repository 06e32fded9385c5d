"""Test, values and user info files in their old form become ones in today's form."""

from collections.abc import Container, Iterable
from typing import TypeVar

from lictor.cli.fix.repair import Repair
from lictor.errors import LoadError
from lictor.load.test_files import OLDER_FIELDS
from lictor.raw import Json, JsonObject

API_VERSION = "cli.kyverno.io/v1alpha1"
_FIELDS = {
    "apiVersion", "kind", "metadata", "name", "policies", "resources", "jsonPayload",
    "httpPayloads", "envoyPayloads", "targetResources", "variables", "paramResources", "userinfo",
    "results", "checks", "values", "exceptions", "context", "clusterResources",
}  # fmt: skip
_LISTED = ("resources", "resourceSpecs")
_ORDER = ("policy", "rule", "result", "kind", "generatedResource", "cloneSourceResource")
_DUPLICATES = "test results contains duplicate resources"

Item = TypeVar("Item")


def repair_kind(document: JsonObject, kind: str) -> Repair:
    """Give a document its apiVersion and kind."""
    messages = []
    made = dict(document)
    if not made.get("apiVersion"):
        messages.append(f"api version is not set, setting `{API_VERSION}`")
        made["apiVersion"] = API_VERSION
    if not made.get("kind"):
        messages.append(f"kind is not set, setting `{kind}`")
        made["kind"] = kind
    return Repair(made, tuple(messages))


def repair_test(
    document: Json,
    file_name: str,
    *,
    compress: bool = False,
    namespaced: Container[str] = (),
) -> Repair:
    """Bring a test up to date; LoadError where it is no test.

    `namespaced` are the policies that live in a namespace: the `namespace` of an older result is
    theirs, or else that of the resources.
    """
    _check(document)
    messages: list[str] = []
    metadata = dict(document.get("metadata") or {})
    if not metadata.get("name") and not document.get("name"):
        messages.append("name is not set")
        metadata["name"] = file_name
    typed = repair_kind(document, "Test")
    messages += typed.messages
    made = {key: value for key, value in typed.document.items() if key != "name"}
    if document.get("name"):
        messages.append("name is deprecated, moving it into `metadata.name`")
        metadata["name"] = document["name"]
    made["metadata"] = metadata
    for field in ("policies", "resources"):
        if not made.get(field):
            messages.append(f"test has no {field}")
        else:
            made[field] = _unique(made[field])
    if made.get("results"):
        renamed = [_rename_fields(result, namespaced, messages) for result in made["results"]]
        made["results"] = _repair_results(renamed, messages, compress=compress)
    return Repair(made, tuple(messages))


def _check(document: Json) -> None:
    if not isinstance(document, dict):
        raise LoadError("a test is a mapping")
    for field in document:
        if field not in _FIELDS:
            raise LoadError(f'unknown field "{field}"')
    for field in ("policies", "resources", "results"):
        if not isinstance(document.get(field) or [], list):
            raise LoadError(f"{field} must be a list")
    if not isinstance(document.get("metadata", {}), dict | None):
        raise LoadError("metadata must be a mapping")
    for result in document.get("results") or []:
        _check_result(result)


def _check_result(result: Json) -> None:
    if not isinstance(result, dict):
        raise LoadError("each of the results must be a mapping")
    for field in OLDER_FIELDS:
        if not isinstance(result.get(field) or "", str):
            raise LoadError(f"`{field}` of a result must be a text")
    names = result.get("resources") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise LoadError("the resources of a result must be a list of names")


def _rename_fields(
    result: JsonObject, namespaced: Container[str], messages: list[str]
) -> JsonObject:
    """Put what older fields say where it stands today."""
    made = {name: value for name, value in result.items() if name not in OLDER_FIELDS}
    for name in OLDER_FIELDS:
        if result.get(name):
            place = OLDER_FIELDS[name]
            messages.append(f"test result uses deprecated `{name}` field, moving it into {place}")
    if result.get("resource"):
        made["resources"] = [*(made.get("resources") or ()), result["resource"]]
    for old, new in (("status", "result"), ("patchedResource", "patchedResources")):
        if result.get(old) and made.setdefault(new, result[old]) != result[old]:
            raise LoadError(f"a result has both `{old}` and `{new}`, and they differ")
    return _place_namespace(made, result.get("namespace"), namespaced)


def _place_namespace(made: JsonObject, namespace: Json, namespaced: Container[str]) -> JsonObject:
    if not namespace:
        return made
    if made.get("policy") in namespaced:
        return {**made, "policy": f"{namespace}/{made['policy']}"}
    names = made.get("resources") or []
    return {**made, "resources": [n if "/" in n else f"{namespace}/{n}" for n in names]}


def _repair_results(
    results: list[JsonObject], messages: list[str], *, compress: bool
) -> list[JsonObject]:
    repaired = [_repair_result(result, messages) for result in results]
    if compress:
        repaired = [_repair_result(result, messages) for result in _merge(repaired)]
    return sorted(repaired, key=_sort_key)


def _repair_result(result: JsonObject, messages: list[str]) -> JsonObject:
    names = result.get("resources") or []
    if len(set(names)) == len(names):
        return result
    messages.append(_DUPLICATES)
    return {**result, "resources": _unique(names)}


def _merge(results: Iterable[JsonObject]) -> list[JsonObject]:
    """Results that differ in nothing but their resources become one."""
    merged: dict[str, JsonObject] = {}
    for result in results:
        rest = {key: value for key, value in result.items() if key not in _LISTED}
        known = merged.setdefault(repr(sorted(rest.items())), rest)
        for field in _LISTED:
            if result.get(field):
                known[field] = [*known.get(field, ()), *result[field]]
    return list(merged.values())


def _sort_key(result: JsonObject) -> tuple[list[str], int, list[str]]:
    names = sorted(result.get("resources") or [])
    return [str(result.get(field, "")) for field in _ORDER], len(names), names


def _unique(items: list[Item]) -> list[Item]:
    seen: list[Item] = []
    for item in items:
        if item not in seen:
            seen.append(item)
    return seen
