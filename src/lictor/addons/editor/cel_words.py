"""What may stand at a place in a CEL expression: variables, fields, functions."""

import re
from collections.abc import Iterable, Iterator

from lictor.addons.editor.word_help import WordHelp, WordKind, list_patch_fields, load_words
from lictor.core.errors import SyntaxFaultError
from lictor.core.facts.schemas import Form
from lictor.core.lang.cel.expression import compile_expression
from lictor.core.lang.cel.lexer import CelToken, read_tokens
from lictor.core.lang.cel.program import NamedOverload
from lictor.core.lang.cel.types import CelType
from lictor.lint.cel_expressions import ExpressionContext
from lictor.lint.cel_inspection import inspect_expression

_LAST_WORD = re.compile(r"(?<!\w)\w*$")
_LOOPS = frozenset({"all", "exists", "exists_one", "filter", "map", "sortBy"})
_OPENERS, _CLOSERS = frozenset("([{"), {")": "(", "]": "[", "}": "{"}
_MOST_LOOPS = 8


def list_cel_words(text: str, context: ExpressionContext) -> Iterator[WordHelp]:
    """What may follow the text of an expression."""
    receiver = read_receiver(text)
    literal = _read_literal(text)
    if literal == "JSONPatch":
        yield from list_patch_fields()
    elif literal is not None:
        yield from _list_fields(literal, context)
    elif receiver is not None and _is_object_type(receiver):
        yield from _list_fields(_as_object(receiver), context)
    elif receiver is None:
        yield from _list_variables(text, context)
        yield from _list_functions(context)
    elif receiver == "variables":
        yield from _list_declared(context)
    else:
        yield from _list_fields(receiver, context)
        yield from _list_members(receiver, context)
        yield from _list_named(receiver, context)


def describe_cel_word(text: str, context: ExpressionContext) -> WordHelp | None:
    """What the last word of a text is."""
    found = _LAST_WORD.search(text)
    word = found[0] if found else ""
    return next((each for each in list_cel_words(text, context) if each.word == word), None)


# --- what stands before the last dot


def read_receiver(text: str) -> str | None:
    """The expression before the dot that a text ends with; None where there is no dot.

    A variable of a loop is replaced by the first element of what the loop goes through:
    `a.all(x, x.b.` is about `a[0].b`.
    """
    tokens = read_tokens(_LAST_WORD.sub("", text))
    if tokens and tokens[-1].text == "?":
        tokens = tokens[:-1]
    if not tokens or tokens[-1].text != ".":
        return None
    chain = _read_chain(tokens[:-1])
    ranges = _list_loop_ranges(tokens)
    for _ in range(_MOST_LOOPS):
        name = next((token.text for token in read_tokens(chain)[:1]), "")
        if name not in ranges:
            break
        chain = f"{ranges[name]}[0]{chain.removeprefix(name)}"
    return chain


def _read_chain(tokens: list[CelToken]) -> str:
    """The selections, calls and indexes that tokens end with, as text."""
    start = len(tokens)
    while start > 0:
        token = tokens[start - 1]
        if token.text in _CLOSERS:
            start = _find_open(tokens, start - 1)
            # Before a bracket: what is called or indexed; otherwise a list or map literal.
            if start > 0 and tokens[start - 1].kind == "name":
                continue
        elif token.kind in ("name", "string", "number"):
            start -= 1
        else:
            break
        # `a.?b`, not `a ? b : c`.
        if [token.text for token in tokens[max(start - 2, 0) : start]] == [".", "?"]:
            start -= 1
        if start == 0 or tokens[start - 1].text != ".":
            break
        start -= 1
    return "".join(token.text for token in tokens[start:])


def _read_literal(text: str) -> str | None:
    """Between the braces of `Object.spec{`, where a field is named: `object.spec`.

    `JSONPatch` between the braces of one; None elsewhere.
    """
    tokens = read_tokens(_LAST_WORD.sub("", text))
    opened = _list_open(tokens)
    if not opened or tokens[opened[-1]].text != "{" or tokens[-1].text not in ("{", ","):
        return None
    chain = _read_chain(tokens[: opened[-1]])
    if chain == "JSONPatch":
        return chain
    return _as_object(chain) if _is_object_type(chain) else None


def _is_object_type(chain: str) -> bool:
    return chain.partition(".")[0] == "Object"


def _as_object(chain: str) -> str:
    """The value that a type is of: `Object.spec` is the type of `object.spec`."""
    return f"object{chain.removeprefix('Object')}"


