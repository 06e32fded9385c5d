"""Text builtins: formats, prefixes, encodings, regular expressions, patterns, YAML."""

from functools import lru_cache

import yaml

from lictor.core.crypto.json_web_token import encode_url_safe
from lictor.core.errors import FunctionError, SyntaxFaultError
from lictor.core.lang.regex import Regex, compile_regex, compile_template, replace_matches
from lictor.core.lang.rego.go_format import Argument, sprintf
from lictor.core.lang.rego.operands import (
    BuiltinRun,
    Functions,
    take_array,
    take_elements,
    take_object,
    take_text,
    take_texts,
    take_whole,
)
from lictor.core.lang.rego.values import RegoFloat, RegoValue, to_json, write_value
from lictor.core.lang.yaml.build import parse_yaml_text
from lictor.core.lang.yaml.scalars import resolve_plain
from lictor.core.raw import Json

_GLOB_MARKS = frozenset("*?\\[]{}")
_REGEX_MARKS = frozenset("\\.+*?()|[]{}^$")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")


def _sprintf(run: BuiltinRun, arguments: list[RegoValue]) -> str:
    text = take_text(arguments[0])
    given = [_format_argument(each) for each in take_array(arguments[1])]
    made = sprintf(text, given, run.output_bytes)
    if len(made) > run.output_bytes:
        raise ValueError("the text would be too long")
    return made


def _format_argument(value: RegoValue) -> Argument:
    if type(value) is str or type(value) is int:
        return value
    if isinstance(value, RegoFloat):
        return float(value) if abs(value) != float("inf") else value.text
    return write_value(value)


