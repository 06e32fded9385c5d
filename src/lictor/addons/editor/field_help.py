"""What may stand at a place of a file, and what is it for? Help and completion for editors."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import inspect

from lictor.addons.editor.cel_words import describe_cel_word, list_cel_words
from lictor.addons.editor.jmespath_words import (
    JmesPathLocation,
    describe_query_word,
    list_query_words,
)
from lictor.addons.editor.name_words import list_names
from lictor.addons.editor.outline import Cursor
from lictor.addons.editor.schema_words import (
    describe_object_field,
    find_location,
    list_object_fields,
    list_object_values,
    list_pointer_fields,
)
from lictor.addons.editor.word_help import WordHelp, WordKind, find_field_note
from lictor.addons.editor.workspace_files import WorkspaceFiles
from lictor.cli.inputs.records import FILE_RECORDS
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.registry import registry
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import image_environment
from lictor.core.model import matching, signatures
from lictor.core.model.finding import FieldPath
from lictor.core.model.policy import Policy
from lictor.core.raw import Json
from lictor.lint.cel_expressions import ExpressionContext
from lictor.lint.cel_policies import choose_environment
from lictor.lint.field import Field
from lictor.lint.resource_rules import list_forms, make_object_forms
from lictor.lint.schema_kinds import KnownSchemas, list_matched_kinds

_CEL_FIELDS = frozenset(("expression", "messageExpression", "valueExpression"))
_QUERY_FIELDS = frozenset(("jmesPath", "list"))
# A group of policies in WebAssembly calls its members, and nothing else.
_NO_CEL = "policies.kubewarden.io"


def list_words(cursor: Cursor, files: WorkspaceFiles) -> list[WordHelp]:
    """The words that may stand at a place."""
    context = _find_cel(cursor, files)
    if context is not None:
        return list(list_cel_words(cursor.text, context))
    query = _read_query(cursor)
    if query is not None:
        return list(list_query_words(query, _make_place(cursor, files)))
    return list(_list_plain(cursor, files))


def describe_word(cursor: Cursor, files: WorkspaceFiles) -> WordHelp | None:
    """The word before the cursor; None if it is unknown."""
    context = _find_cel(cursor, files)
    if context is not None and not _is_on_key(cursor):
        return describe_cel_word(cursor.text, context)
    query = _read_query(cursor)
    if query is not None and not _is_on_key(cursor):
        return describe_query_word(query, _make_place(cursor, files))
    return _describe_plain(cursor, files)


def _is_on_key(cursor: Cursor) -> bool:
    """Is the name of the field meant, not its value?"""
    return not cursor.text.strip()


def _find_cel(cursor: Cursor, files: WorkspaceFiles) -> ExpressionContext | None:
    """What the CEL expression at the cursor may use; None where there is none."""
    if not cursor.path or cursor.path[-1] not in _CEL_FIELDS or not _is_text(cursor):
        return None
    if cursor.api_version.startswith(_NO_CEL):
        return None
    return _find_cel_context(cursor.body, cursor.path, files.names(), files.schemas())


def _read_query(cursor: Cursor) -> str | None:
    """The text of the JMESPath expression at the cursor; None where there is none."""
    if cursor.variable is not None:
        return cursor.variable
    if cursor.path and cursor.path[-1] in _QUERY_FIELDS and _is_text(cursor):
        return cursor.text
    return None


def _is_text(cursor: Cursor) -> bool:
    """Whether a record allows only text here: then a separate line is no key."""
    return isinstance(_find_type(cursor, cursor.path), inspect.StrType)


def _make_place(cursor: Cursor, files: WorkspaceFiles) -> JmesPathLocation:
    return JmesPathLocation(cursor.body, cursor.path, files.schemas())


def _find_type(cursor: Cursor, path: FieldPath) -> inspect.Type | None:
    record = _find_record(cursor.api_version, cursor.kind)
    return None if record is None else _find_record_type(record, path)


# --- what CEL expressions may use


def _find_cel_context(
    body: Json, path: FieldPath, names: ResourceNames, schemas: KnownSchemas
) -> ExpressionContext | None:
    """Environment, variables and types; None where no policy is."""
    policy = Field(body)
    kind = registry().find(policy["apiVersion"].text.rpartition("/")[0], policy["kind"].text)
    if kind is None:
        return None
    if "matchImageReferences" in path:
        return ExpressionContext(image_environment())
    if kind.cel_profile or kind.is_native:
        spec = policy["spec"]
        targets = spec["targetMatchConstraints"]
        # Where others are changed than the object of the request, `object` is one of those.
        subject = targets if targets["resourceRules"] else spec["matchConstraints"]
        forms = list_forms(spec, subject, names, schemas)
        plain = ExpressionContext(choose_environment(policy, kind), forms=forms)
        return plain.declare(spec["variables"])[0]
    return _find_rule_context(policy, path, schemas)


def _find_rule_context(policy: Field, path: FieldPath, schemas: KnownSchemas) -> ExpressionContext:
    """Of a rule of a classic policy, or of the conditions of its webhook."""
    rules = policy["spec"]["rules"].each()
    rule = next((each for each in rules if each.path == path[:3]), Field(None))
    cel = rule["validate"]["cel"]
    environment = kubernetes_environment(has_params=bool(cel["paramKind"]))
    forms = make_object_forms(schemas.find_forms(list_matched_kinds(rule)), cel, schemas)
    return ExpressionContext(environment, forms=forms).declare(cel["variables"])[0]


# --- fields and values


def _list_plain(cursor: Cursor, files: WorkspaceFiles) -> Iterator[WordHelp]:
    found = list(list_names(cursor, files))
    if cursor.path[-1:] == ("patchesJson6902",):
        found = list(list_pointer_fields(cursor, files.schemas()))
    if found:
        yield from found
    elif cursor.is_key:
        yield from _list_fields(cursor, cursor.path, files)
        yield from _list_values(cursor, files)
    else:
        yield from _list_values(cursor, files)


def _list_fields(cursor: Cursor, path: FieldPath, files: WorkspaceFiles) -> Iterator[WordHelp]:
    found = _find_type(cursor, path)
    yield from _list_record_fields(found) if found is not None else ()
    if not path and not cursor.kind:
        yield from _list_record_fields(_find_record_type(Policy, ()))
    elif found is None or isinstance(found, inspect.AnyType):
        location = find_location(cursor, path, files.schemas())
        yield from list_object_fields(location) if location is not None else ()


def _list_values(cursor: Cursor, files: WorkspaceFiles) -> Iterator[WordHelp]:
    found = _find_type(cursor, cursor.path)
    yield from _list_record_values(found) if found is not None else ()
    if found is None or isinstance(found, inspect.AnyType):
        location = find_location(cursor, cursor.path, files.schemas())
        yield from list_object_values(location) if location is not None else ()


def _describe_plain(cursor: Cursor, files: WorkspaceFiles) -> WordHelp | None:
    word = cursor.text.strip()
    named = (each for each in list_names(cursor, files) if each.word == word)
    found = next(named, None) if word else None
    if found is not None or not cursor.path or not isinstance(cursor.path[-1], str):
        return found
    fields = _list_fields(cursor, cursor.path[:-1], files)
    known = next((each for each in fields if each.word == cursor.path[-1]), None)
    return known or _describe_object(cursor, files)


def _describe_object(cursor: Cursor, files: WorkspaceFiles) -> WordHelp | None:
    """A field with an anchor, or of a map with keys of one's choice."""
    if _find_type(cursor, cursor.path[:-1]) is not None and not _is_free(cursor):
        return None
    location = find_location(cursor, cursor.path, files.schemas())
    return None if location is None else describe_object_field(location)


