"""Resources and payloads in files: split into documents, parsed one by one, with defaults."""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from lictor.cli.inputs.sources import SourceText, read_any
from lictor.core.errors import LoadError, LookupFailedError
from lictor.core.files import is_object_file, list_files, read_bytes
from lictor.core.load.yaml import iter_documents
from lictor.core.model.finding import FieldPath
from lictor.core.model.request import GroupVersionKind, Request
from lictor.core.raw import Json, JsonObject

_NO_KIND = GroupVersionKind("", "", "")


class Payload(msgspec.Struct, frozen=True):
    """One document of a file, with the path that the user gave."""

    path: str
    body: JsonObject

    def make_request(self, mode: str) -> Request:
        """Return the request of a payload for policies of a mode; its `kind` is ignored."""
        if mode == "JSON":
            return Request(kind=_NO_KIND, object=self.body)
        from lictor.core.families.kyverno_cel.authorizing import REQUEST_KINDS

        return Request(kind=REQUEST_KINDS[mode], object=self.body)


def load_payloads(paths: Iterable[str]) -> Iterator[Payload]:
    """Load the payloads of files, one for each document."""
    for path in paths:
        yield from parse_payloads(read_any(path))


def parse_payloads(text: SourceText) -> Iterator[Payload]:
    """The payloads of one file."""
    found = False
    for document in iter_documents(text.content, text.path):
        found = True
        if not isinstance(document.body, dict):
            raise LoadError("a payload is an object", where=f"{text.path}:{document.line}")
        yield Payload(text.path, document.body)
    if not found:
        raise LoadError("there is no payload in this file", where=text.path)


# The text after the dashes is a comment, or an error that the parser reports.
_SEPARATOR = re.compile(rb"\n---")
# A line that is no comment and no mere separator; or what may end a comment, or is no YAML.
# re: linear - blanks are taken from the beginning of a line only
_CONTENT = re.compile(
    rb"^(?!---[ \t]*(?:#|\r?$))[ \t]*[^#\s]"
    rb"|\r(?!\n)|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]",
    re.MULTILINE,
)
# Maps that Helm charts leave empty (`annotations:`); a null there means an empty map.
_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector", "data", "stringData"})
# Resources that answer lookups are held in memory, at about ten times the size of their text.
MAX_ANSWERING_BYTES: Final = 64 << 20


class DocumentSpan(msgspec.Struct, frozen=True):
    """The range of one document in a text."""

    start: int
    end: int


class DocumentText(msgspec.Struct, frozen=True):
    """The text of one document, and its position in the file."""

    path: str
    content: bytes
    # The lines of the file before it, and the characters of its first line before it.
    line: int = 0
    column: int = 0


def find_documents(content: bytes) -> list[DocumentSpan]:
    """Find the documents of a text that contain more than comments; nothing is parsed."""
    starts = [0, *(found.start() + 1 for found in _SEPARATOR.finditer(content))]
    spans = []
    for start, end in zip(starts, (*starts[1:], len(content)), strict=True):
        if _CONTENT.search(content, start, end):
            spans.append(DocumentSpan(start, end))
    return spans


# Files of tools beside resources, which no cluster accepts.
_TOOL_GROUPS = ("kustomize.config.k8s.io/", "cli.kyverno.io/")
# re: bounded - the name of a file has at most 255 characters
_TOOL_FILE = re.compile(r"(?:.*[-_.])?values(?:[-_.].*)?\.ya?ml|kustomization\.ya?ml|Chart\.ya?ml")


def leave_tool_files(
    text: SourceText, spans: list[DocumentSpan], lines_before: int = 0
) -> tuple[list[DocumentSpan], list[str]]:
    """Leave out files of Helm, Kustomize and `test`; also return a warning for each."""
    is_named = _TOOL_FILE.fullmatch(os.path.basename(text.path)) is not None
    if not is_named and not any(group.encode() in text.content for group in _TOOL_GROUPS):
        return spans, []
    skipped = [span for span in spans if _is_tool_file(text, span, is_named=is_named)]
    first = lines_before + 1
    lines = (text.content.count(b"\n", 0, span.start) + first for span in skipped)
    warnings = [f"{text.path}:{line}: is no resource but a tool's file, skipped" for line in lines]
    return [span for span in spans if span not in skipped], warnings


