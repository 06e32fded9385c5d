"""Where is what a text names (policies, rules, objects, files), and where is it named?"""

import os
import re
from collections.abc import Iterator

import msgspec

from lictor.addons.editor.outline import Cursor
from lictor.addons.editor.workspace_files import WorkspaceFiles, read_objects
from lictor.core.families.registry import registry
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard
from lictor.core.load.yaml import Document
from lictor.core.model.finding import FieldPath
from lictor.core.raw import JsonObject
from lictor.lint.field import Field

_FILE_FIELDS = frozenset(
    (
        "policies", "resources", "targetResources", "paramResources", "exceptions", "variables",
        "userinfo", "context", "clusterResources",
    )
)  # fmt: skip
_TOKEN = re.compile(r"[^\s\[\]{},'\"()]+")
# What is named: something of a policy, or an object by its kind.
_POLICY, _RULE, _ANY_OBJECT = "policy", "rule", ""
_KINDS = {"configMap": "ConfigMap", "globalReference": "GlobalContextEntry"}
_CALLS = (
    (re.compile(r"globalContext\.[gG]et\(\s*['\"]$"), "GlobalContextEntry"),
    (re.compile(r"['\"]configmaps['\"]\s*(?:,[^,]+){1,2}['\"]$"), "ConfigMap"),
)


class Definition(msgspec.Struct, frozen=True):
    """Where something is defined or named: the file, and line and column in it, from zero."""

    path: str
    line: int = 0
    column: int = 0


class NamedLocation(msgspec.Struct, frozen=True):
    """A name in a file: where it is, and the files in which it may be found."""

    cursor: Cursor
    token: str
    source: str
    line: int
    root: str
    files: WorkspaceFiles


def find_token(line: str, column: int) -> str:
    """The name or path that the cursor stands in."""
    for found in _TOKEN.finditer(line):
        if found.start() <= column <= found.end():
            return found[0]
    return ""


def find_definition(location: NamedLocation) -> Definition | None:
    """What a name leads to."""
    cursor, token = location.cursor, location.token
    keys = _list_keys(cursor.path)
    if not token:
        return None
    if cursor.kind == "Test" and len(keys) == 1 and keys[0] in _FILE_FIELDS:
        named = os.path.normpath(os.path.join(os.path.dirname(location.source), token))
        return Definition(named) if os.path.isfile(named) else None
    kind = (
        _name_kind(keys, cursor.kind) if not _is_expression(cursor) else _read_call(cursor, token)
    )
    if kind is not None:
        return next(_search(location, kind), None)
    return _find_variable(location)


def _list_keys(path: FieldPath) -> list[str]:
    return [step for step in path if isinstance(step, str)]


def _is_expression(cursor: Cursor) -> bool:
    last = _list_keys(cursor.path)[-1:]
    return cursor.variable is not None or last in (["expression"], ["messageExpression"])


def _read_call(cursor: Cursor, token: str) -> str | None:
    """The kind of the object that a function of an expression reads."""
    before = cursor.text[: cursor.text.rfind(token)] if token in cursor.text else cursor.text
    return next((kind for call, kind in _CALLS if call.search(before)), None)


def _name_kind(keys: list[str], kind: str) -> str | None:
    """What a field names; None where it names nothing."""
    last = keys[-1] if keys else ""
    if last == "policyName" or keys[-2:] == ["policyRefs", "name"]:
        return _POLICY
    if last == "ruleNames" or keys == ["results", "rule"]:
        return _RULE
    if last == "name" and len(keys) > 1 and keys[-2] in _KINDS:
        return _KINDS[keys[-2]]
    if kind == "Test" and keys[:1] == ["results"]:
        return {"policy": _POLICY, "resources": _ANY_OBJECT}.get(last)
    if last == "name" and "clone" in keys:
        return _ANY_OBJECT
    return "Secret" if last == "publicKeys" else None


# --- in the files of the folder


def _search(location: NamedLocation, kind: str) -> Iterator[Definition]:
    name = location.token.rpartition("/")[2].removeprefix("autogen-")
    policy = _read_policy(location.cursor).rpartition("/")[2] if kind == _RULE else ""
    for path in location.files.list_paths(location.root):
        content = location.files.read(path)
        if name.encode() not in content and not has_wildcard(name):
            continue
        for document in read_objects(content, path):
            found = _find_rule(document.body, policy, name) if kind == _RULE else None
            if kind != _RULE and _is_named(document.body, name, kind):
                found = ("metadata", "name")
            if found is not None:
                yield _locate(document, found)


