"""Which objects does a query mean? Label and field selectors, and lists in pages of one moment."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec
import orjson

from lictor.addons.apiserver.context import ServerContext
from lictor.addons.apiserver.field_errors import Cause
from lictor.addons.apiserver.kind import SelectableField, ServedKind, select_by
from lictor.addons.apiserver.request import refuse_options
from lictor.addons.apiserver.status_errors import bad_request, expired, too_large_version
from lictor.addons.apiserver.store import ObjectKey, ResourceStorage
from lictor.core.errors import CompileError, RefusedRequestError
from lictor.core.lang.label_selector import (
    FieldTerm,
    MapTest,
    parse_field_selector,
    parse_label_selector,
)
from lictor.core.raw import Json, JsonObject

ObjectTest: TypeAlias = Callable[[JsonObject], bool]
_EVERYWHERE = select_by("metadata.name", "metadata.namespace")


def compile_selectors(kind: ServedKind, labels: str, fields: str) -> ObjectTest | None:
    """One test for both selectors of a query; None where everything is wanted."""
    tests: list[ObjectTest] = []
    if labels.strip():
        wanted = _read_labels(labels)
        tests.append(lambda document: wanted(document["metadata"].get("labels") or {}))
    if fields.strip():
        tests.append(_compile_fields(kind, fields))
    if len(tests) == 2:
        first, second = tests
        return lambda document: first(document) and second(document)
    return tests[0] if tests else None


def find_single_name(fields: str) -> str:
    """The name that a field selector requires; empty if it requires none."""
    for term in _read_fields(fields):
        if term.field == "metadata.name" and term.is_equal:
            return term.value
    return ""


# --- labels


@lru_cache(maxsize=256)
def _read_labels(text: str) -> MapTest:
    try:
        return parse_label_selector(text)
    except CompileError as error:
        raise bad_request(str(error)) from error


# --- fields


@lru_cache(maxsize=256)
def _read_fields(text: str) -> tuple[FieldTerm, ...]:
    try:
        return parse_field_selector(text)
    except CompileError as error:
        raise bad_request(str(error)) from error


def _compile_fields(kind: ServedKind, text: str) -> ObjectTest:
    tests = [_compile_field(kind, term) for term in _read_fields(text)]
    return lambda document: all([test(document) for test in tests])


def _compile_field(kind: ServedKind, term: FieldTerm) -> ObjectTest:
    key, value, wanted = term.field, term.value, term.is_equal
    field = _EVERYWHERE.get(key) or kind.traits.selectable_fields.get(key)
    if field is None:
        if kind.is_custom or kind.traits.selectable_fields:
            raise bad_request(f"field label not supported: {key[:200]}")
        listed = ", ".join(f'"{each}"' for each in sorted(_EVERYWHERE))
        raise bad_request(f'"{key[:200]}" is not a known field selector: only {listed}')
    return lambda document: (_read_text(document, field) == value) is wanted


def _read_text(document: Json, field: SelectableField) -> str:
    value = document
    for step in field.path:
        value = value.get(step) if isinstance(value, dict) else None
    if value is None or value == "":
        return field.missing
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_EXACT = "Exact"
_NOT_OLDER = "NotOlderThan"
_GONE = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You must start a new list without the continue parameter."
)


class ListQuery(msgspec.Struct, frozen=True):
    """Which objects of a kind are wanted."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    limit: int = 0
    token: str = ""
    version: str = ""
    version_match: str = ""


class ListPage(msgspec.Struct, frozen=True):
    """Some of them, and where to go on."""

    items: list[JsonObject]
    revision: int
    token: str = ""
    remaining: int | None = None

    def describe(self) -> JsonObject:
        """The metadata of a list."""
        metadata: JsonObject = {"resourceVersion": str(self.revision)}
        if self.token:
            metadata["continue"] = self.token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


class _Token(msgspec.Struct, frozen=True):
    revision: int
    namespace: str
    name: str

    def write(self) -> str:
        return urlsafe_b64encode(orjson.dumps([self.revision, self.namespace, self.name])).decode()


def _read_token(text: str) -> _Token:
    try:
        parts = orjson.loads(urlsafe_b64decode(text.encode()))
        return msgspec.convert(dict(zip(_Token.__struct_fields__, parts, strict=True)), _Token)
    except (binascii.Error, ValueError, TypeError, msgspec.ValidationError) as error:
        raise bad_request("invalid continue token: continue key is not valid") from error


