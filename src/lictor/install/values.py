"""The values of the chart: names, defaults, and the content of a file of values."""

import copy
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import msgspec
import orjson

from lictor.core.errors import LoadError
from lictor.core.lang.duration import parse_duration
from lictor.core.load.fields import suggest
from lictor.core.load.yaml import Document, iter_documents
from lictor.core.raw import Json, JsonObject
from lictor.install.crds import OPEN_REPORTS, list_crd_kinds

CONTROLLERS = ("admission", "background", "reports", "cleanup")
_SHORT_GROUPS = {
    "kyverno.io": "kyverno",
    "policies.kyverno.io": "policies",
    "reports.kyverno.io": "reports",
    "wgpolicyk8s.io": "wgpolicyk8s",
    OPEN_REPORTS: "openreports",
    "policies.kubewarden.io": "kubewarden",
}
_KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "time": (str,),
    "int": (int,),
    "count": (int,),
    "bool": (bool,),
    "size": (int, str),
    "texts": (list,),
    "list": (list,),
    "map": (dict,),
}
_WORDS = {
    "text": "a text",
    "time": "a duration such as 30s or 15m",
    "int": "a number",
    "count": "a number of at least 1",
    "bool": "true or false",
    "size": "a number or a percentage",
    "texts": "a list of texts",
    "list": "a list",
    "map": "a map",
}


class ValueRow(msgspec.Struct, frozen=True):
    """One value that people may set."""

    path: str
    type: str
    default: Json
    words: str
    section: str
    # Empty is fine, and means what is usual.
    optional: bool = False
    choices: tuple[str, ...] = ()


def name_controller(controller: str) -> str:
    """Where the values of a controller stand."""
    return f"{controller}Controller"


def name_container(controller: str) -> str:
    """Where the values of its container stand: Kyverno's chart has two places."""
    return f"{name_controller(controller)}{'.container' if controller == 'admission' else ''}"


def name_kind(group: str, plural: str) -> str:
    """The path of the value that installs a kind; families of add-ons have separate groups."""
    short = _SHORT_GROUPS.get(group) or group.replace(".", "-")
    return f"crds.groups.{short}.{plural}"


@cache
def list_values() -> tuple[ValueRow, ...]:
    """All values, in the order in which people read them."""
    text = files("lictor.install").joinpath("values.txt").read_text(encoding="utf-8")
    found: dict[str, ValueRow] = {}
    for row in _read_table(text):
        found.setdefault(row.path, row)
    return tuple(found.values())


def _read_table(text: str) -> Iterator[ValueRow]:
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line and not line.startswith("#"):
            yield from _read_line(line, section)
        elif not line and section == "Kinds":
            yield from _list_kinds(section)


def _read_line(line: str, section: str) -> Iterator[ValueRow]:
    path, kind, rest = line.split(" | ", 2)
    default, _, words = rest.rpartition(" | ")
    name, _, choices = kind.rstrip("?").partition("=")
    chosen = tuple(choices.split(",")) if choices else ()
    optional = kind.endswith("?")
    row = ValueRow(path, name, orjson.loads(default), words, section, optional, chosen)
    if path[:2] not in ("C.", "K."):
        yield row
        return
    start = name_controller if path.startswith("C.") else name_container
    for controller in CONTROLLERS:
        yield msgspec.structs.replace(row, path=f"{start(controller)}.{path[2:]}")


def _list_kinds(section: str) -> Iterator[ValueRow]:
    for kind in list_crd_kinds():
        path = name_kind(kind.group, kind.plural)
        yield ValueRow(path, "bool", True, f"The kind {kind.name} of {kind.group}.", section)  # noqa: FBT003


def default_values() -> JsonObject:
    """The values of an installation for which nothing was chosen."""
    values: JsonObject = {}
    for row in list_values():
        set_value(values, row.path, copy.deepcopy(row.default))
    return values


# --- reading and writing them


