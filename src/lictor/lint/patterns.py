"""Are the anchors, references and labels of patterns, patches and generated objects right?"""

from collections.abc import Iterator
from itertools import chain

from lictor.errors import CompileError
from lictor.lang.assertion import compile_assertion
from lictor.lang.pattern import compile_pattern
from lictor.lang.pattern.anchor import Modifier, parse_anchor
from lictor.lint.catalog import flag
from lictor.lint.part import Part
from lictor.model.finding import Finding

_FORMS = "(key), =(key), X(key), ^(key), <(key) and, in patches, +(key)"


def check_patterns(rule: Part) -> Iterator[Finding]:
    """Every pattern of a rule."""
    for body in (rule["validate"], *_list_loops(rule["validate"]["foreach"])):
        yield from _check_pattern(body["pattern"])
        if body["anyPattern"] and not body["anyPattern"].is_list:
            message = "expected a list of patterns"
            yield flag("bad-pattern", body["anyPattern"].path, message)
        for pattern in body["anyPattern"].each():
            yield from _check_pattern(pattern)
    for body in (rule["mutate"], *_list_loops(rule["mutate"]["foreach"])):
        yield from _check_keys(body["patchStrategicMerge"])
        yield from _check_tags(body["patchStrategicMerge"])
    for body in (rule["generate"], *_list_loops(rule["generate"]["foreach"])):
        yield from _check_generated(body["data"])
    yield from _check_assertion(rule["validate"]["assert"])


def _list_loops(loops: Part) -> Iterator[Part]:
    for loop in loops.each():
        yield loop
        yield from _list_loops(loop["foreach"])


def _check_pattern(pattern: Part) -> Iterator[Finding]:
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


def _try_pattern(pattern: Part) -> Iterator[Finding]:
    try:
        compile_pattern(pattern.value)
    except CompileError as error:
        yield flag("bad-pattern", pattern.path, error.message)


def _list_keys(part: Part) -> Iterator[tuple[str, Part]]:
    waiting = [part]
    while waiting:
        current = waiting.pop()
        yield from current.entries()
        waiting.extend(chain(current.each(), (item for _, item in current.entries())))


def _list_anchors(part: Part) -> Iterator[tuple[Part, Modifier]]:
    for key, item in _list_keys(part):
        anchor = parse_anchor(key)
        if anchor is not None:
            yield item, anchor.modifier


def _check_keys(part: Part) -> Iterator[Finding]:
    for key, item in _list_keys(part):
        anchor = parse_anchor(key)
        plain = key if anchor is None else anchor.key
        # An expression may call functions, and a reference is written with brackets.
        if ("(" in plain or ")" in plain) and "{{" not in plain and "$(" not in plain:
            message = f'"{key}" is not an anchor; known are {_FORMS}'
            yield flag("bad-pattern", item.path, message)


def _check_tags(pattern: Part) -> Iterator[Finding]:
    for metadata in (pattern["metadata"], pattern["spec"]["template"]["metadata"]):
        for name in ("labels", "annotations"):
            for key, value in metadata[name].entries():
                if not isinstance(value.value, str):
                    message = f'the value of "{key}" must be text: put it in quotes'
                    yield flag("bad-pattern", value.path, message)


def _check_generated(data: Part) -> Iterator[Finding]:
    for part, _ in _list_anchors(data):
        message = "anchors have no meaning in an object that is made anew"
        yield flag("bad-generate", part.path, message)


def _check_assertion(tree: Part) -> Iterator[Finding]:
    if not tree:
        return
    try:
        compile_assertion(tree.value)
    except CompileError as error:
        yield flag("bad-pattern", tree.path, error.message)