def _locate(document: Document, path: FieldPath) -> Definition:
    line, column = document.position(path)
    return Definition(document.source, line - 1, column - 1)


def _read_policy(cursor: Cursor) -> str:
    """The policy whose rule is named: beside it, in an exception or in a result of a test."""
    found = ""
    for part in Field(cursor.body).walk(cursor.path):
        found = part["policyName"].text or part["policy"].text or found
    return found


def _is_named(body: JsonObject, name: str, kind: str) -> bool:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("name") != name:
        return False
    if kind == _POLICY:
        return is_policy(body)
    return not kind or body.get("kind") == kind


def is_policy(body: JsonObject) -> bool:
    """Is it a policy, or something that belongs to policies?"""
    group = str(body.get("apiVersion")).rpartition("/")[0]
    return registry().find(group, str(body.get("kind"))) is not None


def _find_rule(body: JsonObject, policy: str, name: str) -> FieldPath | None:
    if policy and not _is_named(body, policy, _POLICY):
        return None
    fits = compile_wildcard(name)
    for rule in Field(body)["spec"]["rules"].each():
        if rule["name"].text and fits(rule["name"].text):
            return (*rule.path, "name")
    return None


# --- in the same document


def _find_variable(location: NamedLocation) -> Definition | None:
    """The context entry, CEL variable or attestor that a word of an expression names."""
    word = location.token.strip("!-+@&|=<>")
    first, _, rest = word.partition(".")
    in_cel = first in ("variables", "attestors", "attestations")
    name = rest.partition(".")[0] if in_cel else first
    document = _find_document(location)
    if document is None or not _is_expression(location.cursor) or not name:
        return None
    for path, entry in _list_declared(Field(document.body), ("context", "variables", first)):
        if entry == re.sub(r"\W.*", "", name):
            return _locate(document, path)
    return None


def _find_document(location: NamedLocation) -> Document | None:
    content = location.files.read(location.source)
    before = [d for d in read_objects(content, location.source) if d.line <= location.line + 1]
    return before[-1] if before else None


def _list_declared(part: Field, lists: tuple[str, ...]) -> Iterator[tuple[FieldPath, str]]:
    for key, value in part.entries():
        if key in lists and value.is_list:
            for entry in value.each():
                yield (*entry.path, "name"), entry["name"].text.partition(".")[0]
        yield from _list_declared(value, lists)
    for item in part.each():
        yield from _list_declared(item, lists)


# --- where something is named


def list_uses(location: NamedLocation) -> Iterator[Definition]:
    """Exceptions, bindings, tests and context entries that name what the cursor is at."""
    cursor = location.cursor
    kind = _name_own_kind(cursor)
    name = _read_name(cursor) if kind != _RULE else location.token
    if kind is None or not name:
        return
    for path in location.files.list_paths(location.root):
        content = location.files.read(path)
        if name.encode() in content:
            for document in read_objects(content, path):
                for leaf in _list_uses(document.body, kind, name, _read_name(cursor)):
                    yield _locate(document, leaf)


def _name_own_kind(cursor: Cursor) -> str | None:
    keys = _list_keys(cursor.path)
    if keys == ["spec", "rules", "name"]:
        return _RULE
    if keys != ["metadata", "name"]:
        return None
    return _POLICY if is_policy(cursor.body) else cursor.kind


def _read_name(cursor: Cursor) -> str:
    return Field(cursor.body)["metadata"]["name"].text


def _list_uses(body: JsonObject, kind: str, name: str, policy: str) -> Iterator[FieldPath]:
    for leaf in Field(body).leaves():
        keys = _list_keys(leaf.path)
        named = _name_kind(keys, str(body.get("kind")))
        text = leaf.text.rpartition("/")[2].removeprefix("autogen-")
        if text != name or named is None or named not in (kind, _ANY_OBJECT):
            continue
        if named == _ANY_OBJECT and kind in (_POLICY, _RULE):
            continue
        location = Cursor(leaf.path, "", is_key=False, body=body)
        if kind != _RULE or _read_policy(location).rpartition("/")[2] == policy:
            yield leaf.path
