"""Where in its file does a result point? At the field that failed, or where the resource begins."""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec
from yaml.nodes import Node

from lictor.lang.yaml.nodes import find_node
from lictor.load.yaml import Document, iter_documents
from lictor.model.finding import FieldPath, Location
from lictor.model.result import Result
from lictor.offline.resources import DocumentSpan, list_resource_paths
from lictor.offline.sources import SourceText
from lictor.raw import Json

# Where a result points; None where its resource comes from no file.
LocateResult: TypeAlias = Callable[[Result], Location | None]

_INDEX = re.compile(r"\[?(\d+)\]?")
_DIVIDERS = "/."


def locate_nowhere(_: Result) -> None:
    """For resources that come from no file."""


class _Place(msgspec.Struct, frozen=True):
    """A resource within a composed document."""

    document: Document
    root: Node | None
    path: FieldPath
    resource: Json


class ResultLocations:
    """Finds results in texts. Only what failed is looked for: nothing is composed before."""

    def __init__(self, texts: tuple[SourceText, ...]) -> None:
        self._texts = texts
        # By text: an offset, and the lines before it.
        self._counted: dict[int, tuple[int, int]] = {}

    def of_document(self, text: int, span: DocumentSpan) -> Callable[[int], LocateResult]:
        """For a number of a resource in the document, the function that finds its results."""
        places: list[_Place] = []

        def of_resource(number: int) -> LocateResult:
            def locate(result: Result) -> Location | None:
                if not places:
                    places.extend(self._list_places(text, span))
                return self._locate(text, span, places[number], result)

            return locate

        return of_resource

    def _list_places(self, text: int, span: DocumentSpan) -> Iterator[_Place]:
        source = self._texts[text]
        part = source.content[span.start : span.end]
        for document in iter_documents(part, source.path):
            root = document.compose()
            for path, resource in list_resource_paths(document.body):
                yield _Place(document, root, path, resource)

    def _locate(self, text: int, span: DocumentSpan, place: _Place, result: Result) -> Location:
        skipped = self._count_lines(text, span.start)
        file = self._texts[text].path
        if place.root is None:
            return Location(file, skipped + place.document.line)
        failed = result.failure.path if result.failure is not None else ""
        path = (*place.path, *find_field(place.resource, failed))
        mark = find_node(place.root, path).start_mark
        return Location(file, skipped + place.document.first_line + mark.line, mark.column + 1)

    def _count_lines(self, text: int, offset: int) -> int:
        """The lines before an offset; counts on from the last one asked for."""
        position, lines = self._counted.get(text, (0, 0))
        if offset < position:
            position, lines = 0, 0
        lines += self._texts[text].content.count(b"\n", position, offset)
        self._counted[text] = (offset, lines)
        return lines


def find_field(resource: Json, path: str) -> FieldPath:
    """The steps of `/spec/containers/0/image/` or `spec.containers[0].image`, as far as they go.

    Names of labels hold slashes and dots themselves: the longest name that is there counts.
    """
    steps: list[str | int] = []
    here, rest = resource, path.strip(_DIVIDERS)
    while rest:
        step, length = _take_step(here, rest)
        if step is None:
            break
        steps.append(step)
        here, rest = here[step], rest[length:].lstrip(_DIVIDERS)
    return tuple(steps)


def _take_step(here: Json, rest: str) -> tuple[str | int | None, int]:
    if isinstance(here, dict):
        fitting = [key for key in here if f"{rest}/".startswith((f"{key}/", f"{key}.", f"{key}["))]
        name = max(fitting, key=len, default=None)
        return name, len(name or "")
    found = _INDEX.match(rest)
    if not isinstance(here, list) or found is None or int(found[1]) >= len(here):
        return None, 0
    return int(found[1]), found.end()
