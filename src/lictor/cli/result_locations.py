"""Finds the location of a result in its file: the failed field, or the start of the resource."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from lictor.cli.inputs.resources import DocumentText, list_resource_paths
from lictor.core.load.yaml import Document, iter_documents
from lictor.core.model.finding import FieldPath, Location
from lictor.core.model.result import Result
from lictor.core.raw import Json

if TYPE_CHECKING:
    from yaml.nodes import Node

# Returns the location of a result; None if its resource is in no file.
LocateResult: TypeAlias = Callable[[Result], Location | None]

_INDEX = re.compile(r"\[?(\d+)\]?")
_DIVIDERS = "/."


def locate_nowhere(_: Result) -> None:
    """Return None: the resource is in no file."""


class _Place(msgspec.Struct, frozen=True):
    """A resource within a composed document."""

    document: Document
    root: "Node | None"
    path: FieldPath
    resource: Json


def locate_results(document: DocumentText) -> Callable[[int], LocateResult]:
    """Return the function from the number of a resource in a document to its `LocateResult`.

    The document is composed only when a location is needed.
    """
    places: list[_Place] = []

    def of_resource(number: int) -> LocateResult:
        def locate(result: Result) -> Location | None:
            if not places:
                places.extend(_list_places(document))
            return _locate(document, places[number], result)

        return locate

    return of_resource


def _list_places(document: DocumentText) -> Iterator[_Place]:
    for found in iter_documents(document.content, document.path):
        root = found.compose()
        for path, resource in list_resource_paths(found.body):
            yield _Place(found, root, path, resource)


def _locate(document: DocumentText, place: _Place, result: Result) -> Location:
    if place.root is None:
        return Location(document.path, document.line + place.document.line)
    # Loads libyaml, which most runs do not need.
    from lictor.core.lang.yaml.nodes import find_node

    failed = result.failure.path if result.failure is not None else ""
    path = (*place.path, *find_field(place.resource, failed))
    mark = find_node(place.root, path).start_mark
    line = place.document.first_line + mark.line
    # Only the first line of a document may begin behind something else.
    column = mark.column + 1 + (document.column if line == 1 else 0)
    return Location(document.path, document.line + line, column)


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
