"""JSON patches are text within a policy: do they read as a list of operations?"""

import re
from collections.abc import Iterator

from lictor.errors import CompileError
from lictor.lang.patch import parse_json_patch
from lictor.lint.catalog import flag
from lictor.lint.part import Part
from lictor.load.fields import suggest
from lictor.model.finding import Finding
from lictor.raw import Json

_VARIABLE = re.compile(r"\{\{(?:\{[^{}]*\}|[^{}])*\}\}")
# What stands in for a variable: a word that YAML and JSON take at any place.
_WORD = "variable"
# The end of a list in which no name may stand twice.
_NAMED = re.compile(r"/(containers|initContainers|volumes)/-$")
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_WITHOUT_VALUE = ("remove", "move", "copy")


def check_json_patches(rule: Part) -> Iterator[Finding]:
    """Every JSON patch of a rule."""
    mutate = rule["mutate"]
    yield from _check_patch(mutate["patchesJson6902"], may_vary=False)
    yield from _check_loops(mutate["foreach"])
    if not rule.present("preconditions") and not mutate.present("targets"):
        yield from _check_repetition(mutate["patchesJson6902"])


def _check_repetition(patch: Part) -> Iterator[Finding]:
    """API servers ask a webhook again when someone has changed the object after it."""
    try:
        operations = parse_json_patch(patch.text) if patch.text else ()
    except CompileError:
        return
    for number, operation in enumerate(operations, 1):
        path = operation.get("path") if isinstance(operation, dict) else None
        if not isinstance(path, str) or not _NAMED.search(path) or operation.get("op") != "add":
            continue
        message = (
            f"operation {number}: adds to {path} again when the API server asks again, and the "
            "Pod is refused for a duplicate name: add a precondition that it is not there yet"
        )
        yield flag("repeated-patch", patch.path, message)


def _check_loops(loops: Part) -> Iterator[Finding]:
    for loop in loops.each():
        yield from _check_patch(loop["patchesJson6902"], may_vary=True)
        yield from _check_loops(loop["foreach"])


def _check_patch(patch: Part, *, may_vary: bool) -> Iterator[Finding]:
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


def _check_paths(patch: Part) -> Iterator[Finding]:
    try:
        operations = parse_json_patch(patch.text)
    except CompileError:
        return
    for number, operation in enumerate(operations, 1):
        path = operation.get("path") if isinstance(operation, dict) else None
        if isinstance(path, str) and _VARIABLE.search(path):
            message = f"operation {number}: the path must not hold variables: use foreach"
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