def find_value(values: JsonObject, path: str) -> Json:
    """What stands at a path; None where nothing does."""
    found: Json = values
    for name in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def set_value(values: JsonObject, path: str, value: Json) -> None:
    """Write a value in place, with the maps above it."""
    *above, last = path.split(".")
    for name in above:
        values = values.setdefault(name, {})
    values[last] = value


def merge_values(base: JsonObject, more: JsonObject) -> JsonObject:
    """As Helm does: maps are merged, all else is replaced, and null removes."""
    merged = dict(base)
    for name, value in more.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = merge_values(merged[name], value)
        else:
            merged[name] = value
    return merged


def read_values(data: str | bytes, source: str, unused: list[str] | None = None) -> JsonObject:
    """The values of a file; raises LoadError for invalid values.

    Values that the chart does not have are invalid, or, if `unused` is given, left out and
    described there.
    """
    values: JsonObject = {}
    for document in iter_documents(data, source):
        if document.body is None:
            continue
        used = _select_used(document, document.body, "", unused)
        values = merge_values(values, used)
    return values


def _select_used(document: Document, body: Json, path: str, unused: list[str] | None) -> JsonObject:
    if not isinstance(body, dict):
        raise _refuse(document, path, f"{path or 'the file'}: write a map")
    rows = _rows_by_path()
    used: JsonObject = {}
    for name, value in body.items():
        where = f"{path}.{name}" if path else str(name)
        if where in rows and (unused is None or not _has_template(value)):
            _check_value(document, rows[where], value)
            used[name] = value
        elif where in _list_branches():
            used[name] = _select_used(document, {} if value is None else value, where, unused)
        elif unused is None:
            raise _refuse(document, where, f"{_describe_unused(where)}: no such value in the chart")
        else:
            unused.append(_describe_unused(where))
    return used


def _has_template(value: Json) -> bool:
    """Does a list have templates? Kyverno's own defaults have, and only Helm resolves them."""
    return isinstance(value, list) and any(isinstance(each, str) and "{{" in each for each in value)


def _check_value(document: Document, row: ValueRow, value: Json) -> None:
    is_missing = value is None and is_required(row)
    if is_missing or (value is not None and not _fits(row, value)):
        wanted = f"one of {', '.join(row.choices)}" if row.choices else _WORDS[row.type]
        raise _refuse(document, row.path, f"{row.path}: write {wanted}")


def is_required(row: ValueRow) -> bool:
    """Can there be no installation without this value?"""
    return not row.optional and row.type in ("int", "count", "bool", "text", "time")


def _fits(row: ValueRow, value: Json) -> bool:
    if row.optional and not value:
        return True
    is_kind = isinstance(value, _KINDS[row.type])
    return is_kind and isinstance(value, bool) == (row.type == "bool") and _is_sound(row, value)


def _is_sound(row: ValueRow, value: Json) -> bool:
    match row.type:
        case "int" | "count":
            return bool(value >= (row.type == "count"))
        case "text" if row.choices:
            return value in row.choices
        case "texts":
            return all(isinstance(each, str) and "{{" not in each for each in value)
        case "time":
            return _is_duration(value)
        case _:
            return True


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text) >= 0
    except ValueError:
        return False


def _describe_unused(path: str) -> str:
    if path in _rows_by_path():
        return f"{path}: templates of Helm are not resolved"
    close = suggest(path, [*_rows_by_path(), *_list_branches()])
    return f"{path}" + (f"; did you mean {close}?" if close else "")


def _refuse(document: Document, path: str, message: str) -> LoadError:
    return LoadError(message, where=document.where(tuple(path.split("."))))


@cache
def _rows_by_path() -> dict[str, ValueRow]:
    return {row.path: row for row in list_values()}


@cache
def _list_branches() -> frozenset[str]:
    parts = (row.path.split(".") for row in list_values())
    return frozenset(".".join(words[:end]) for words in parts for end in range(1, len(words)))
