"""Converts deprecated fields of policy, test, values and user info files."""

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from lictor.cli.inputs.input_files import OLDER_FIELDS
from lictor.core.errors import LoadError
from lictor.core.families.registry import registry
from lictor.core.files import TakesName, read_bytes, walk_folder
from lictor.core.load.yaml import iter_documents
from lictor.core.raw import Json, JsonObject
from lictor.core.report.yaml_text import render_yaml


def find_files(path: str, takes: TakesName) -> Iterator[str]:
    """Return the file itself, or the files in a folder. Raises OSError if it does not exist."""
    os.stat(path)
    if not os.path.isdir(path):
        yield path
        return
    # Files are written: those behind a link to a folder are left alone.
    yield from walk_folder(path, takes, lambda name: name != ".git")


def read_bodies(path: str) -> list[Json]:
    """All documents of a file; empty ones are left out."""
    documents = iter_documents(read_bytes(path), path)
    return [document.body for document in documents if document.body is not None]


def write_documents(path: str, documents: Sequence[Json]) -> None:
    """Write documents in place of those of a file."""
    text = "---\n".join(render_yaml(document) for document in documents)
    replace_file(path, text.encode())


def replace_file(path: str, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old text or the new."""
    # What a link leads to is written, not the link.
    real = os.path.realpath(path)
    beside = f"{real}.new"
    Path(beside).write_bytes(content)
    os.chmod(beside, os.stat(real).st_mode)
    os.replace(beside, real)


class Repair(msgspec.Struct, frozen=True):
    """A repaired document; unchanged if nothing was deprecated."""

    document: Json
    messages: tuple[str, ...]


_ACTIONS = {"enforce": "Enforce", "audit": "Audit"}
_OPERATORS = {"Equal": "Equals", "NotEqual": "NotEquals", "In": "AllIn", "NotIn": "AnyNotIn"}
_OLD_FILTER = ("resources", "subjects", "roles", "clusterRoles")


def is_policy(document: Json) -> bool:
    """Whether a document is a policy of a kind with deprecated fields."""
    if not isinstance(document, dict):
        return False
    group = str(document.get("apiVersion")).rpartition("/")[0]
    kind = registry().find(group, str(document.get("kind")))
    return kind is not None and kind.has_named_rules


def repair_policy(document: JsonObject) -> Repair:
    """Return the document with deprecated fields replaced."""
    messages: list[str] = []
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return Repair(document, ())
    spec = dict(spec)
    action = spec.get("validationFailureAction")
    if isinstance(action, str):
        spec["validationFailureAction"] = _ACTIONS.get(action.lower(), action)
    if isinstance(spec.get("rules"), list):
        spec["rules"] = [_repair_rule(rule, messages) for rule in spec["rules"]]
    return Repair({**document, "spec": spec}, tuple(messages))


def _repair_rule(rule: Json, messages: list[str]) -> Json:
    if not isinstance(rule, dict):
        return rule
    made = dict(rule)
    for word in ("match", "exclude"):
        if isinstance(made.get(word), dict):
            made[word] = _repair_filter(word, made[word], messages)
    if "preconditions" in made:
        made["preconditions"] = _repair_conditions(made["preconditions"], messages)
    return made


def _repair_filter(word: str, block: JsonObject, messages: list[str]) -> JsonObject:
    old = {key: block[key] for key in _OLD_FILTER if block.get(key)}
    if not old:
        return block
    messages.append(f"{word} uses old syntax, moving to any")
    kept = {key: value for key, value in block.items() if key not in _OLD_FILTER}
    present = kept.get("any")
    return {**kept, "any": [*(present if isinstance(present, list) else []), old]}


def _repair_conditions(conditions: Json, messages: list[str]) -> Json:
    if isinstance(conditions, list):
        messages.append("preconditions use old syntax, moving to all")
        conditions = {"all": conditions}
    if not isinstance(conditions, dict):
        return conditions
    return {
        word: [_repair_condition(condition, messages) for condition in block]
        if isinstance(block, list)
        else block
        for word, block in conditions.items()
    }


def _repair_condition(condition: Json, messages: list[str]) -> Json:
    operator = condition.get("operator") if isinstance(condition, dict) else None
    if not isinstance(operator, str) or operator not in _OPERATORS:
        return condition
    messages.append(f"condition uses old operator `{operator}`, updating")
    return {**condition, "operator": _OPERATORS[operator]}


API_VERSION = "cli.kyverno.io/v1alpha1"
_FIELDS = {
    "apiVersion", "kind", "metadata", "name", "policies", "resources", "jsonPayload",
    "jsonPayloads", "apiCallResponses", "globalContextEntries",
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
    """Replace deprecated fields of a test. Raises LoadError for another document.

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
    """Move the values of older fields to the fields that replace them."""
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
    """Merge results that differ only in their resources."""
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
