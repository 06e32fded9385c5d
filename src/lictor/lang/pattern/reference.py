"""References such as `$(./../requests/memory)`, which stand for another leaf of a pattern."""

import posixpath
import re

from lictor.errors import CompileError
from lictor.lang.pattern.anchor import strip_anchor
from lictor.lang.pattern.scalar import split_operator
from lictor.lang.pattern.shape import check_shape
from lictor.raw import Json

_REFERENCE = re.compile(r"^\$\(.[^ ]*\)|[^\\]\$\(.[^ ]*\)")
_ESCAPED = re.compile(r"\\(\$\(.[^ )]*\))")
# To look for references takes time that grows with the square of the text.
_MAX_TEXT = 4096

Path = tuple[str, ...]


def resolve_references(document: Json) -> Json:
    """Give the document with all references resolved, or the document itself if it has none.

    This comes before variables are filled in: what a request holds is never taken for a reference.
    """
    check_shape(document)
    if not _holds_references(document):
        return document
    leaves: dict[str, Json] = {}
    _collect(document, (), leaves)
    return _resolve(document, (), leaves)


def _holds_references(node: Json) -> bool:
    if isinstance(node, dict):
        return any(_holds_references(key) or _holds_references(node[key]) for key in node)
    if isinstance(node, list):
        return any(_holds_references(item) for item in node)
    return isinstance(node, str) and "$(" in node


def _collect(node: Json, path: Path, leaves: dict[str, Json]) -> None:
    """List leaves by path; a path to a map gives one of its keys, as it does in Kyverno."""
    if isinstance(node, dict):
        for key, value in node.items():
            leaves["/" + "/".join(path)] = key
            _collect(value, (*path, strip_anchor(key)), leaves)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            _collect(value, (*path, str(index)), leaves)
    else:
        leaves["/" + "/".join(path)] = node


def _resolve(node: Json, path: Path, leaves: dict[str, Json]) -> Json:
    if isinstance(node, dict):
        return {
            _resolve(key, path, leaves): _resolve(value, (*path, strip_anchor(key)), leaves)
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_resolve(value, (*path, str(i)), leaves) for i, value in enumerate(node)]
    return _resolve_text(node, path, leaves) if isinstance(node, str) else node


def _resolve_text(text: str, path: Path, leaves: dict[str, Json]) -> str:
    if "$(" not in text:
        return text
    if len(text) > _MAX_TEXT:
        raise CompileError(f"the text at /{'/'.join(path)} is too long to hold references")

    def replace(found: re.Match[str]) -> str:
        reference = found.group()
        lead = "" if reference.startswith("$(") else reference[0]
        return lead + _look_up(reference[len(lead) :], path, leaves)

    return _ESCAPED.sub(r"\1", _REFERENCE.sub(replace, text))


def _look_up(reference: str, path: Path, leaves: dict[str, Json]) -> str:
    sign, target = split_operator(reference.strip("$()"))
    place = "/" + "/".join(path)
    if not target:
        raise CompileError(f"{reference} at {place} refers to nothing")
    value = leaves.get(posixpath.normpath(posixpath.join(place, target)))
    if isinstance(value, str):
        return sign + value
    if sign and isinstance(value, (int, float)) and not isinstance(value, bool):
        return sign + (str(value) if isinstance(value, int) else f"{value:f}")
    if value is None:
        raise CompileError(f"{reference} at {place} refers to a place that the pattern has not")
    raise CompileError(f"{reference} at {place} refers to a value that is not a text")