def _is_tool_file(text: SourceText, span: DocumentSpan, *, is_named: bool) -> bool:
    """Whether no API server accepts the document; an unreadable one is evaluated, an error."""
    try:
        documents = list(iter_documents(text.content[span.start : span.end], text.path))
    except LoadError:
        return False
    bodies = [each.body for each in documents if isinstance(each.body, dict)]
    return len(bodies) == len(documents) and all(
        str(body.get("apiVersion")).startswith(_TOOL_GROUPS) or (is_named and "kind" not in body)
        for body in bodies
    )


def parse_resources(content: bytes, span: DocumentSpan, path: str) -> Iterator[JsonObject]:
    """Parse the resource of one document, or those of a `v1` List."""
    try:
        for document in iter_documents(content[span.start : span.end], path):
            yield from _take_resources(document.body, f"{path}:{document.line}")
    except LoadError as error:
        # Counting lines is slow in large files, and only errors need them.
        skipped = content.count(b"\n", 0, span.start)
        raise _move_down(error, path, skipped) from error


def parse_document(document: DocumentText) -> Iterator[JsonObject]:
    """Return the resources of a document."""
    path = document.path
    try:
        for found in iter_documents(document.content, path):
            yield from _take_resources(found.body, f"{path}:{found.line}")
    except LoadError as error:
        raise _move_down(error, path, document.line, document.column) from error


def list_resource_paths(body: Json) -> Iterator[tuple[FieldPath, Json]]:
    """Return the path of each resource in a document, in order."""
    if isinstance(body, dict) and body.get("kind") == "List" and body.get("apiVersion") == "v1":
        items = body.get("items")
        if isinstance(items, list):
            for number, item in enumerate(items):
                for path, found in list_resource_paths(item):
                    yield ("items", number, *path), found
            return
    yield (), body


def load_resources(content: bytes, path: str) -> Iterator[JsonObject]:
    """All resources of a text, one by one."""
    for span in find_documents(content):
        yield from parse_resources(content, span, path)


def load_files(*paths: str | Path) -> tuple[JsonObject, ...]:
    """Read the objects of files and folders, for `Engine.evaluate`; Lists are taken apart.

    Raises LoadError for what cannot be read, and if there are no objects.
    """
    files = (file for path in paths for file in list_files(os.fspath(path), is_object_file))
    found = tuple(each for file in files for each in load_resources(read_bytes(file), file))
    if not found:
        raise LoadError(f"no objects in {', '.join(map(str, paths))}")
    return found


# Returns the documents that contain a word; the flag ignores the case.
FindDocuments: TypeAlias = Callable[[bytes, bool], Iterable[DocumentText]]


def find_in_texts(texts: Sequence[SourceText]) -> FindDocuments:
    """The documents of texts that are in memory."""

    def find(word: bytes, ignore_case: bool) -> Iterator[DocumentText]:  # noqa: FBT001
        for text in texts:
            for span in find_documents(text.content):
                part = text.content[span.start : span.end]
                if holds_word(part, word, ignore_case=ignore_case):
                    yield DocumentText(text.path, part)

    return find


# Escapes that stand for letters, digits, dashes and dots, and lines that go on within a word.
_HIDDEN = re.compile(
    rb"\\(?:(?:x|u00|U000000)(?:[4-7]|3\d|2[dDeE])|(?<=\w\\)(?:[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9]))"
)
# Tags of texts in base64, however they are written.
_ENCODING_TAGS = (b"!!b", b"!!%", b"!<")


def may_hide_words(content: bytes) -> bool:
    """Whether a text may contain a word in another form: escapes, base64 or UTF-16."""
    if b"\0" in content or any(tag in content for tag in _ENCODING_TAGS):
        return True
    return b"\\" in content and _HIDDEN.search(content) is not None


def holds_word(content: bytes, word: bytes, *, ignore_case: bool) -> bool:
    """Whether a text contains a word, or may contain it in another form."""
    if word in content or (ignore_case and word.lower() in content.lower()):
        return True
    return may_hide_words(content)


