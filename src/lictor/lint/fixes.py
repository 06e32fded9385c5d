"""Automatic fixes: findings become edits of their text.

Safe fixes change no verdict. Others are guesses, and are made only on request.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lictor.core.lang.pattern.anchor import parse_anchor
from lictor.core.load.yaml import decode_text
from lictor.core.model.finding import FieldPath, Finding
from lictor.lint.documents import LintFile, LintObject, list_objects
from lictor.lint.key_order import CHECK as UNSORTED
from lictor.lint.key_order import find_order, sort_keys
from lictor.lint.text_edits import (
    TextEdit,
    YamlText,
    apply_edits,
    find_entry,
    find_line,
    find_value,
    is_equivalent,
    move_entries,
    open_document,
)

# Rounds of finding and fixing: some fixes enable others.
MOST_ROUNDS = 10
_SAME_OPERATORS = {"Equal": "Equals", "NotEqual": "NotEquals"}
_ACTIONS = {"enforce": "Enforce", "audit": "Audit"}
_UNQUOTED = re.compile(r"(?!\{)\s*(?:- +)*(?:[\w./$()+^=<>-]+:\s+)?(?P<value>\{\{.*)")
_WIDE = (b"\xff\xfe", b"\xfe\xff")
# Checks whose suggestion is a guess.
_GUESSED_KEYS = frozenset(("unknown-field", "bad-context"))
_GUESSED_WORDS = frozenset(
    ("unknown-function", "unknown-variable", "unknown-resource", "bad-condition", "never-matches")
)


class Fix(msgspec.Struct, frozen=True):
    """How a finding is fixed."""

    title: str
    edits: tuple[TextEdit, ...]
    is_safe: bool = True
    # Of fixes with the same key only one is made per round: the next one builds on it.
    turn: str = ""


def find_fixes(file: LintFile, findings: Iterable[Finding]) -> list[tuple[Finding, Fix]]:
    """The fixable findings of one file, each with its fix."""
    if file.content.startswith(_WIDE):
        return []
    text = decode_text(file.content, file.source)
    fixer = _Fixer(text, list(list_objects(file)))
    found = ((finding, fixer.fix(finding)) for finding in findings)
    return [(finding, fix) for finding, fix in found if fix is not None and fix.edits]


def fix_text(file: LintFile, findings: Iterable[Finding], *, unsafe: bool = False) -> bytes:
    """The file with all its fixes; unchanged if there are none."""
    fixes = _take_turns(fix for _, fix in find_fixes(file, findings) if unsafe or fix.is_safe)
    text = decode_text(file.content, file.source)
    fixed = apply_edits(text, [edit for fix in fixes for edit in fix.edits])
    return file.content if fixed == text else _encode(fixed, file.content)


def _take_turns(fixes: Iterable[Fix]) -> Iterator[Fix]:
    taken: set[str] = set()
    for fix in fixes:
        if not fix.turn or fix.turn not in taken:
            taken.add(fix.turn)
            yield fix


def _encode(text: str, before: bytes) -> bytes:
    """With the original line ends and byte order mark."""
    if b"\r\n" in before:
        text = text.replace("\n", "\r\n")
    if not before.endswith(b"\n"):
        text = text.removesuffix("\r\n") if b"\r\n" in before else text.removesuffix("\n")
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    return mark + text.encode()


class _Fixer:
    """Fixes for the findings of one text."""

    def __init__(self, text: str, items: Sequence[LintObject]) -> None:
        self._text = text
        self._items = items
        self._opened: dict[int, YamlText | None] = {}

    def fix(self, finding: Finding) -> Fix | None:
        if finding.check == "bad-document":
            return self._quote(finding)
        item = self._find_item(finding)
        if item is None:
            return None
        document = self._open(item)
        if document is None:
            return None
        if finding.check == "deprecated":
            return _replace_deprecated(document, item, finding)
        if finding.check == UNSORTED:
            return _sort_keys(document, item, finding)
        return _follow_suggestion(document, finding, self._text)

    def _find_item(self, finding: Finding) -> LintObject | None:
        """The object of a finding: the last one that starts before it."""
        line = finding.location.line
        before = [each for each in self._items if each.document.first_line <= line]
        fitting = [e for e in before if finding.path[: len(e.prefix)] == e.prefix]
        return max(fitting, key=lambda each: (each.document.line, len(each.prefix)), default=None)

    def _open(self, item: LintObject) -> YamlText | None:
        key = id(item.document)
        if key not in self._opened:
            self._opened[key] = open_document(self._text, item.document)
        return self._opened[key]

    def _quote(self, finding: Finding) -> Fix | None:
        """`key: {{ x }}` is a map in YAML: a text is meant."""
        start = find_line(self._text, finding.location.line)
        end = self._text.find("\n", start)
        found = _UNQUOTED.fullmatch(self._text[start:end].rstrip())
        if found is None or "}}" not in found["value"]:
            return None
        at = start + found.start("value")
        quoted = _quote(found["value"])
        edit = TextEdit(at, start + found.end("value"), quoted)
        return Fix("quote the expression", (edit,))


def _quote(text: str) -> str:
    if '"' not in text and "\\" not in text:
        return f'"{text}"'
    return "'" + text.replace("'", "''") + "'"


# --- fields that have been replaced


def _replace_deprecated(document: YamlText, item: LintObject, finding: Finding) -> Fix | None:
    path = finding.path
    if finding.code == "deprecated-operator":
        return _replace_operator(document, path)
    name = path[-1]
    if name == "predicateType":
        return _rename(document, path, "type")
    spec = find_value(document.root, path[:-1])
    replace = _SPEC_FIELDS.get(str(name))
    if replace is None or len(path) - len(item.prefix) != 2 or not isinstance(spec, MappingNode):
        return None
    entry = find_entry(spec, str(name))
    edits = None if entry is None else replace(_SpecEntry(document, spec, *entry))
    if edits is None:
        return None
    return Fix(finding.message, tuple(edits), turn=f"spec at {document.begin(spec)}")


def _replace_operator(document: YamlText, path: FieldPath) -> Fix | None:
    node = find_value(document.root, path)
    instead = _SAME_OPERATORS.get(node.value) if isinstance(node, ScalarNode) else None
    if node is None or instead is None:
        return None
    return Fix(f"write {instead}", (document.replace(node, instead),))


def _rename(document: YamlText, path: FieldPath, name: str) -> Fix | None:
    parent = find_value(document.root, path[:-1])
    entry = find_entry(parent, str(path[-1]))
    if entry is None or find_entry(parent, name) is not None:
        return None
    return Fix(f"rename to {name}", (document.replace(entry[0], name),))


class _SpecEntry(msgspec.Struct, frozen=True):
    """An entry of a policy's spec."""

    document: YamlText
    spec: MappingNode
    key: Node
    value: Node

    def take_out(self) -> TextEdit | None:
        return self.document.take_out(self.spec, self.key, self.value)

    def list_bodies(self, *names: str) -> Iterator[MappingNode]:
        """The bodies of this name in all rules; of lists, the first."""
        rules = find_value(self.spec, ("rules",))
        for rule in rules.value if isinstance(rules, SequenceNode) else ():
            for name in names:
                body = find_value(rule, (name,))
                if isinstance(body, SequenceNode) and body.value:
                    body = body.value[0]
                if isinstance(body, MappingNode):
                    yield body
                    break


