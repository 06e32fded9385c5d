"""Loads values, user info, context and cluster resource files, and CustomResourceDefinitions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from lictor.cli.inputs.document_reader import report_unreadable
from lictor.cli.inputs.lookups import GivenObjects
from lictor.cli.inputs.records import (
    ClusterResource,
    ClusterResourceSpec,
    Context,
    ContextSpec,
    Test,
    UserInfo,
    Values,
)
from lictor.cli.inputs.resources import (
    FindDocuments,
    find_documents,
    leave_tool_files,
    parse_document,
    parse_resources,
)
from lictor.cli.inputs.sources import (
    SourceText,
    list_policy_files,
    locate_resources,
    read_any,
    read_file,
)
from lictor.core.errors import LictorError, LoadError
from lictor.core.load.fields import read_record
from lictor.core.load.policies import Sourced, locate_error, locate_finding
from lictor.core.load.yaml import Document, iter_documents, read_documents
from lictor.core.model.finding import Finding, Location, Severity
from lictor.core.model.request import Caller
from lictor.core.raw import Json, JsonObject

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
    """Read each document of a file as the record, or return its findings."""
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


def join_findings(problems: Iterable[Finding]) -> LoadError:
    """One error with all findings, at the location of the first."""
    first, *rest = problems
    text = "\n".join((first.field_and_text, *map(str, rest)))
    return LoadError(text, where=str(first.location))


def _load_first(data: str | bytes, source: str, record: type[Record]) -> Record:
    """Load the record of the first document; like Kyverno, ignore the others."""
    for found in read_records(data, source, record):
        if isinstance(found, tuple):
            raise join_findings(found)
        return found.record
    raise LoadError(f"no {record.__name__} in this file", where=f"{source}:1:1")


def load_tests(data: str | bytes, source: str) -> list[Sourced[Test]]:
    """The tests of a file, one per document. Raises LoadError at one that is broken."""
    tests = []
    for found in read_records(data, source, Test):
        if isinstance(found, tuple):
            raise join_findings(found)
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


def read_values(data: str | bytes, source: str) -> Values:
    """A values file."""
    return _load_first(data, source, Values)


def read_user_info(data: str | bytes, source: str) -> UserInfo:
    """A user info file."""
    return _load_first(data, source, UserInfo)


def read_context(data: str | bytes, source: str) -> Context:
    """A file of objects and images for CEL policies."""
    return _load_first(data, source, Context)


def read_cluster_resource(data: str | bytes, source: str) -> ClusterResource:
    """A file of objects that a cluster would hold."""
    return _load_first(data, source, ClusterResource)


_OUTDATED = "uses a deprecated schema - please migrate to the latest format"


def load_values_file(path: str) -> Values:
    """A values file; one of an older schema is refused, as Kyverno does."""
    text = read_file(path)
    values = read_values(text.content, text.path)
    if values.outdated:
        raise LoadError(_OUTDATED, where=path)
    return values


def load_caller(path: str, *, accept_outdated: bool = False) -> Caller:
    """Load the caller; `test` refuses a file of an older schema, `apply` accepts it."""
    text = read_file(path)
    info = read_user_info(text.content, text.path)
    if info.outdated and not accept_outdated:
        raise LoadError(_OUTDATED, where=path)
    return make_caller(info)


def make_caller(info: UserInfo) -> Caller:
    """The caller that a UserInfo file describes."""
    user = info.user_info
    return Caller(
        username=user.username,
        uid=user.uid,
        groups=user.groups,
        extra={name: list(values) for name, values in user.extra.items()},
        roles=info.roles,
        cluster_roles=info.cluster_roles,
    )


def load_context(path: str, given: GivenObjects) -> GivenObjects:
    """The objects given so far, with those and the images of a Context file."""
    text = read_file(path)
    return add_context(read_context(text.content, text.path).spec, given)


def add_context(spec: ContextSpec, given: GivenObjects) -> GivenObjects:
    """The objects given so far, and those of a context."""
    images = {image.image: _describe_image(msgspec.to_builtins(image)) for image in spec.images}
    cluster = (*(given.cluster or ()), *spec.resources) if spec.resources else given.cluster
    return replace(given, cluster=cluster, images={**given.images, **images})


def _describe_image(image: JsonObject) -> JsonObject:
    """Return the image data of a registry, under the names that context entries use."""
    identifier = image.get("digest") or image.get("tag") or ""
    return {
        **image,
        "identifier": identifier,
        "manifestList": image.get("imageIndex"),
        "configData": image.get("config"),
    }


def load_cluster_resources(path: str) -> ClusterResourceSpec:
    """Load a ClusterResource file: objects, and the paths of their definitions."""
    text = read_file(path)
    return read_cluster_resource(text.content, text.path).spec


def load_definitions(paths: Iterable[str]) -> Iterator[JsonObject]:
    """The CustomResourceDefinitions in files and folders."""
    for path in paths:
        yield from read_definitions(map(read_file, list_policy_files(path)))


def read_definitions(texts: Iterable[SourceText]) -> Iterator[JsonObject]:
    """The CustomResourceDefinitions in texts."""
    for text in texts:
        for document in iter_documents(text.content, text.path):
            yield from _find_definitions(document.body)


def _find_definitions(body: Json) -> Iterator[JsonObject]:
    if not isinstance(body, dict):
        return
    items = body.get("items")
    for found in items if isinstance(items, list) else [body]:
        if isinstance(found, dict) and found.get("kind") == "CustomResourceDefinition":
            yield found


def read_resource_texts(
    paths: Iterable[str], warn: Callable[[str], None] | None = None
) -> Iterator[SourceText]:
    """The files with resources; if a later path cannot be read, that is reported and skipped."""
    for number, path in enumerate(paths):
        try:
            yield from map(read_any, locate_resources((path,)))
        except LictorError as error:
            report_unreadable(path, number, error, warn)


def load_resource_files(
    paths: Iterable[str], warn: Callable[[str], None] | None = None
) -> Iterator[JsonObject]:
    """Load the resources in files and folders; with `warn`, files of tools are left out."""
    for text in read_resource_texts(paths):
        spans, skipped = find_documents(text.content), list[str]()
        if warn is not None:
            spans, skipped = leave_tool_files(text, spans)
            for each in skipped:
                warn(each)
        for span in spans:
            yield from parse_resources(text.content, span, text.path)


def read_namespace_labels(find: FindDocuments) -> dict[str, Mapping[str, str]]:
    """The labels of the Namespaces in files, with the one that the API server adds."""
    found: dict[str, Mapping[str, str]] = {}
    for document in find(b"Namespace", False):  # noqa: FBT003
        # An invalid document is reported when it is evaluated.
        with suppress(LoadError):
            for each in parse_document(document):
                metadata = each["metadata"]
                name, labels = metadata.get("name"), metadata.get("labels") or {}
                is_namespace = (each["apiVersion"], each["kind"]) == ("v1", "Namespace")
                if is_namespace and isinstance(name, str):
                    found[name] = {**labels, "kubernetes.io/metadata.name": name}
    return found