def _is_free(cursor: Cursor) -> bool:
    return isinstance(_find_type(cursor, cursor.path[:-1]), inspect.AnyType)


# --- which fields and values do policies and files of the command line have? From their records


def _find_record(api_version: str, kind: str) -> type[msgspec.Struct] | None:
    """The record of a kind of policy or of file; None of other kinds."""
    found = registry().find(api_version.rpartition("/")[0], kind)
    if found is None and not api_version:
        # Not yet written, or the line that is being written.
        found = next((each for each in registry().kinds if each.kind == kind), None)
    return found.family.get_record(found) if found else FILE_RECORDS.get(kind)


def _find_record_type(record: type[msgspec.Struct], path: FieldPath) -> inspect.Type:
    """What may stand at a path."""
    location: inspect.Type = inspect.type_info(record)
    for step in path:
        location = _step_into(_unwrap(location, step), step)
    return _unwrap(location)


def _step_into(location: inspect.Type, step: str | int) -> inspect.Type:
    match location:
        case inspect.StructType(fields=fields):
            found = [each.type for each in fields if each.encode_name == step]
            return found[0] if found else inspect.AnyType()
        case inspect.VarTupleType(item_type=inner) if isinstance(step, int):
            return inner
        case inspect.DictType(value_type=inner):
            return inner
        case _:
            return inspect.AnyType()