def _move_into_rules(entry: _SpecEntry, text: str, bodies: Sequence[str]) -> list[TextEdit] | None:
    """Move it from the spec to each rule's body that does not set it."""
    removal = entry.take_out()
    if removal is None:
        return None
    key = text.partition(":")[0]
    return [
        removal,
        *(
            entry.document.insert_first(body, text)
            for body in entry.list_bodies(*bodies)
            if find_entry(body, key) is None
        ),
    ]


def _move_action(entry: _SpecEntry) -> list[TextEdit] | None:
    action = _ACTIONS.get(str(entry.value.value).lower())
    if action is None:
        return None
    return _move_into_rules(entry, f"failureAction: {action}", ("validate", "verifyImages"))


def _move_switch(body: str) -> Callable[[_SpecEntry], list[TextEdit] | None]:
    """A switch of the spec that is now set in each rule."""

    def move(entry: _SpecEntry) -> list[TextEdit] | None:
        if entry.value.value not in ("true", "false"):
            return None
        return _move_into_rules(entry, f"{entry.key.value}: {entry.value.value}", (body,))

    return move


def _move_into_webhook(name: str) -> Callable[[_SpecEntry], list[TextEdit] | None]:
    def move(entry: _SpecEntry) -> list[TextEdit] | None:
        if not isinstance(entry.value, ScalarNode):
            return None
        text = f"{name}: {entry.value.value}"
        webhook = find_value(entry.spec, ("webhookConfiguration",))
        if webhook is None:
            end = entry.document.end(entry.value)
            new = "webhookConfiguration: {" + text + "}"
            return [TextEdit(entry.document.begin(entry.key), end, new)]
        if not isinstance(webhook, MappingNode) or find_entry(webhook, name) is not None:
            return None
        removal = entry.take_out()
        put_in = entry.document.insert_first(webhook, text)
        return None if removal is None else [removal, put_in]

    return move


