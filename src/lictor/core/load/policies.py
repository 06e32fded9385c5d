"""Loads a file into policies, related documents and resources, with the problems found.

A broken document becomes a problem; the others in the same file are loaded anyway.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from lictor.core.errors import LoadError
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.load.fields import describe, read_record
from lictor.core.load.kinds import find_unknown, is_raw, is_unsupported
from lictor.core.load.yaml import Document, read_documents, read_object
from lictor.core.model.finding import FieldPath, Finding, Location, Severity
from lictor.core.model.metadata import PolicyRecord
from lictor.core.raw import Json, JsonObject

Noun = TypeVar("Noun")


class Sourced(msgspec.Struct, Generic[Noun], frozen=True):
    """A loaded object and its location: the whole document, or one item of a List."""

    record: Noun
    body: JsonObject
    document: Document
    prefix: FieldPath = ()

    @property
    def source(self) -> str:
        return self.document.source

    def position(self, path: FieldPath = ()) -> tuple[int, int]:
        """The line and column of a field."""
        return self.document.position(self.prefix + path)


class RawPolicy(msgspec.Struct, frozen=True):
    """A document of a known kind without a record."""

    api_version: str
    kind: str
    name: str
    namespace: str
    body: JsonObject

    @property
    def is_unsupported(self) -> bool:
        """Whether it is a policy that lictor cannot run."""
        return is_unsupported(self.api_version.rpartition("/")[0], self.kind, self.body)


class Loaded(msgspec.Struct, frozen=True):
    """The content of a file."""

    # Policies and related documents, of every registered kind.
    documents: tuple[Sourced[PolicyRecord], ...] = ()
    # Documents of kinds without records.
    raw: tuple[Sourced[RawPolicy], ...] = ()
    resources: tuple[Sourced[JsonObject], ...] = ()
    # Not Kubernetes objects: package descriptions and the like.
    others: tuple[Sourced[JsonObject], ...] = ()
    problems: tuple[Finding, ...] = ()

    @property
    def policies(self) -> tuple[Sourced[PolicyRecord], ...]:
        """The policies that evaluate requests."""
        return self.with_role(Role.POLICY)

    @property
    def listed(self) -> tuple[Sourced[PolicyRecord], ...]:
        """Everything that is counted as a policy, in the order of the families."""
        found = self.with_role(Role.POLICY, Role.DELETION)
        return tuple(each for each in found if registry().of(each.record).is_listed)

    @property
    def records(self) -> tuple[PolicyRecord, ...]:
        """Policies and related documents, without their locations."""
        return tuple(each.record for each in self.documents)

    def with_role(self, *roles: Role) -> tuple[Sourced[PolicyRecord], ...]:
        """The documents with one of these roles, in the order of their families."""
        known = registry()
        found = [each for each in self.documents if known.of(each.record).role in roles]
        if len(found) > 1:
            found.sort(key=lambda each: known.order(known.of(each.record)))
        return tuple(found)

    @property
    def unsupported(self) -> tuple[Sourced[RawPolicy], ...]:
        """Policies that lictor cannot run."""
        return tuple(each for each in self.raw if each.record.is_unsupported)

    def __add__(self, other: "Loaded") -> "Loaded":
        names = self.__struct_fields__
        return Loaded(**{name: getattr(self, name) + getattr(other, name) for name in names})


def join_loaded(parts: Iterable[Loaded]) -> Loaded:
    """Join the content of several files, in their order."""
    listed = tuple(parts)
    names = Loaded.__struct_fields__
    return Loaded(
        **{name: tuple(chain.from_iterable(getattr(p, name) for p in listed)) for name in names}
    )


class _Piece(msgspec.Struct, frozen=True):
    """One object of a file, with its head read."""

    document: Document
    prefix: FieldPath
    body: JsonObject
    group: str
    version: str
    kind: str
    name: str

    def locate(self, finding: Finding) -> Finding:
        return locate_finding(finding, self.document, self.prefix, kind=self.kind, name=self.name)


def locate_finding(
    finding: Finding, document: Document, prefix: FieldPath = (), *, kind: str = "", name: str = ""
) -> Finding:
    """A finding with its path from the root of the document, and the line and column there."""
    path = prefix + finding.path
    location = Location(document.source, *document.position(path))
    return replace(finding, path=path, location=location, kind=kind, name=name)


def locate_error(error: LoadError) -> Finding:
    """A problem for a document that could not be read."""
    source, line, column = error.where.rsplit(":", 2)
    return Finding((), error.message, location=Location(source, int(line), int(column)))


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _pieces(body: Json, document: Document, prefix: FieldPath = ()) -> Iterator[_Piece | Finding]:
    if not isinstance(body, dict):
        yield Finding(prefix, f"expected a Kubernetes object, found {describe(body)}")
        return
    items = body.get("items")
    if isinstance(items, list) and is_list(body):
        for index, item in enumerate(items):
            yield from _pieces(item, document, (*prefix, "items", index))
        return
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    group, _, version = _text(body.get("apiVersion")).rpartition("/")
    yield _Piece(document, prefix, body, group, version, _text(body.get("kind")), _text(name))


def is_list(body: JsonObject) -> bool:
    """A `v1` List: what `kubectl get -o yaml` prints."""
    return body.get("apiVersion") == "v1" and body.get("kind") == "List"


def is_no_object(body: JsonObject) -> bool:
    """Whether a document is not meant for Kubernetes; one with a `spec` only lacks its header."""
    return not {"apiVersion", "kind", "spec"} & body.keys()


class _Sorter:
    """Sorts the pieces of one file."""

    def __init__(self) -> None:
        # By the fields of `Loaded`.
        self.shelves: dict[str, list[Json]] = {name: [] for name in Loaded.__struct_fields__}
        self.problems: list[Finding] = self.shelves["problems"]

    def add(self, piece: _Piece) -> None:
        known = registry().find(piece.group, piece.kind)
        if known is not None:
            self._add_record(piece, known)
        elif is_raw(piece.group, piece.kind, piece.body):
            self._add_raw(piece)
        else:
            self._add_other(piece)

    def _add_other(self, piece: _Piece) -> None:
        if is_no_object(piece.body):
            self._shelve("others", piece, piece.body)
        elif not piece.kind or not piece.version:
            missing = "kind" if piece.version else "apiVersion"
            self._refuse(piece, f'not a Kubernetes object: "{missing}" is missing')
        elif unknown := find_unknown(piece.group, piece.kind):
            field, word, meant = unknown
            what = "kind of policy" if field == "kind" else "group of policies"
            self._refuse(piece, f'unknown {what} "{word}"', meant, field)
        else:
            self._shelve("resources", piece, piece.body)

    def _shelve(self, shelf: str, piece: _Piece, record: Json) -> None:
        self.shelves[shelf].append(Sourced(record, piece.body, piece.document, piece.prefix))

    def _refuse(self, piece: _Piece, message: str, meant: str = "", field: str = "") -> None:
        path = (field,) if field else ()
        self.problems.append(piece.locate(Finding(path, message, meant)))

    def _add_raw(self, piece: _Piece) -> None:
        metadata = piece.body.get("metadata")
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else ""
        raw = RawPolicy(
            _text(piece.body.get("apiVersion")),
            piece.kind,
            piece.name,
            _text(namespace),
            piece.body,
        )
        self._shelve("raw", piece, raw)

    def _add_record(self, piece: _Piece, known: PolicyKind) -> None:
        if piece.version not in known.versions:
            listed = " and ".join(known.versions)
            message = f'{piece.kind} has no version "{piece.version}"; known are {listed}'
            self._refuse(piece, message, field="apiVersion")
            return
        made, faults = read_record(
            piece.body,
            known.family.get_record(known),
            absent=known.family.find_absent_fields(known, piece.version),
        )
        if made is not None and not piece.name:
            faults.append(Finding(("metadata",), 'required field "name" is missing'))
            made = None
        self.problems.extend(piece.locate(fault) for fault in faults)
        if made is not None:
            if piece.document.duplicates:
                self._refuse_duplicates(piece)
            else:
                self._shelve("documents", piece, made)

    def _refuse_duplicates(self, piece: _Piece) -> None:
        for key, line, column in piece.document.duplicates:
            message = f'key "{key}" stands twice in one object'
            at = Location(piece.document.source, line, column)
            self.problems.append(
                Finding((), message, location=at, kind=piece.kind, name=piece.name)
            )


def load_documents(data: str | bytes, source: str) -> Loaded:
    """Load and sort everything in a file; an unusable document is a problem and stops nothing."""
    return _sort(read_documents(data, source))


def load_object(body: JsonObject, source: str) -> Loaded:
    """The same for an object from an API server. Its record shares the object's values."""
    return _sort((read_object(body, source),))


def _sort(documents: Iterable[Document | LoadError]) -> Loaded:
    sorter = _Sorter()
    for document in documents:
        if isinstance(document, LoadError):
            sorter.problems.append(locate_error(document))
            continue
        for piece in _pieces(document.body, document):
            if isinstance(piece, Finding):
                sorter.problems.append(locate_finding(piece, document))
            else:
                sorter.add(piece)
    return Loaded(**{name: tuple(found) for name, found in sorter.shelves.items()})


def refuse_errors(loaded: Loaded) -> None:
    """Raise LoadError if anything is unusable; the message lists each problem."""
    errors = [str(each) for each in loaded.problems if each.severity is Severity.ERROR]
    for policy in loaded.unsupported:
        line, _ = policy.position()
        errors.append(f"{policy.source}:{line}: {describe_unsupported(policy.record.kind)}")
    if errors:
        raise LoadError("\n".join(errors))


def describe_unsupported(kind: str) -> str:
    """Why a policy of such a kind cannot be used."""
    return f"policies of kind {kind} are not supported yet"


def has_errors(problems: tuple[Finding, ...]) -> bool:
    """Whether one of them is an error, not only a warning."""
    return any(problem.severity is Severity.ERROR for problem in problems)