class LazyResources:
    """The resources of the run as answers to lookups; read at the first lookup."""

    def __init__(self, find: FindDocuments, limit: int = MAX_ANSWERING_BYTES) -> None:
        self._find = find
        # The bytes of all documents that may be held.
        self._limit = limit
        # None if the documents are too large.
        self._known: dict[tuple[bytes, bool], tuple[JsonObject, ...] | None] = {}
        self._size = 0
        # Documents are evaluated on several threads.
        self._lock = threading.Lock()

    def others(self, word: bytes, *, ignore_case: bool = False) -> list[JsonObject]:
        """Return the objects whose documents contain a word, and possibly others."""
        with self._lock:
            if (word, ignore_case) not in self._known:
                self._known[word, ignore_case] = self._read(word, ignore_case=ignore_case)
        found = self._known[word, ignore_case]
        if found is None:
            raise LookupFailedError(
                f"more than {self._limit} bytes of the given resources could answer: give "
                "those that policies look up by --context-file, and evaluate the others in parts"
            )
        return list(found)

    def _read(self, word: bytes, *, ignore_case: bool) -> tuple[JsonObject, ...] | None:
        found: list[JsonObject] = []
        size = self._size
        for document in self._find(word, ignore_case):
            size += len(document.content)
            if size > self._limit:
                return None
            # An invalid document is reported when it is evaluated.
            with suppress(LoadError):
                found.extend(parse_document(document))
        self._size = size
        return tuple(found)


def _move_down(error: LoadError, path: str, lines: int, columns: int = 0) -> LoadError:
    # re: trusted - a place that our own reader wrote
    found = re.fullmatch(r":(\d+)(?::(\d+))?(.*)", error.where.removeprefix(path), re.DOTALL)
    if found is None:
        return error
    # Only the first line of a document may begin behind something else.
    moved = columns if found[1] == "1" else 0
    column = f":{int(found[2]) + moved}" if found[2] else ""
    return LoadError(error.message, where=f"{path}:{int(found[1]) + lines}{column}{found[3]}")


def _take_resources(parsed: Json, where: str) -> Iterator[JsonObject]:
    if not isinstance(parsed, dict):
        raise LoadError("is not a resource: expected an object", where=where)
    api_version, kind = parsed.get("apiVersion"), parsed.get("kind")
    if not isinstance(kind, str) or not kind:
        raise LoadError("is not a resource: `kind` is missing", where=where)
    if not isinstance(api_version, str) or not api_version:
        raise LoadError("is not a resource: `apiVersion` is missing", where=where)
    items = parsed.get("items")
    if kind == "List" and api_version == "v1" and isinstance(items, list):
        for item in items:
            yield from _take_resources(item, where)
        return
    yield _fill_defaults(parsed, where)


def _fill_defaults(resource: JsonObject, where: str) -> JsonObject:
    metadata = resource.get("metadata")
    if metadata is None:
        metadata = resource["metadata"] = {}
    if not isinstance(metadata, dict):
        raise LoadError("is not a resource: `metadata` is not an object", where=where)
    if not metadata.get("namespace") and not _is_clustered(
        resource["apiVersion"], resource["kind"]
    ):
        metadata["namespace"] = "default"
    _fill_maps(resource)
    return resource


@lru_cache(maxsize=1024)
def _is_clustered(api_version: str, kind: str) -> bool:
    """Whether a built-in kind has no namespaces."""
    from lictor.core.facts.resource_names import builtin_names

    group, _, version = api_version.rpartition("/")
    return builtin_names().of_kind(group, version, kind).namespaced is False


def _fill_maps(resource: JsonObject) -> None:
    holders = [resource]
    # Grows while it is walked through; what is read nests only so deep.
    for holder in holders:
        for key, value in holder.items():
            if value is None:
                if key in _MAPS:
                    holder[key] = {}
            elif value.__class__ is dict:
                holders.append(value)
            elif value.__class__ is list:
                holders += [item for item in value if item.__class__ is dict]