def _take_out(entry: _SpecEntry) -> list[TextEdit] | None:
    removal = entry.take_out()
    return None if removal is None else [removal]


_SPEC_FIELDS: dict[str, Callable[[_SpecEntry], list[TextEdit] | None]] = {
    "validationFailureAction": _move_action,
    "failurePolicy": _move_into_webhook("failurePolicy"),
    "webhookTimeoutSeconds": _move_into_webhook("timeoutSeconds"),
    "generateExisting": _move_switch("generate"),
    "mutateExistingOnPolicyUpdate": _move_switch("mutate"),
    "schemaValidation": _take_out,
}


# --- the order of keys


def _sort_keys(document: YamlText, item: LintObject, finding: Finding) -> Fix | None:
    path = finding.path[:-1]
    mapping = find_value(document.root, path)
    if not isinstance(mapping, MappingNode):
        return None
    keys = [str(key.value) for key, _ in mapping.value]
    wanted = find_order(path[len(item.prefix) :], dict.fromkeys(keys))
    edit = move_entries(document, mapping, sort_keys(keys, wanted))
    if edit is None or not is_equivalent(document.text, edit):
        return None
    return Fix("sort the keys", (edit,))


# --- guesses


def _follow_suggestion(document: YamlText, finding: Finding, text: str) -> Fix | None:
    if finding.check == "unknown-property":
        return _correct_property(document, finding, text)
    if not finding.suggestion or not re.fullmatch(r"[\w./-]+", finding.suggestion):
        return None
    if finding.check in _GUESSED_KEYS and finding.path:
        fix = _rename(document, finding.path, finding.suggestion)
        return None if fix is None else msgspec.structs.replace(fix, is_safe=False)
    if finding.check in _GUESSED_WORDS:
        at = find_line(text, finding.location.line) + finding.location.column - 1
        word = re.compile(r"[\w/-]+").match(text, at)
        if word is None or f'"{word[0]}"' not in finding.message:
            return None
        edit = TextEdit(at, word.end(), finding.suggestion)
        return Fix(f"write {finding.suggestion}", (edit,), is_safe=False)
    return None


# What may be between the position of a finding and its field: the dot or bracket of an expression,
# the steps of a pointer.
_BEFORE_PROPERTY = r"""["']?(?:/[^\s"']*?/|/|\??\.\??|\[\??["'])?"""


def _correct_property(document: YamlText, finding: Finding, text: str) -> Fix | None:
    """Write the suggested field, if exactly one is similar."""
    if len(finding.arguments) != 2:
        return None
    name, meant = finding.arguments
    if finding.offset is None:
        at = _find_key(document, finding.path, name, meant)
    else:
        at = find_line(text, finding.location.line) + finding.location.column - 1
    # re: linear - tried at one position, and fixed letters follow
    wanted = re.compile(rf"{_BEFORE_PROPERTY}({re.escape(name)})(?![\w-])")
    found = None if at is None else wanted.match(text, at)
    if found is None:
        return None
    edit = TextEdit(found.start(1), found.end(1), meant)
    return Fix(f"write {meant}", (edit,), is_safe=False)


def _find_key(document: YamlText, path: FieldPath, name: str, meant: str) -> int | None:
    """Where the name of a key starts, after quotes and anchors; None if it has both."""
    parent = find_value(document.root, path[:-1])
    entry = find_entry(parent, str(path[-1]))
    if entry is None or not isinstance(parent, MappingNode):
        return None
    others = (parse_anchor(str(key.value)) for key, _ in parent.value)
    if any(anchor is not None and anchor.key == meant for anchor in others):
        return None
    if find_entry(parent, meant) is not None:
        return None
    at = document.text.find(name, document.begin(entry[0]), document.end(entry[0]))
    return at if at >= 0 else None
