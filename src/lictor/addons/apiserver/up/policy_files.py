"""Objects from files, in an order in which a cluster can take them."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from lictor.core.errors import LoadError, UsageError
from lictor.core.families.registry import registry
from lictor.core.files import is_object_file, list_files, read_bytes
from lictor.core.load.policies import is_no_object
from lictor.core.load.yaml import iter_documents
from lictor.core.raw import Json, JsonObject

# Files that tests and the command line read; no cluster knows them.
_NOT_OBJECTS = ("cli.kyverno.io/", "kustomize.config.k8s.io/")
_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role")


class FileObject(msgspec.Struct, frozen=True):
    """An object, and where it stands: file and line."""

    where: str
    body: JsonObject


def read_objects(
    paths: Iterable[Path], note: Callable[[str], None] = lambda _: None
) -> tuple[FileObject, ...]:
    """All objects in files and folders, dependencies first; `note` receives skipped ones."""
    found: list[FileObject] = []
    for path in paths:
        read = [each for file in _list_files(path) for each in _read_file(file, note)]
        if not read:
            raise UsageError(f"{path}: no objects in there")
        found += read
    return tuple(sorted(found, key=_rank))


def _list_files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    files = [Path(file) for file in list_files(str(path), is_object_file)]
    if not files:
        raise UsageError(f"{path}: no YAML files in there")
    yield from files


def _read_file(file: Path, note: Callable[[str], None]) -> Iterator[FileObject]:
    for document in iter_documents(read_bytes(str(file)), str(file)):
        where = f"{file}:{document.line}"
        if _is_left_out(document.body):
            note(f"{where}: is nothing that a cluster holds, and was left out")
        else:
            for found in _take(document.body, where):
                yield msgspec.structs.replace(found, body=_locate_files(found.body, file))


def _locate_files(body: JsonObject, file: Path) -> JsonObject:
    """The object with file names resolved against the folder of its file."""
    kind = registry().find(body["apiVersion"].partition("/")[0], body["kind"])
    if kind is None:
        return body
    return kind.family.locate_document_files(body, str(file.parent.resolve()))


def _is_left_out(body: Json) -> bool:
    """Whether a document is for other programs: descriptions of packages, files of kustomize."""
    return isinstance(body, dict) and (
        is_no_object(body) or str(body.get("apiVersion")).startswith(_NOT_OBJECTS)
    )


def _take(body: Json, where: str) -> Iterator[FileObject]:
    if not isinstance(body, dict) or not isinstance(body.get("kind"), str):
        raise LoadError("is no object of a cluster: `kind` is missing", where=where)
    if not isinstance(body.get("apiVersion"), str):
        raise LoadError("is no object of a cluster: `apiVersion` is missing", where=where)
    if body["kind"] == "List" and isinstance(body.get("items"), list):
        for item in body["items"]:
            yield from _take(item, where)
        return
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise LoadError("has no name", where=where)
    yield FileObject(where, body)


def _rank(found: FileObject) -> int:
    kind = found.body["kind"]
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)
