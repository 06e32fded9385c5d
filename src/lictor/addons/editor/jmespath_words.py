"""What may stand at a place within `{{ }}`, or in a query: variables, fields, functions."""

import re
from collections.abc import Iterator

import msgspec

from lictor.addons.editor.schema_words import list_object_fields
from lictor.addons.editor.word_help import WordHelp, WordKind, load_words
from lictor.core.lang.jmespath.functions import FUNCTIONS
from lictor.core.model.finding import FieldPath
from lictor.core.raw import Json
from lictor.lint.field import Field
from lictor.lint.schema_fields import FieldLocation, find_expression_types
from lictor.lint.schema_kinds import KnownSchemas

_LAST_WORD = re.compile(r"(?<![\w-])[\w-]*$")
_TOKEN = re.compile(r"""'[^']*'?|"[^"]*"?|`[^`]*`?|\[\?|\|\||&&|[\[({\])},:!<>=&]""")
_INDEX = re.compile(r"\[[^\[\]]*\]")


class JmesPathLocation(msgspec.Struct, frozen=True):
    """Where an expression stands: the policy, the path of the field, and all known kinds."""

    policy: Json
    path: FieldPath
    schemas: KnownSchemas


def list_query_words(text: str, location: JmesPathLocation) -> Iterator[WordHelp]:
    """What may follow the text of an expression."""
    owner = read_owner(text)
    if owner:
        yield from _list_fields(owner, location)
    if not text.rstrip().endswith("."):
        if not owner:
            yield from _list_variables(location)
        yield from map(_show_function, FUNCTIONS)


def describe_query_word(text: str, location: JmesPathLocation) -> WordHelp | None:
    """What the last word of a text is."""
    found = _LAST_WORD.search(text)
    word = found[0] if found else ""
    owner = read_owner(text)
    fields = _list_fields(owner, location) if owner else _list_variables(location)
    known = next((each for each in fields if each.word == word), None)
    return known or (_show_function(word) if word in FUNCTIONS else None)


def _show_function(name: str) -> WordHelp:
    function = FUNCTIONS[name]
    return WordHelp(name, function.signature, function.note, kind=WordKind.FUNCTION)


def _list_variables(location: JmesPathLocation) -> Iterator[WordHelp]:
    for name, (detail, note) in load_words().jmespath.items():
        if "." not in name and _is_there(name, location):
            yield WordHelp(name, detail, note, kind=WordKind.VARIABLE)
    for entry in _list_entries(location):
        name = entry["name"].text.partition(".")[0]
        source = next((key for key, _ in entry.entries() if key != "name"), "")
        if name:
            yield WordHelp(name, f"context entry, {source}", kind=WordKind.VARIABLE)


def _is_there(name: str, location: JmesPathLocation) -> bool:
    match name:
        case "element" | "elementIndex":
            return "foreach" in location.path
        case "target":
            return "mutate" in location.path or "rules" not in location.path
        case "image":
            return "verifyImages" in location.path
    return True


def _list_entries(location: JmesPathLocation) -> Iterator[Field]:
    """The context entries that the place can see: of what it is within."""
    for part in Field(location.policy).walk(location.path[:-1]):
        yield from part["context"].each()


def _list_fields(owner: str, location: JmesPathLocation) -> Iterator[WordHelp]:
    """The fields of what an expression answers."""
    types = find_expression_types(location.policy, location.path, owner, location.schemas)
    listed = list(list_object_fields(FieldLocation(types, ())))
    seen = {each.word for each in listed}
    yield from listed
    root = owner.removesuffix("[0]")
    for name, (detail, note) in load_words().jmespath.items():
        parent, _, last = name.rpartition(".")
        if parent and last not in seen and _is_same(parent, root):
            yield WordHelp(last, detail, note)
    yield from _list_config_map(root, location)


def _is_same(parent: str, owner: str) -> bool:
    if parent.startswith("images.containers."):
        steps = owner.replace("[0]", "").split(".")
        return len(steps) == 3 and steps[0] == "images"
    return parent == owner


def _list_config_map(owner: str, location: JmesPathLocation) -> Iterator[WordHelp]:
    for entry in _list_entries(location):
        if entry["configMap"] and entry["name"].text == owner:
            yield WordHelp("data", "map of string", "the entries of the ConfigMap")
            yield WordHelp("metadata", "object", "its name, labels and annotations")


# --- the part of an expression that the place belongs to


def read_owner(text: str) -> str:
    """The expression whose fields may stand at the end of a text; empty for variables.

    `a.b[?c.` reads fields of `a.b[0].c`, and `length(a.` fields of `a`.
    """
    start = 0
    # Of each open bracket: the start of the operand before it, and the input of its content.
    outer: list[tuple[int, str]] = []
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign[0] in "[({":
            outer.append((start, _make_prefix(text[start : token.start()], sign)))
            start = token.end()
        elif sign in "])}":
            start = outer.pop()[0] if outer else token.end()
        elif sign[0] not in "'\"`":
            start = token.end()
    operand = _LAST_WORD.sub("", text[start:].strip())
    inner = operand.removesuffix(".").strip() if operand.endswith(".") else ""
    inner = _INDEX.sub("[0]", inner.removeprefix("@").removeprefix("."))
    return ".".join(part for part in (*(prefix for _, prefix in outer), inner) if part)


def _make_prefix(before: str, opener: str) -> str:
    """The input of brackets: elements in a filter, the same object in a selection."""
    before = _INDEX.sub("[0]", before.strip())
    if opener == "[?":
        return f"{before}[0]"
    return before.removesuffix(".") if before.endswith(".") and opener in "[{" else ""