def _any_prefix(run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    wanted = _text_list(arguments[1])
    return any(text.startswith(wanted) for text in run.watch(_text_list(arguments[0])))


def _any_suffix(run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    wanted = _text_list(arguments[1])
    return any(text.endswith(wanted) for text in run.watch(_text_list(arguments[0])))


def _text_list(value: RegoValue) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(take_texts(value))


def _count(_run: BuiltinRun, arguments: list[RegoValue]) -> int:
    text, part = take_text(arguments[0]), take_text(arguments[1])
    return text.count(part)


def _index_all(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    """The positions of a text in another, overlaps included."""
    text, part = take_text(arguments[0]), take_text(arguments[1])
    if not part:
        raise FunctionError("empty search character")
    found: list[RegoValue] = []
    at = text.find(part)
    while at >= 0:
        found.append(at)
        at = text.find(part, at + 1)
    return found


def _encode_base64(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    return encode_url_safe(take_text(arguments[0]).encode())


def _encode_hex(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    return take_text(arguments[0]).encode().hex()


def _decode_hex(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    text = take_text(arguments[0])
    try:
        # bytes.fromhex would also accept spaces.
        content = bytes.fromhex(text) if not any(each.isspace() for each in text) else None
    except ValueError as error:
        raise FunctionError(f"not hexadecimal: {error}") from error
    if content is None:
        raise FunctionError("there are spaces in a hexadecimal text")
    return content.decode(errors="replace")


def escape_query(text: str) -> str:
    """Escape a text for the query of an URL, as Go does: a space becomes a plus."""
    return "".join(
        [
            chr(each) if each in _UNRESERVED else "+" if each == 0x20 else f"%{each:02X}"
            for each in text.encode()
        ]
    )


def unescape_query(text: str) -> str:
    """Undo `escape_query`; raises FunctionError for an incomplete escape."""
    content = bytearray()
    source = text.encode()
    at = 0
    while at < len(source):
        byte = source[at]
        if byte == 0x25:
            digits = source[at + 1 : at + 3].decode(errors="replace")
            if len(digits) < 2 or not all(each in "0123456789abcdefABCDEF" for each in digits):
                raise FunctionError(f"invalid URL escape {text[at : at + 3]!r}")
            content.append(int(digits, 16))
            at += 3
            continue
        content.append(0x20 if byte == 0x2B else byte)
        at += 1
    return content.decode(errors="replace")


def _encode_query(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    return escape_query(take_text(arguments[0]))


def _decode_query(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    return unescape_query(take_text(arguments[0]))


def _encode_query_object(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    given = take_object(arguments[0])
    pairs = [(key, each) for key in sorted(given) for each in _text_list(given[key])]
    return "&".join([f"{escape_query(key)}={escape_query(value)}" for key, value in pairs])


def _decode_query_object(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    made: dict[str, list[str]] = {}
    for part in take_text(arguments[0]).split("&"):
        if ";" in part:
            raise FunctionError("invalid semicolon separator in query")
        if part:
            key, _, value = part.partition("=")
            made.setdefault(unescape_query(key), []).append(unescape_query(value))
    return made


def _quote_glob(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    text = take_text(arguments[0])
    return "".join([f"\\{each}" if each in _GLOB_MARKS else each for each in text])


def _compile(text: str) -> Regex:
    try:
        return compile_regex(text)
    except SyntaxFaultError as error:
        raise FunctionError(str(error)) from error


def find_spans(expression: str, text: str, limit: int) -> list[tuple[int, int]]:
    """Matches as Go finds them: no empty one directly after another match."""
    spans: list[tuple[int, int]] = []
    end = -1
    for found in _compile(expression).finditer(text):
        start, stop = found.start(), found.end()
        if len(spans) == limit:
            break
        if start != stop or start != end:
            spans.append((start, stop))
        end = stop
    return spans


def _regex_find(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    expression, text = take_text(arguments[0]), take_text(arguments[1])
    spans = find_spans(expression, text, take_whole(arguments[2]))
    return [text[start:stop] for start, stop in spans]


def _regex_split(_run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    expression, text = take_text(arguments[0]), take_text(arguments[1])
    if expression and not text:
        _compile(expression)
        return [""]
    parts: list[RegoValue] = []
    begin = end = 0
    for start, stop in find_spans(expression, text, -1):
        end = start
        if stop != 0:
            parts.append(text[begin:end])
        begin = stop
    if end != len(text):
        parts.append(text[begin:])
    return parts


def _regex_replace(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    text, expression, template = (take_text(each) for each in arguments)
    _compile(expression)
    return replace_matches(expression, text, compile_template(template))


@lru_cache(maxsize=256)
def _build_template(template: str, start: str, end: str) -> Regex:
    pieces: list[str] = ["^"]
    level = opened = literal = 0
    for at, each in enumerate(template):
        if each == start:
            level += 1
            if level == 1:
                opened = at
        elif each == end:
            level -= 1
            if level < 0:
                raise FunctionError("unbalanced braces")
            if level == 0:
                inside = template[opened + 1 : at]
                _compile(f"^{inside}$")
                pieces += [_quote_regex(template[literal:opened]), f"({inside})"]
                literal = at + 1
    if level:
        raise FunctionError("unbalanced braces")
    return _compile("".join([*pieces, _quote_regex(template[literal:]), "$"]))


def _quote_regex(text: str) -> str:
    return "".join([f"\\{each}" if each in _REGEX_MARKS else each for each in text])


def _regex_template(_run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    template, text, start, end = (take_text(each) for each in arguments)
    if len(start.encode()) != 1 or len(end.encode()) != 1:
        raise FunctionError("a delimiter has to be exactly one character long")
    return _build_template(template, start, end).search(text) is not None


def _print(run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    """`trace` takes a text, `internal.print` an array of sets with at most one value each."""
    given = arguments[0]
    if isinstance(given, str):
        run.log(given)
        return True
    parts: list[str] = []
    for each in take_array(given):
        values = take_elements(each)
        value = values[0] if values else "<undefined>"
        parts.append(value if isinstance(value, str) else write_value(value))
    run.log(" ".join(parts))
    return True


TEXT_BUILTINS: Functions = {
    "sprintf": _sprintf,
    "strings.any_prefix_match": _any_prefix,
    "strings.any_suffix_match": _any_suffix,
    "strings.count": _count,
    "indexof_n": _index_all,
    "base64url.encode_no_pad": _encode_base64,
    "hex.encode": _encode_hex,
    "hex.decode": _decode_hex,
    "urlquery.encode": _encode_query,
    "urlquery.decode": _decode_query,
    "urlquery.encode_object": _encode_query_object,
    "urlquery.decode_object": _decode_query_object,
    "glob.quote_meta": _quote_glob,
    "regex.find_n": _regex_find,
    "regex.split": _regex_split,
    "regex.replace": _regex_replace,
    "regex.template_match": _regex_template,
    "trace": _print,
    "internal.print": _print,
}


# --- YAML, read and written as the library does that Kubernetes and OPA use


class _Dumper(yaml.CSafeDumper):
    """Block style, sorted keys, quotes only where needed."""

    def ignore_aliases(self, data: Json) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    try:
        is_text = isinstance(resolve_plain(text), str)
    except ValueError:
        is_text = False
    style = '"' if not is_text or not text else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_float(dumper: _Dumper, number: float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", sprintf("%v", [number]))


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(float, _represent_float)


def _unmarshal(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    try:
        return parse_yaml_text(take_text(arguments[0]))
    except ValueError as error:
        raise FunctionError(str(error)) from error


def _is_valid(run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    try:
        _unmarshal(run, arguments)
    except FunctionError:
        return False
    return True


def _marshal(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    text: str = yaml.dump(
        to_json(arguments[0]),
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=True,
        allow_unicode=True,
    )
    # A single scalar is followed by the end marker of the document.
    return text.removesuffix("...\n")


YAML_BUILTINS: Functions = {
    "yaml.marshal": _marshal,
    "yaml.unmarshal": _unmarshal,
    "yaml.is_valid": _is_valid,
}
