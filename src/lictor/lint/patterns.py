"""Checks of patterns, patches and generated objects: anchors, references, labels, operations."""

import re
from collections.abc import Iterator
from itertools import chain

from lictor.core.errors import CompileError
from lictor.core.lang.assertion import compile_assertion
from lictor.core.lang.patch import parse_json_patch
from lictor.core.lang.pattern import compile_pattern
from lictor.core.lang.pattern.anchor import ANCHOR_FORMS, Modifier, is_broken_anchor, parse_anchor
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.cluster_mutations import list_patched
from lictor.lint.field import Field, list_loops

_VARIABLE = re.compile(r"\{\{(?:\{[^{}]*\}|[^{}])*\}\}")
# Replaces a variable: a word that YAML and JSON accept anywhere.
_WORD = "variable"
# The end of a list without duplicate names.
_NAMED = re.compile(r"/(containers|initContainers|volumes)/-$")
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_WITHOUT_VALUE = ("remove", "move", "copy")


def check_json_patches(rule: Field) -> Iterator[Finding]:
    """Every JSON patch of a rule."""
    mutate = rule["mutate"]
    yield from _check_patch(mutate["patchesJson6902"], may_vary=False)
    for loop in list_loops(mutate):
        yield from _check_patch(loop["patchesJson6902"], may_vary=True)
    if not rule.present("preconditions") and not mutate.present("targets"):
        yield from _check_repetition(mutate["patchesJson6902"])


def _check_repetition(patch: Field) -> Iterator[Finding]:
    """API servers call a webhook again if a later one has changed the object."""
    for number, path in list_patched(patch, "add"):
        if not _NAMED.search(path):
            continue
        message = (
            f"operation {number}: adds to {path} again when the webhook is reinvoked, and the "
            "Pod is refused for a duplicate name: add a precondition that it is missing"
        )
        yield flag("repeated-patch", patch.path, message)


def _check_patch(patch: Field, *, may_vary: bool) -> Iterator[Finding]:
    if not patch.text:
        return
    text = patch.text
    if "{{" in text and not may_vary:
        yield from _check_paths(patch)
    while _VARIABLE.search(text):
        text = _VARIABLE.sub(_WORD, text)
    try:
        operations = parse_json_patch(text)
    except CompileError as error:
        yield flag("bad-mutate", patch.path, error.message)
        return
    for number, operation in enumerate(operations, 1):
        for message, suggestion in _list_mistakes(operation):
            yield flag("bad-mutate", patch.path, f"operation {number}: {message}", suggestion)


def _check_paths(patch: Field) -> Iterator[Finding]:
    for number, path in list_patched(patch):
        if _VARIABLE.search(path):
            message = f"operation {number}: the path must not contain variables: use foreach"
            yield flag("misplaced-variable", patch.path, message)


def _list_mistakes(operation: Json) -> Iterator[tuple[str, str]]:
    if not isinstance(operation, dict):
        yield "expected an object with op and path", ""
        return
    name, path = operation.get("op"), operation.get("path")
    if not isinstance(name, str) or name not in (*_OPERATIONS, _WORD):
        known = suggest(str(name), _OPERATIONS)
        yield f'expected op to be one of {", ".join(_OPERATIONS)}, found "{name}"', known
    if not isinstance(path, str):
        yield '"path" is missing', ""
    elif not path.startswith(("/", _WORD)):
        yield f'the path must begin with "/", found "{path}"', f"/{path}"
    if isinstance(name, str) and name not in _WITHOUT_VALUE and "value" not in operation:
        yield '"value" is missing', ""


def check_patterns(rule: Field) -> Iterator[Finding]:
    """Every pattern of a rule."""
    for body in (rule["validate"], *list_loops(rule["validate"])):
        yield from _check_pattern(body["pattern"])
        if body["anyPattern"] and not body["anyPattern"].is_list:
            message = "expected a list of patterns"
            yield flag("bad-pattern", body["anyPattern"].path, message)
        for pattern in body["anyPattern"].each():
            yield from _check_pattern(pattern)
    for body in (rule["mutate"], *list_loops(rule["mutate"])):
        yield from _check_keys(body["patchStrategicMerge"])
        yield from _check_tags(body["patchStrategicMerge"])
    for body in (rule["generate"], *list_loops(rule["generate"])):
        yield from _check_generated(body["data"])
    yield from _check_assertion(rule["validate"]["assert"])


def _check_pattern(pattern: Field) -> Iterator[Finding]:
    if not pattern:
        return
    found = [*_check_keys(pattern), *_check_tags(pattern)]
    for part, anchor in _list_anchors(pattern):
        if anchor is Modifier.ADDITION:
            message = "+(key) adds something: that is for patches, not for checks"
            found.append(flag("bad-pattern", part.path, message))
        elif anchor is Modifier.EXISTENCE and not (part.is_list and part.value):
            message = "^(key) needs a list of at least one pattern"
            found.append(flag("bad-pattern", part.path, message))
    yield from found
    if not found:
        yield from _try_pattern(pattern)


def _try_pattern(pattern: Field) -> Iterator[Finding]:
    try:
        compile_pattern(pattern.value)
    except CompileError as error:
        yield flag("bad-pattern", pattern.path, error.message)


def _list_keys(part: Field) -> Iterator[tuple[str, Field]]:
    waiting = [part]
    while waiting:
        current = waiting.pop()
        yield from current.entries()
        waiting.extend(chain(current.each(), (item for _, item in current.entries())))


def _list_anchors(part: Field) -> Iterator[tuple[Field, Modifier]]:
    for key, item in _list_keys(part):
        anchor = parse_anchor(key)
        if anchor is not None:
            yield item, anchor.modifier


def _check_keys(part: Field) -> Iterator[Finding]:
    for key, item in _list_keys(part):
        if is_broken_anchor(key):
            message = f'"{key}" is not an anchor; known are {ANCHOR_FORMS}'
            yield flag("bad-pattern", item.path, message)


def _check_tags(pattern: Field) -> Iterator[Finding]:
    for metadata in (pattern["metadata"], pattern["spec"]["template"]["metadata"]):
        for name in ("labels", "annotations"):
            for key, value in metadata[name].entries():
                if not isinstance(value.value, str):
                    message = f'the value of "{key}" must be text: put it in quotes'
                    yield flag("bad-pattern", value.path, message)


def _check_generated(data: Field) -> Iterator[Finding]:
    for part, _ in _list_anchors(data):
        message = "anchors have no meaning in an object that is made anew"
        yield flag("bad-generate", part.path, message)


def _check_assertion(tree: Field) -> Iterator[Finding]:
    if not tree:
        return
    try:
        compile_assertion(tree.value)
    except CompileError as error:
        yield flag("bad-pattern", tree.path, error.message)