def _find_open(tokens: list[CelToken], closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += (tokens[index].text in _CLOSERS) - (tokens[index].text in _OPENERS)
        if depth == 0:
            return index
    return 0


def _list_loop_ranges(tokens: list[CelToken]) -> dict[str, str]:
    """The variables of the loops that are open at the end, and what each goes through."""
    ranges: dict[str, str] = {}
    for index in _list_open(tokens):
        before, after = tokens[max(index - 2, 0) : index], tokens[index + 1 : index + 3]
        is_loop = len(before) == 2 and before[0].text == "." and before[1].text in _LOOPS
        if is_loop and len(after) == 2 and after[1].text == ",":
            ranges[after[0].text] = _read_chain(tokens[: index - 2])
    return ranges


def _list_open(tokens: list[CelToken]) -> list[int]:
    """The brackets that are open at the end."""
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.text in _OPENERS:
            opened.append(index)
        elif token.text in _CLOSERS and opened:
            opened.pop()
    return opened


# --- what is offered


def _list_variables(text: str, context: ExpressionContext) -> Iterator[WordHelp]:
    notes = load_words().cel
    for name in context.environment.variables:
        if "." not in name:
            detail, note = notes.get(name, ("any value", ""))
            yield WordHelp(name, detail, note, kind=WordKind.VARIABLE)
    if context.names:
        yield WordHelp("variables", *notes["variables"], kind=WordKind.VARIABLE)
    for name, items in _list_loop_ranges(read_tokens(text)).items():
        yield WordHelp(name, f"each of {items}", kind=WordKind.VARIABLE)


def _list_declared(context: ExpressionContext) -> Iterator[WordHelp]:
    for name in sorted(context.names):
        declared = context.variables.declared.get(name)
        detail = str(declared.kind) if declared else "does not compile"
        form = next((forms.get(f"variables.{name}") for forms in context.forms), None)
        example = declared.text if declared else ""
        yield WordHelp(
            name,
            detail if form is None else name_form(form),
            "a variable of the policy",
            example,
            WordKind.VARIABLE,
        )


def _list_fields(receiver: str, context: ExpressionContext) -> Iterator[WordHelp]:
    # Requests have the same fields in JMESPath.
    notes = load_words().jmespath
    seen = set()
    for form in _infer_forms(receiver, context):
        for name, inner in list(form.map.fields.items()) if form.map else []:
            if name not in seen:
                seen.add(name)
                detail, note = notes.get(f"{receiver}.{name}", (name_form(inner), ""))
                yield WordHelp(name, detail, note)


def _infer_forms(receiver: str, context: ExpressionContext) -> Iterator[Form]:
    for forms in context.forms or ({},):
        try:
            found = inspect_expression(receiver, context.environment, context.variables, forms).form
        except SyntaxFaultError:
            continue
        if found is not None:
            yield found


def name_form(form: Form) -> str:
    """A form in words."""
    if form.scalar and form.map:
        return "any value"
    if form.list is not None:
        return f"list of {name_form(form.list.element)}"
    if form.map is not None:
        others = form.map.others
        return "object" if form.map.fields or others is None else f"map of {name_form(others)}"
    return form.scalar or "any value"


# --- functions


def _list_functions(context: ExpressionContext) -> Iterator[WordHelp]:
    for name, function in load_words().functions.items():
        if _has_library(name, context):
            yield WordHelp(
                name, function.signature, function.note, function.example, WordKind.FUNCTION
            )
    yield from _list_library(
        each for each in context.environment.list_overloads() if not each.is_member
    )


def _has_library(name: str, context: ExpressionContext) -> bool:
    """Kubernetes' environment has fewer of CEL's own libraries."""
    library = name.partition(".")[0]
    if library not in ("base64", "cel", "math"):
        return True
    macros = {key[0] for key in context.environment.macros}
    return name in context.environment.functions or name.rpartition(".")[2] in macros


def _list_library(overloads: Iterable[NamedOverload]) -> Iterator[WordHelp]:
    seen = set()
    for each in overloads:
        key = f".{each.name}" if each.is_member else each.name
        note = load_words().library.get(key)
        if note is not None and key not in seen:
            seen.add(key)
            yield WordHelp(each.name, _write_signature(each), note, kind=WordKind.FUNCTION)


def _write_signature(overload: NamedOverload) -> str:
    given = overload.params[1:] if overload.is_member else overload.params
    head = f"{_short(overload.params[0])}." if overload.is_member else ""
    return f"{head}{overload.name}({', '.join(map(_short, given))}) -> {_short(overload.result)}"


def _short(kind: CelType) -> str:
    return str(kind).rpartition(".")[2] if "(" not in str(kind) else str(kind)


def _list_named(receiver: str, context: ExpressionContext) -> Iterator[WordHelp]:
    """The end of names with a dot: `json.` has `unmarshal`."""
    prefix = f"{receiver}."
    for each in _list_functions(context):
        if each.word.startswith(prefix):
            yield WordHelp(
                each.word.removeprefix(prefix), each.detail, each.note, each.example, each.kind
            )


def _list_members(receiver: str, context: ExpressionContext) -> Iterator[WordHelp]:
    kinds = _name_receiver(receiver, context)
    if kinds is None:
        return
    for name, member in load_words().members.items():
        if not kinds or kinds & set(member.receivers.split()):
            yield WordHelp(name, member.signature, member.note, member.example, WordKind.FUNCTION)
    described = load_words().members
    yield from _list_library(
        each
        for each in context.environment.list_overloads()
        if each.is_member and each.name not in described and each.params[0].name in kinds
    )


def _name_receiver(receiver: str, context: ExpressionContext) -> set[str] | None:
    """The types of what stands before a dot; empty where any may be, None where nothing is."""
    forms = list(_infer_forms(receiver, context))
    if forms:
        return {_name_kind(form) for form in forms} - {""}
    try:
        found = compile_expression(receiver, context.environment, context.variables).result_type
    except SyntaxFaultError:
        return None
    kind = found.partition("(")[0]
    return set() if kind == "dyn" else {kind}


def _name_kind(form: Form) -> str:
    if form.scalar and form.map:
        return ""
    if form.list is not None:
        return "list"
    if form.map is not None:
        # Objects with declared fields are not shown as maps, though CEL treats them so.
        return "object" if form.map.fields else "map"
    return form.scalar
