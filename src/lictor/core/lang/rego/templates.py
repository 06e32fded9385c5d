"""Renders templates of Go's text/template: fields, conditions, loops, comparisons.

Other features (definitions, blocks, methods) raise FunctionError.
"""

import re
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from lictor.core.errors import FunctionError
from lictor.core.lang.regex import compile_regex
from lictor.core.lang.rego.operands import BuiltinRun, Functions, take_object, take_text
from lictor.core.lang.rego.template_functions import (
    NO_VALUE,
    TEMPLATE_FUNCTIONS,
    call_function,
    print_value,
)
from lictor.core.lang.rego.values import RegoValue, to_json, write_number

# A comment, or an action in which texts may contain braces; a dash trims whitespace.
_TAG = (
    r"(?s)\{\{(?P<before>-\s)?\s*(?P<inside>/\*.*?\*/"
    r"|(?:\"(?:\\.|[^\"\\])*\"|`[^`]*`|[^\"`])*?)\s*(?P<behind>\s-)?\}\}"
)
# re: linear - the first failure ends the scan
_WORD = re.compile(
    r"\s*(\"(?:\\.|[^\"\\])*\"|`[^`]*`|\$\w*(?:\.\w+)*|\.[\w.]*|-?[0-9][\w.]*|\w+|:=|=|,|[()|])"
)
_NAME = re.compile(r"\$\w*")


class NumberText(str):
    """A number of the policy: a text in Go, with its digits."""

    __slots__ = ()


class _Node(msgspec.Struct):
    """A literal text, or an action and its content."""

    kind: str
    words: list[str] = []
    text: str = ""
    body: list["_Node"] = []
    otherwise: list["_Node"] = []


_Variables: TypeAlias = dict[str, Any]


def _cut(template: str) -> list[tuple[str, str]]:
    """Literal texts and actions alternately."""
    pieces: list[tuple[str, str]] = []
    at = 0
    for found in compile_regex(_TAG).finditer(template):
        literal = template[at : found.start()]
        if found.group("before"):
            literal = literal.rstrip()
        if pieces and pieces[-1][0] == "trim":
            pieces.pop()
            literal = literal.lstrip()
        pieces += [("text", literal), ("action", found.group("inside") or "")]
        if found.group("behind"):
            pieces.append(("trim", ""))
        at = found.end()
    rest = template[at:]
    if pieces and pieces[-1][0] == "trim":
        pieces.pop()
        rest = rest.lstrip()
    if "{{" in rest:
        raise FunctionError("template: an action is not closed")
    return [*pieces, ("text", rest)]


def _split_words(action: str) -> list[str]:
    words: list[str] = []
    at = 0
    while at < len(action):
        found = _WORD.match(action, at)
        if found is None:
            if action[at:].strip():
                raise FunctionError(f"template: {action[at : at + 20]!r} is unknown")
            break
        words.append(found[1])
        at = found.end()
    return words


class _Parser:
    def __init__(self, pieces: list[tuple[str, str]]) -> None:
        self._pieces = pieces
        self._at = 0

    def parse(self, *, inside: bool) -> tuple[list[_Node], list[str]]:
        """Nodes up to `else` or `end`, and its words."""
        nodes: list[_Node] = []
        while self._at < len(self._pieces):
            kind, text = self._pieces[self._at]
            self._at += 1
            if kind == "text":
                nodes.append(_Node("text", text=text))
                continue
            words = [] if text.startswith("/*") else _split_words(text)
            if words and words[0] in ("else", "end"):
                if not inside:
                    raise FunctionError(f"template: unexpected {{{{{words[0]}}}}}")
                return nodes, words
            if words:
                nodes.append(self._parse_action(words))
        if inside:
            raise FunctionError("template: unexpected EOF")
        return nodes, ["end"]

    def _parse_action(self, words: list[str]) -> _Node:
        kind = words[0]
        if kind in ("define", "template", "block", "break", "continue", "call"):
            raise FunctionError(f"template: {kind} is not supported")
        if kind not in ("if", "range", "with"):
            return _Node("print", words)
        body, stop = self.parse(inside=True)
        otherwise: list[_Node] = []
        if stop[0] == "else" and len(stop) > 1:
            otherwise = [self._parse_action(stop[1:])]
        elif stop[0] == "else":
            otherwise, _ = self.parse(inside=True)
        return _Node(kind, words[1:], body=body, otherwise=otherwise)


@lru_cache(maxsize=64)
def _parse(template: str) -> list[_Node]:
    return _Parser(_cut(template)).parse(inside=False)[0]


