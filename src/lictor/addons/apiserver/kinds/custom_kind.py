"""How objects of custom kinds are read, completed and checked: by their own schema."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property, lru_cache

import orjson

from lictor.addons.apiserver.decoding import explain_metadata
from lictor.addons.apiserver.field_checks import validate_metadata
from lictor.addons.apiserver.field_errors import NOWHERE, Cause
from lictor.addons.apiserver.json_fields import read_text
from lictor.addons.apiserver.kind import BuiltinResource, ServedKind
from lictor.addons.apiserver.schemas.schema_validation import ABSENT, check_lists, check_value
from lictor.addons.apiserver.schemas.structural_schema import (
    StructuralSchema,
    complete_value,
    list_unknown_values,
    prune_value,
)
from lictor.addons.apiserver.table_columns import Column, TableColumns, format_age, name_of
from lictor.core.errors import SyntaxFaultError, UndecodableObjectError
from lictor.core.facts.custom_schemas import read_custom_form
from lictor.core.facts.facts import SubresourceFacts
from lictor.core.facts.schemas import Form
from lictor.core.raw import Json, JsonObject

_SUBRESOURCES = {
    "status": SubresourceFacts(("get", "patch", "update")),
    "scale": SubresourceFacts(("get", "patch", "update"), ("autoscaling/v1", "Scale")),
}


def read_kinds(crd: JsonObject) -> tuple[ServedKind, ...]:
    """One kind for each version that is served."""
    versions = crd["spec"]["versions"]
    return tuple(_read_kind(crd, version) for version in versions if version.get("served"))


def read_storage_version(crd: JsonObject) -> str:
    """The version in which objects are kept."""
    versions = crd["spec"]["versions"]
    kept: list[str] = [each["name"] for each in versions if each.get("storage")]
    return kept[0] if kept else str(versions[0]["name"])


def _read_kind(crd: JsonObject, version: JsonObject) -> ServedKind:
    spec = crd["spec"]
    names = spec["names"]
    schema = CustomSchema(version, names["kind"])
    traits = BuiltinResource(
        spec["group"],
        names["kind"],
        columns=read_columns(version.get("additionalPrinterColumns") or []),
        counts_generations=True,
        needs_version=True,
    )
    return ServedKind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec.get("scope") == "Namespaced",
        schema=schema,
        traits=traits,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources={
            name: facts
            for name, facts in _SUBRESOURCES.items()
            if (version.get("subresources") or {}).get(name) is not None
        },
        is_custom=True,
    )


# Faults after which rules could stumble over what they look at.
_BLOCKING = frozenset((
    "FieldValueTypeInvalid", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
    "FieldValueNotSupported",
))  # fmt: skip
_NOT_ASKED = Cause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
    NOWHERE,
)


class CustomSchema:
    """One version of a custom kind."""

    def __init__(self, version: JsonObject, kind: str) -> None:
        self.openapi: JsonObject = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        # Where replicas and the selector are found, for those that can be scaled.
        self.scale: JsonObject = (version.get("subresources") or {}).get("scale") or {}
        self._version: str = version["name"]
        self._kind = kind

    @cached_property
    def _schema(self) -> StructuralSchema:
        return StructuralSchema(self.openapi, is_root=True)

    @cached_property
    def form(self) -> Form:
        return read_custom_form(self.openapi)

    def list_unknown(self, document: JsonObject) -> list[str]:
        return list_unknown_values(self._schema, document)

    def prune(self, document: JsonObject) -> JsonObject:
        why = explain_metadata(document.get("metadata"))
        if why:
            raise UndecodableObjectError(self._kind, self._version, why)
        pruned: JsonObject = prune_value(self._schema, document)
        return pruned

    def apply_defaults(self, document: JsonObject) -> JsonObject:
        completed: JsonObject = complete_value(self._schema, document)
        return completed

    def validate(
        self, document: JsonObject, old: JsonObject | None, subresource: str = ""
    ) -> list[Cause]:
        del subresource
        found = validate_metadata(document, old, takes_any_finalizer=True)
        before = ABSENT if old is None else old
        faults: list[Cause] = []
        check_value(self._schema, document, before, "", faults.append)
        check_lists(self._schema, document, before, "", faults.append)
        if not self._schema.has_rules:
            return found + faults
        if any(fault.reason in _BLOCKING for fault in faults):
            return [*found, *faults, _NOT_ASKED]
        # The engine of rules takes a while to load: only who has rules needs it.
        from lictor.addons.apiserver.schemas.cel_rules import check_rules

        check_rules(self._schema, document, before, "", faults.append)
        return found + faults


Step = Callable[[Json], Iterator[Json]]
# re: linear - the first failure ends the reading
_TOKEN = re.compile(
    r"\.\.(?P<deep>\*|[\w-]+)|\.(?P<field>\*|(?:\\.|[^.\[\]\s(){}\\])+)"
    r"|\[\?\(\s*@(?P<left>[^=!<>~]*?)(?:(?P<operator>==|!=|<=|>=|<|>)(?P<right>.+?))?\)\]"
    r"|\[(?P<start>-?[0-9]{0,18}):(?P<end>-?[0-9]{0,18})\]"
    r"|\[(?P<index>-?[0-9]{1,18}|\*)\]|\[(?P<quoted>'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")\]"
)
_LONGEST_PATH = 8 * 1024
_COMPARISONS: dict[str, Callable[[Json, Json], bool]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


class JsonPath:
    """A compiled path: call it with a value; it answers all that it leads to."""

    def __init__(self, text: str, steps: tuple[Step, ...]) -> None:
        self.text = text
        self._steps = steps

    def __call__(self, value: Json) -> list[Json]:
        found = [value]
        for step in self._steps:
            found = [inner for each in found for inner in step(each)]
        return found


@lru_cache(maxsize=1024)
def compile_path(text: str) -> JsonPath:
    """Read a path, with or without braces and `$`; SyntaxFaultError where it cannot be read."""
    if len(text) > _LONGEST_PATH:
        raise SyntaxFaultError(f"longer than {_LONGEST_PATH} characters", text=text[:80])
    path = text.strip().removeprefix("{").removesuffix("}").strip().removeprefix("$")
    if path and path[0] not in ".[":
        path = f".{path}"
    steps: list[Step] = []
    position = 0
    while position < len(path):
        found = _TOKEN.match(path, position)
        if found is None:
            raise SyntaxFaultError(f"unrecognized character in {text!r}", text=text)
        steps.append(_read_step(found))
        position = found.end()
    return JsonPath(text, tuple(steps))


def _read_step(found: re.Match[str]) -> Step:
    if (field := found["field"]) is not None:
        return _all_parts if field == "*" else _step_field(_unescape(field))
    if (quoted := found["quoted"]) is not None:
        return _step_field(_unescape(quoted[1:-1]))
    if (index := found["index"]) is not None:
        return _all_parts if index == "*" else _step_index(int(index))
    if found["deep"] is not None:
        return _step_deep(found["deep"])
    if found["start"] is not None:
        return _step_slice(found["start"], found["end"])
    return _step_filter(found["left"], found["operator"], found["right"])


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


def _all_parts(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _step_field(name: str) -> Step:
    def step(value: Json) -> Iterator[Json]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _step_index(index: int) -> Step:
    def step(value: Json) -> Iterator[Json]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _step_slice(start: str, end: str) -> Step:
    part = slice(int(start) if start else None, int(end) if end else None)

    def step(value: Json) -> Iterator[Json]:
        if isinstance(value, list):
            yield from value[part]

    return step


def _step_deep(name: str) -> Step:
    def step(value: Json) -> Iterator[Json]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        for inner in _all_parts(value):
            if name == "*":
                yield inner
            yield from step(inner)

    return step


def _step_filter(left: str, operator: str | None, right: str | None) -> Step:
    path = compile_path(left)
    expected = _read_operand(right.strip()) if right is not None else None

    def holds(item: Json) -> bool:
        found = path(item)
        if operator is None or not found:
            return bool(found)
        try:
            other = expected(item) if callable(expected) else expected
            return _COMPARISONS[operator](found[0], other)
        except TypeError:
            return False

    def step(value: Json) -> Iterator[Json]:
        if isinstance(value, list):
            yield from (item for item in value if holds(item))

    return step


def _read_operand(text: str) -> Json:
    if text.startswith("@"):
        path = compile_path(text[1:])
        return lambda item: next(iter(path(item)), None)
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return _unescape(text[1:-1])
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


_NAME = Column("Name", format="name")
_AGE: JsonObject = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
}
_CellOf = Callable[[JsonObject, datetime], Json]


def read_columns(columns: list[JsonObject]) -> TableColumns:
    """The name, then the columns of the definition, by default the age."""
    wanted = columns or [_AGE]
    cells = [_compile_cell(each) for each in wanted]

    def fill(document: JsonObject, now: datetime) -> list[Json]:
        return [name_of(document), *(cell(document, now) for cell in cells)]

    return TableColumns((_NAME, *map(_read_column, wanted)), fill)


def _read_column(column: JsonObject) -> Column:
    return Column(
        name=read_text(column, "name"),
        type=read_text(column, "type") or "string",
        format=read_text(column, "format"),
        priority=column.get("priority") or 0,
        description=read_text(column, "description"),
    )


def _compile_cell(column: JsonObject) -> _CellOf:
    try:
        path = compile_path(read_text(column, "jsonPath"))
    except SyntaxFaultError:
        return lambda _document, _now: None
    kind = read_text(column, "type")

    def cell(document: JsonObject, now: datetime) -> Json:
        found = path(document)
        if not found or found[0] is None:
            return None
        # Of several, the first.
        return format_age(found[0], now) if kind == "date" else _show(found[0], kind)

    return cell


def _show(value: Json, kind: str) -> Json:
    """A cell of the type that its column has; what is of another type is left out."""
    match kind:
        case "integer":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return int(value) if is_number else None
        case "number":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return value if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case _:
            return value if isinstance(value, str) else orjson.dumps(value).decode()