def read_version(text: str) -> int:
    """A resourceVersion of a query as a number; 0 where any will do."""
    if not text:
        return 0
    if not text.isdecimal() or len(text) > 18:
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text[:100]}": '
            f'strconv.ParseUint: parsing "{text[:100]}": invalid syntax'
        )
    return int(text)


def list_page(context: ServerContext, kind: ServedKind, query: ListQuery) -> ListPage:
    """One page of a list, or all of it where no limit is given."""
    storage = context.store.storage(kind.group, kind.plural)
    test = compile_selectors(kind, query.labels, query.fields)
    name = find_single_name(query.fields)
    if name and query.namespace:
        return _list_single(context, kind, (query.namespace, name), test)
    revision, start = _find_start(context, query)
    objects, keys = _open(storage, query, revision, context.store.revision)
    if start is not None:
        keys = keys[bisect_right(keys, start) :]
    if not query.limit and test is None:
        return ListPage([context.show(kind, objects[key]) for key in keys], revision)
    return _cut(context, kind, query, revision, _select(objects, keys, test))


def _list_single(
    context: ServerContext, kind: ServedKind, key: ObjectKey, test: ObjectTest | None
) -> ListPage:
    found = context.store.get(kind, *key)
    fits = found is not None and (test is None or test(found))
    items = [context.show(kind, found)] if fits and found is not None else []
    return ListPage(items, context.store.revision)


def _find_start(context: ServerContext, query: ListQuery) -> tuple[int, ObjectKey | None]:
    """The moment that the list shows, and the key behind which it goes on."""
    _check_match(query)
    current = context.store.revision
    if query.token:
        token = _read_token(query.token)
        return token.revision, (token.namespace, token.name)
    wanted = read_version(query.version)
    if wanted > current:
        raise too_large_version(wanted, current)
    return (wanted, None) if query.version_match == _EXACT else (current, None)


def _check_match(query: ListQuery) -> None:
    match = query.version_match
    if not match:
        return
    field = "resourceVersionMatch"
    if query.token:
        detail = f"Forbidden: {field} is forbidden when continue is provided"
    elif not query.version:
        detail = f"Forbidden: {field} is forbidden unless resourceVersion is provided"
    elif match not in (_EXACT, _NOT_OLDER):
        listed = f'"{_EXACT}", "{_NOT_OLDER}", ""'
        detail = f'Unsupported value: "{match[:40]}": supported values: {listed}'
        raise refuse_options("ListOptions", Cause("FieldValueNotSupported", detail, field))
    else:
        return
    raise refuse_options("ListOptions", Cause("FieldValueForbidden", detail, field))


def _open(
    storage: ResourceStorage, query: ListQuery, revision: int, current: int
) -> tuple[Mapping[ObjectKey, JsonObject], list[ObjectKey]]:
    if revision == current:
        return storage.objects, storage.keys_of(query.namespace)
    try:
        objects = storage.at(revision)
    except RefusedRequestError as error:
        raise expired(_GONE if query.token else error.message) from error
    wanted = query.namespace
    return objects, sorted(key for key in objects if not wanted or key[0] == wanted)


def _select(
    objects: Mapping[ObjectKey, JsonObject], keys: list[ObjectKey], test: ObjectTest | None
) -> Iterator[tuple[int, ObjectKey, JsonObject]]:
    """How many are left behind it, its key, and the object."""
    last = len(keys) - 1
    for index, key in enumerate(keys):
        document = objects[key]
        if test is None or test(document):
            yield last - index, key, document


def _cut(
    context: ServerContext,
    kind: ServedKind,
    query: ListQuery,
    revision: int,
    found: Iterator[tuple[int, ObjectKey, JsonObject]],
) -> ListPage:
    items: list[JsonObject] = []
    for left, key, document in found:
        items.append(context.show(kind, document))
        if len(items) == query.limit and left:
            token = _Token(revision, *key).write()
            # How many of the rest fit a selector is only known by looking.
            selects = bool(query.labels or query.fields)
            return ListPage(items, revision, token, None if selects else left)
    return ListPage(items, revision)