class _Renderer:
    """Renders one template."""

    def __init__(self, run: BuiltinRun) -> None:
        self._run = run
        self._left = run.output_bytes
        self.parts: list[str] = []

    def _write(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise ValueError("the text would be too long")
        self.parts.append(text)

    def render(self, nodes: list[_Node], dot: Any, variables: _Variables) -> None:
        for node in nodes:
            if node.kind == "text":
                self._write(node.text)
            elif node.kind == "print":
                assigned, value = _evaluate_pipeline(node.words, dot, variables)
                if not assigned:
                    self._write(print_value(value))
            elif node.kind == "range":
                self._render_range(node, dot, variables)
            else:
                self._render_choice(node, dot, variables)

    def _render_choice(self, node: _Node, dot: Any, variables: _Variables) -> None:
        inner = dict(variables)
        _, value = _evaluate_pipeline(node.words, dot, inner)
        if value:
            self.render(node.body, value if node.kind == "with" else dot, inner)
        else:
            self.render(node.otherwise, dot, inner)

    def _render_range(self, node: _Node, dot: Any, variables: _Variables) -> None:
        names, words = _split_names(node.words)
        _, value = _evaluate_pipeline(words, dot, dict(variables))
        if isinstance(value, dict):
            pairs: list[tuple[Any, Any]] = sorted(value.items())
        elif isinstance(value, list):
            pairs = list(enumerate(value))
        elif value is None:
            pairs = []
        else:
            raise FunctionError("template: range can't iterate over this")
        for key, each in pairs:
            self._run.check_time()
            bound = {names[0]: key, names[1]: each} if len(names) == 2 else {}
            if len(names) == 1:
                bound = {names[0]: each}
            self.render(node.body, each, {**variables, **bound})
        if not pairs:
            self.render(node.otherwise, dot, dict(variables))


def _split_names(words: list[str]) -> tuple[list[str], list[str]]:
    """The variables before `:=` and the rest."""
    if ":=" not in words:
        return [], words
    at = words.index(":=")
    names = [word for word in words[:at] if word != ","]
    if not all(_NAME.fullmatch(name) for name in names) or not 0 < len(names) <= 2:
        raise FunctionError("template: expected a variable")
    return names, words[at + 1 :]


def _evaluate_pipeline(words: list[str], dot: Any, variables: _Variables) -> tuple[bool, Any]:
    """Whether the value was assigned to a variable, and the value."""
    mark = ":=" if ":=" in words else "=" if "=" in words else ""
    name = ""
    if mark:
        if words.index(mark) != 1 or not _NAME.fullmatch(words[0]):
            raise FunctionError("template: expected a variable")
        name, words = words[0], words[2:]
    value = _Pipeline(words, dot, variables).evaluate()
    if name:
        variables[name] = value
    return bool(name), value


class _Pipeline:
    def __init__(self, words: list[str], dot: Any, variables: _Variables) -> None:
        self._words = words
        self._at = 0
        self._dot = dot
        self._variables = variables

    def evaluate(self) -> Any:
        value = self._read_pipeline()
        if self._at != len(self._words):
            raise FunctionError("template: unexpected words in an action")
        return value

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _read_pipeline(self) -> Any:
        value = self._read_command([])
        while self._peek() == "|":
            self._at += 1
            value = self._read_command([value])
        return value

    def _read_command(self, last: list[Any]) -> Any:
        word = self._peek()
        if word in TEMPLATE_FUNCTIONS:
            self._at += 1
            return call_function(word, [*self._read_operands(), *last])
        operands = self._read_operands()
        if len(operands) != 1 or last:
            raise FunctionError("template: can't give argument to non-function")
        return operands[0]

    def _read_operands(self) -> list[Any]:
        operands: list[Any] = []
        while self._peek() not in ("", "|", ")"):
            operands.append(self._read_operand())
        return operands

    def _read_operand(self) -> Any:
        word = self._peek()
        self._at += 1
        if word == "(":
            value = self._read_pipeline()
            if self._peek() != ")":
                raise FunctionError("template: unclosed left paren")
            self._at += 1
            return value
        return self._read_word(word)

    def _read_word(self, word: str) -> Any:
        if word.startswith("."):
            return _follow(self._dot, word)
        if word.startswith("$"):
            name, _, path = word.partition(".")
            if name not in self._variables:
                raise FunctionError(f"template: undefined variable {name}")
            return _follow(self._variables[name], f".{path}")
        if word[0] in '"`':
            return _read_text(word)
        constants = {"true": True, "false": False, "nil": None}
        if word in constants:
            return constants[word]
        if re.fullmatch(r"-?[0-9]+", word):
            return int(word)
        if re.fullmatch(r"-?[0-9]+\.[0-9]+", word):
            return float(word)
        raise FunctionError(f"template: function {word!r} not defined")


def _read_text(word: str) -> str:
    if word[0] == "`":
        return word[1:-1]
    simple = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}

    def replace(found: re.Match[str]) -> str:
        if found[1] not in simple:
            raise FunctionError("template: unknown escape")
        return simple[found[1]]

    return re.sub(r"\\(.)", replace, word[1:-1])


def _follow(value: Any, path: str) -> Any:
    for name in [part for part in path.split(".") if part]:
        if value is None or not isinstance(value, dict):
            raise FunctionError(f"template: can't evaluate field {name}")
        value = value.get(name)
    return value


def _prepare(value: RegoValue) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return NumberText(write_number(value))
    if isinstance(value, list):
        return [_prepare(each) for each in value]
    if isinstance(value, dict):
        return {key: _prepare(each) for key, each in value.items()}
    return value


def _render(run: BuiltinRun, arguments: list[RegoValue]) -> str:
    template = take_text(arguments[0])
    dot = _prepare(to_json(take_object(arguments[1])))
    renderer = _Renderer(run)
    renderer.render(_parse(template), dot, {"$": dot})
    return "".join(renderer.parts).replace(NO_VALUE, "<undefined>")


TEMPLATE_BUILTINS: Functions = {"strings.render_template": _render}