def _unwrap(location: inspect.Type, step: str | int | None = None) -> inspect.Type:
    """The type itself; the next step distinguishes a free-form object from a list of such."""
    while True:
        match location:
            case inspect.Metadata(extra={"shape": str(shape), "items": str(items)}):
                name = items if isinstance(step, int) else shape
                location = _read_shape(name, is_list=isinstance(step, int))
            case inspect.Metadata(type=inner):
                location = inner
            case inspect.UnionType(types=types):
                location = next(t for t in types if not isinstance(t, inspect.NoneType))
            case inspect.StructType(cls=cls, fields=()):
                # The type of a class is not looked into where it nests itself.
                return inspect.type_info(cls)
            case _:
                return location


def _read_shape(name: str, *, is_list: bool) -> inspect.Type:
    record = getattr(matching, name, None) or getattr(signatures, name, None)
    if record is None:
        return inspect.AnyType()
    found = inspect.type_info(record)
    return inspect.VarTupleType(found) if is_list else found


def _list_record_fields(location: inspect.Type) -> Iterator[WordHelp]:
    """The fields of an object."""
    if not isinstance(location, inspect.StructType):
        return
    for field in location.fields:
        note, example = find_field_note(location.cls, field.encode_name)
        detail = _name_type(_unwrap(field.type))
        if isinstance(field.default, (bool, int)) or (field.default and _is_word(field.default)):
            detail += f", default {str(field.default).lower()}"
        yield WordHelp(
            field.encode_name,
            detail,
            note or _read_note(_unwrap(field.type)),
            example,
            is_required=field.required,
        )


def _is_word(value: object) -> bool:
    return isinstance(value, str)


def _list_record_values(location: inspect.Type) -> Iterator[WordHelp]:
    """The words that a value may be."""
    if isinstance(location, inspect.VarTupleType):
        location = _unwrap(location.item_type)
    if isinstance(location, inspect.LiteralType):
        yield from (WordHelp(str(each), kind=WordKind.VALUE) for each in location.values if each)
    elif isinstance(location, inspect.BoolType):
        yield from (WordHelp(each, kind=WordKind.VALUE) for each in ("true", "false"))


_NAMES: Mapping[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.StructType: "object",
    inspect.DictType: "map",
}


def _name_type(location: inspect.Type) -> str:
    if isinstance(location, inspect.VarTupleType):
        return f"list of {_name_type(_unwrap(location.item_type))}"
    if isinstance(location, inspect.LiteralType):
        return " or ".join(str(each) for each in location.values if each)
    return _NAMES.get(type(location), "any value")


def _read_note(location: inspect.Type) -> str:
    """The docstring of a record."""
    if isinstance(location, inspect.VarTupleType):
        return _read_note(_unwrap(location.item_type))
    return (location.cls.__doc__ or "").strip() if isinstance(location, inspect.StructType) else ""
