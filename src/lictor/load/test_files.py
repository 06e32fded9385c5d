"""Files of the command line into records: Test, Values, UserInfo, Context, ClusterResource.

Kyverno reads them strictly: a field that it does not know is an error, and so is the older schema
without apiVersion and kind (`outdated`; the caller says so). Yet it takes a field's name in any
case, and a number where text should be.
"""

import csv
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from lictor.errors import LoadError
from lictor.load.fields import read_record
from lictor.load.policies import Sourced, locate_error, locate_finding
from lictor.load.yaml import Document, read_documents
from lictor.model.finding import Finding, Location, Severity
from lictor.model.offline import ClusterResource, Context, Test, UserInfo, Values

Record = TypeVar("Record", bound=msgspec.Struct)

# What results had in older test files, and what each became; `lictor fix test` puts it there.
OLDER_FIELDS: Final = {
    "resource": "resources",
    "status": "result",
    "namespace": "policy or resources, as NAMESPACE/NAME",
    "patchedResource": "patchedResources",
}


def read_records(
    data: str | bytes, source: str, record: type[Record]
) -> Iterator[Sourced[Record] | tuple[Finding, ...]]:
    """Each document of a file as the record, or everything that is wrong with it."""
    for document in read_documents(data, source):
        if isinstance(document, LoadError):
            yield (locate_error(document),)
            continue
        made, faults = read_record(document.body, record, lenient=True)
        problems = [
            locate_finding(replace(fault, severity=Severity.ERROR), document, kind=record.__name__)
            for fault in faults
        ]
        problems.extend(_refuse_duplicates(document, record.__name__))
        if problems or made is None:
            yield tuple(problems)
        else:
            yield Sourced(made, document.body, document)


def _refuse_duplicates(document: Document, kind: str) -> Iterator[Finding]:
    for key, line, column in document.duplicates:
        message = f'key "{key}" stands twice in one object'
        yield Finding((), message, location=Location(document.source, line, column), kind=kind)


def join_problems(problems: Iterable[Finding]) -> LoadError:
    """One error that tells all problems, at the place of the first."""
    first, *rest = problems
    text = "\n".join((first.field_and_text, *map(str, rest)))
    return LoadError(text, where=str(first.location))


def _load_first(data: str | bytes, source: str, record: type[Record]) -> Record:
    """The record of the first document: whatever comes after it, Kyverno does not read either."""
    for found in read_records(data, source, record):
        if isinstance(found, tuple):
            raise join_problems(found)
        return found.record
    raise LoadError(f"no {record.__name__} in this file", where=f"{source}:1:1")


def load_tests(data: str | bytes, source: str) -> list[Sourced[Test]]:
    """The tests of a file, one per document. Raises LoadError at one that is broken."""
    tests = []
    for found in read_records(data, source, Test):
        if isinstance(found, tuple):
            raise join_problems(found)
        tests.append(replace(found, record=_drop_repeated(found.record)))
    return tests


def is_older_form(data: str | bytes, source: str) -> bool:
    """Whether a test file is of a form that Kyverno took once: without a kind, or its fields."""
    for document in read_documents(data, source):
        body = None if isinstance(document, LoadError) else document.body
        if not isinstance(body, dict):
            continue
        rows = body.get("results")
        listed = rows if isinstance(rows, list) else ()
        fields = {name for row in listed if isinstance(row, dict) for name in row}
        if not body.get("kind") or not body.get("apiVersion") or OLDER_FIELDS.keys() & fields:
            return True
    return False


def _drop_repeated(test: Test) -> Test:
    return msgspec.structs.replace(
        test,
        policies=tuple(dict.fromkeys(test.policies)),
        resources=tuple(dict.fromkeys(test.resources)),
    )


def load_values(data: str | bytes, source: str) -> Values:
    """A values file."""
    return _load_first(data, source, Values)


def load_user_info(data: str | bytes, source: str) -> UserInfo:
    """A file that tells who asks."""
    return _load_first(data, source, UserInfo)


def load_context(data: str | bytes, source: str) -> Context:
    """A file of objects and images for CEL policies."""
    return _load_first(data, source, Context)


def load_cluster_resource(data: str | bytes, source: str) -> ClusterResource:
    """A file of objects that a cluster would hold."""
    return _load_first(data, source, ClusterResource)


def parse_settings(texts: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Values given as `key=value,key=value`, and what was given but cannot be used.

    Of two values for one key the first holds. A value cannot hold `=`, nor can one be given for a
    part of the resource itself: both as in Kyverno, which drops them without a word.
    """
    values: dict[str, str] = {}
    ignored: list[str] = []
    for entry in _split_settings(texts):
        parts = [part.strip() for part in entry.split("=")]
        usable = len(parts) == 2 and all(parts) and "request.object." not in parts[0]
        if usable and parts[0] not in values:
            values[parts[0]] = parts[1]
        else:
            ignored.append(entry)
    return values, ignored


def _split_settings(texts: Iterable[str]) -> Iterator[str]:
    try:
        for row in csv.reader(texts, strict=True):
            yield from (entry.strip() for entry in row)
    except csv.Error as error:
        raise LoadError(f"not of the form key=value,key=value: {error}", where="--set") from error
