"""What may stand at a place of a file, and what is it for? Help and completion for editors."""

from collections.abc import Iterator

from msgspec import inspect

from lictor.editor.cel_words import describe_cel_word, list_cel_words
from lictor.editor.jmespath_words import JmesPathPlace, describe_query_word, list_query_words
from lictor.editor.name_words import list_names
from lictor.editor.outline import Cursor
from lictor.editor.record_fields import (
    find_record,
    find_record_type,
    list_record_fields,
    list_record_values,
)
from lictor.editor.schema_words import (
    describe_object_field,
    find_place,
    list_object_fields,
    list_object_values,
    list_pointer_fields,
)
from lictor.editor.word_help import WordHelp
from lictor.editor.workspace_files import WorkspaceFiles
from lictor.families.registry import registry
from lictor.kubernetes.resource_names import ResourceNames
from lictor.lang.cel.environment import image_environment, kubernetes_environment
from lictor.lint.cel_expressions import ExpressionContext
from lictor.lint.cel_policies import choose_environment
from lictor.lint.field import Field
from lictor.lint.resource_rules import list_forms, make_object_forms
from lictor.lint.schema_kinds import KnownSchemas, list_matched_kinds
from lictor.model.finding import FieldPath
from lictor.model.policy import Policy
from lictor.raw import Json

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
    """What the word before the cursor is; None where nobody knows."""
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
    """Does a record say that only text may stand here? Then a line of its own is no key."""
    return isinstance(_find_type(cursor, cursor.path), inspect.StrType)


def _make_place(cursor: Cursor, files: WorkspaceFiles) -> JmesPathPlace:
    return JmesPathPlace(cursor.body, cursor.path, files.schemas())


def _find_type(cursor: Cursor, path: FieldPath) -> inspect.Type | None:
    record = find_record(cursor.api_version, cursor.kind)
    return None if record is None else find_record_type(record, path)


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
    yield from list_record_fields(found) if found is not None else ()
    if not path and not cursor.kind:
        yield from list_record_fields(find_record_type(Policy, ()))
    elif found is None or isinstance(found, inspect.AnyType):
        place = find_place(cursor, path, files.schemas())
        yield from list_object_fields(place) if place is not None else ()


def _list_values(cursor: Cursor, files: WorkspaceFiles) -> Iterator[WordHelp]:
    found = _find_type(cursor, cursor.path)
    yield from list_record_values(found) if found is not None else ()
    if found is None or isinstance(found, inspect.AnyType):
        place = find_place(cursor, cursor.path, files.schemas())
        yield from list_object_values(place) if place is not None else ()


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
    place = find_place(cursor, cursor.path, files.schemas())
    return None if place is None else describe_object_field(place)


def _is_free(cursor: Cursor) -> bool:
    return isinstance(_find_type(cursor, cursor.path[:-1]), inspect.AnyType)
