"""JSON documents with `{{ }}` as CEL expressions that make them."""

from lictor.convert.query import translate_text, write_text
from lictor.convert.scope import Scope
from lictor.convert.value import Constant, Either, as_place, settle
from lictor.convert.writing import literal, quote
from lictor.errors import CompileError
from lictor.lang.template import has_variables
from lictor.raw import Json


def write_json(value: Json, scope: Scope) -> str:
    """The expression that makes a document.

    CEL wants the values of a map, and the elements of a list, to be of one type, unless each says
    that it may be of any.
    """
    if isinstance(value, dict):
        return _write_map(value, scope)
    if isinstance(value, list):
        texts = [write_json(item, scope) for item in value]
        alike = {type(item) for item in value} <= {str} or len(value) == 1
        return f"[{', '.join(texts if alike else map(_any, texts))}]"
    return write_leaf(value, scope)


def _write_map(value: dict[str, Json], scope: Scope) -> str:
    if any(has_variables(str(key)) for key in value):
        raise CompileError("a key with variables")
    texts = {key: write_json(item, scope) for key, item in value.items()}
    alike = all(isinstance(item, str) for item in value.values())
    pairs = [f"{quote(k)}: {text if alike else _any(text)}" for k, text in texts.items()]
    return f"{{{', '.join(pairs)}}}"


def _any(text: str) -> str:
    return f"dyn({text})"


def write_leaf(value: Json, scope: Scope) -> str:
    """A scalar, whose text may hold variables."""
    if not isinstance(value, str):
        return literal(value)
    found = settle(translate_text(value, scope))
    if isinstance(found, Constant):
        return literal(found.value)
    if isinstance(found, Either):
        return write_text(found)
    return as_place(found).text
