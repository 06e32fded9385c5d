"""Lists of objects, in pages that all show the same moment."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterator, Mapping

import msgspec
import orjson

from lictor.apiserver.context import ServerContext
from lictor.apiserver.field_errors import Cause
from lictor.apiserver.kind import ServedKind
from lictor.apiserver.request import refuse_options
from lictor.apiserver.selectors import ObjectTest, compile_selectors, find_single_name
from lictor.apiserver.status_errors import bad_request, expired, too_large_version
from lictor.apiserver.store import ObjectKey, ResourceStorage
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

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
        told = f"Forbidden: {field} is forbidden when continue is provided"
    elif not query.version:
        told = f"Forbidden: {field} is forbidden unless resourceVersion is provided"
    elif match not in (_EXACT, _NOT_OLDER):
        listed = f'"{_EXACT}", "{_NOT_OLDER}", ""'
        told = f'Unsupported value: "{match[:40]}": supported values: {listed}'
        raise refuse_options("ListOptions", Cause("FieldValueNotSupported", told, field))
    else:
        return
    raise refuse_options("ListOptions", Cause("FieldValueForbidden", told, field))


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
