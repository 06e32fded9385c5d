"""Answers that a test gives in place of services and of GlobalContextEntries."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath

import msgspec

from lictor.cli.inputs.records import ApiCallResponse, MockedContextEntry
from lictor.core.errors import EvaluationError, LoadError, LookupFailedError
from lictor.core.evaluate.expressions import Expressions
from lictor.core.lang.url import parse_url
from lictor.core.ports import ApiCall, HttpAnswer
from lictor.core.raw import Json, JsonObject

# The objects in a file that a test names.
ReadObjects = Callable[[str], Sequence[JsonObject]]


class GivenAnswers(msgspec.Struct, frozen=True):
    """Responses by method and URL (`POST:https://...`) or URL alone, and entries by name."""

    responses: Mapping[str, HttpAnswer] = {}
    entries: Mapping[str, Json] = {}

    def find_response(self, call: ApiCall) -> HttpAnswer | None:
        """The response to a call; None if the test gives none."""
        url = call.service_url or call.url_path
        return self.responses.get(f"{call.method}:{url}") or self.responses.get(url)

    def answer(self, call: ApiCall) -> Json:
        """The response in the form that the caller expects; None if the test gives none."""
        found = self.find_response(call)
        if found is None:
            return None
        if call.guarded:
            # To CEL, a given response is an object with the fields body and statusCode.
            return HttpAnswer(found.status, {"body": found.body})
        if not 200 <= found.status < 300:
            url = call.service_url or call.url_path
            raise LookupFailedError(f"HTTP {found.status} from {url}")
        return found.body


def load_answers(
    responses: Sequence[ApiCallResponse], entries: Sequence[MockedContextEntry], read: ReadObjects
) -> GivenAnswers:
    """All answers of a test; raises LoadError for one that is incomplete or ambiguous."""
    known: dict[str, HttpAnswer] = {}
    for number, given in enumerate(responses):
        where = f"apiCallResponses[{number}]"
        key = _check_response(given, where)
        if key in known:
            raise LoadError(f"duplicate response for {key}", where=where)
        known[key] = HttpAnswer(given.response.status_code, given.response.body)
    data: dict[str, Json] = {}
    for number, entry in enumerate(entries):
        where = f"globalContextEntries[{number}]"
        if entry.name in data:
            raise LoadError(f"duplicate entry {entry.name!r}", where=where)
        data[entry.name] = _read_entry(entry, read, where)
    return GivenAnswers(known, data)


def _check_response(given: ApiCallResponse, where: str) -> str:
    if bool(given.url) == bool(given.url_path):
        raise LoadError("exactly one of url and urlPath is required", where=where)
    if given.url_path and not given.url_path.startswith("/"):
        raise LoadError(f"urlPath must start with /: {given.url_path!r}", where=where)
    if given.url:
        _check_url(given.url, where)
    if not 100 <= given.response.status_code <= 599:
        raise LoadError("statusCode must be between 100 and 599", where=f"{where}.response")
    if not isinstance(given.response.body, dict):
        raise LoadError("body must be an object", where=f"{where}.response")
    url = given.url or given.url_path
    return f"{given.method}:{url}" if given.method else url


def _check_url(text: str, where: str) -> None:
    try:
        url = parse_url(text)
    except ValueError as error:
        raise LoadError(f"invalid url: {error}", where=where) from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise LoadError(f"url must be an absolute HTTP or HTTPS URL: {text!r}", where=where)


def _read_entry(entry: MockedContextEntry, read: ReadObjects, where: str) -> Json:
    if not entry.name:
        raise LoadError("a name is required", where=where)
    given = (entry.data is not None, bool(entry.resources), bool(entry.resource_files))
    if sum(given) != 1:
        raise LoadError("exactly one of data, resources and resourceFiles is required", where=where)
    root = entry.data if given[0] else [*entry.resources, *_read_files(entry, read, where)]
    queries = {each.name: each.path for each in entry.projections}
    try:
        return project(root, entry.field_path, queries)
    except EvaluationError as error:
        raise LoadError(str(error), where=where) from error


def _read_files(entry: MockedContextEntry, read: ReadObjects, where: str) -> Iterator[JsonObject]:
    for name in entry.resource_files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise LoadError(f"{name}: must be inside the folder of the test", where=where)
        yield from read(name)


def project(root: Json, field_path: str, projections: Mapping[str, str]) -> Json:
    """The part of the data at a path; with projections, an object that holds each of them."""
    expressions = Expressions(lambda: datetime.now(UTC))
    value = expressions.query(field_path)(root) if field_path else root
    if not projections:
        return value
    return {name: expressions.query(path)(value) for name, path in projections.items()}


def find_projection(entries: Mapping[str, Json], reference: str) -> Json:
    """The data of an entry, or of its projection (`entry.projection`)."""
    name, _, projection = reference.partition(".")
    value = entries[name]
    if not projection:
        return value
    if not isinstance(value, dict) or projection not in value:
        raise LookupFailedError(f'projection "{projection}" not found')
    return value[projection]


def read_context_entry(
    spec: JsonObject, select: Callable[[JsonObject], Iterable[JsonObject]], projection: str
) -> Json:
    """The data of a GlobalContextEntry for objects of a kind, found among given objects."""
    found = list(select(spec["kubernetesResource"]))
    if not projection:
        return found
    for each in spec.get("projections") or ():
        if each.get("name") == projection:
            try:
                return project(found, str(each.get("jmesPath") or ""), {})
            except EvaluationError as error:
                text = f'failed to apply projection "{projection}": {error}'
                raise LookupFailedError(text) from error
    raise LookupFailedError(f'projection "{projection}" not found')
