"""All built-in kinds with particular behaviour, read from kinds.yaml."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import yaml

from lictor.addons.apiserver.kind import (
    WHOLE_METADATA,
    BuiltinResource,
    SelectableField,
    Validate,
)
from lictor.addons.apiserver.name_rules import NAME_RULES
from lictor.addons.apiserver.resources.rules import compile_checks, compile_defaults
from lictor.addons.apiserver.table_columns import (
    OTHER,
    TableColumns,
    build_columns,
    build_timed_columns,
)
from lictor.core.raw import Json, JsonObject

_TABLE = Path(__file__).with_name("kinds.yaml")
# What stands in the table as it is, or as the name of a function.
_PLAIN = {"empty": "empty_object", "warning": "deletion_warning", "resets": "status_resets"}
_NAMED = {"convert": "convert", "uid_defaults": "set_uid_defaults", "parts": "parts"}


@cache
def _load_table() -> JsonObject:
    table: JsonObject = yaml.load(_TABLE.read_bytes(), yaml.CSafeLoader)
    return table


@cache
def find_checks(name: str) -> Validate:
    """Checks that several kinds share."""
    return compile_checks(_load_table()["shared"][name], _find)


@cache
def builtin_resources() -> Mapping[tuple[str, str], BuiltinResource]:
    """All that are declared, by group and kind."""
    declared = (
        BuiltinResource("" if group == "core" else group, kind, **_read_traits(entry))
        for group, kinds in _load_table().items()
        if group != "shared"
        for names, entry in kinds.items()
        for kind in names.split()
    )
    return {(each.group, each.kind): each for each in declared}


def find_resource(group: str, kind: str) -> BuiltinResource:
    """What is declared of a kind; nothing particular where nothing is declared."""
    return builtin_resources().get((group, kind)) or BuiltinResource(group, kind)


def _read_traits(entry: JsonObject) -> JsonObject:
    traits: JsonObject = dict.fromkeys(entry.get("flags", "").split(), True)
    traits |= {trait: entry[word] for word, trait in _PLAIN.items() if word in entry}
    traits |= {trait: _find(entry[word]) for word, trait in _NAMED.items() if word in entry}
    keeps = entry.get("status_keeps", "")
    return traits | {
        "validate_name": NAME_RULES[entry.get("name", "subdomain")],
        "columns": _read_columns(entry),
        "selectable_fields": dict(map(_read_field, entry.get("select", "").split())),
        "set_defaults": compile_defaults(entry["defaults"], _find) if "defaults" in entry else None,
        "validate": compile_checks(entry["checks"], _find) if "checks" in entry else None,
        "status_keeps": WHOLE_METADATA if keeps == "metadata" else tuple(keeps.split()),
    }


def _find(name: str) -> Json:
    """A function, or a table, of a module of this package."""
    module, _, function = name.partition(".")
    return getattr(import_module(f"{__package__}.{module}"), function)


def _read_columns(entry: JsonObject) -> TableColumns:
    if "columns" not in entry:
        return OTHER
    if "row" in entry:
        return build_timed_columns(entry["columns"], _find(entry["row"]))
    functions = [_find(entry["cells"])] if "cells" in entry else []
    return build_columns(entry["columns"], *functions)


def _read_field(text: str) -> tuple[str, SelectableField]:
    """`path`, `path?value-if-missing` or `name=path`."""
    text, _, missing = text.partition("?")
    name, _, path = text.rpartition("=")
    return name or path, SelectableField(tuple(path.split(".")), missing)
