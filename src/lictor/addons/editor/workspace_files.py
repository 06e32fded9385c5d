"""The YAML files of the folder that an editor shows, and the kinds that they define."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from lictor.core.errors import LictorError
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.files import is_visible, is_yaml, list_files
from lictor.core.load.yaml import Document, read_documents
from lictor.core.raw import Json
from lictor.lint.schema_kinds import KnownSchemas

# In a large folder, the search ends somewhere.
_MOST_FILES = 3000
_MOST_BYTES = 4 * 1024 * 1024
_DEFINITION = b"CustomResourceDefinition"

# The content of a file as an editor shows it; None where it is not open.
ReadOpen: TypeAlias = Callable[[str], bytes | None]


class WorkspaceFiles:
    """Files below a folder. What they define is kept until `forget` is called."""

    def __init__(self, read_open: ReadOpen) -> None:
        self._read_open = read_open
        self._root: str | None = None
        # When a file was changed, its size, and what it defines.
        self._read: dict[str, tuple[float, int, tuple[Json, ...]]] = {}
        self._schemas: KnownSchemas | None = None
        self._definitions: tuple[Json, ...] = ()

    def set_root(self, root: str | None) -> None:
        self._root = root
        self.forget()

    def forget(self) -> None:
        """Files were changed: those that are as they were are not read again."""
        self._schemas = None

    @property
    def definitions(self) -> tuple[Json, ...]:
        """The CustomResourceDefinitions of the folder."""
        self.schemas()
        return self._definitions

    def schemas(self) -> KnownSchemas:
        """Built-in kinds, and those that files of the folder define."""
        if self._schemas is None:
            self._definitions = tuple(self._list_definitions())
            self._schemas = KnownSchemas(self._definitions)
        return self._schemas

    def names(self) -> ResourceNames:
        return builtin_names().with_crds(self.definitions)

    def list_paths(self, folder: str) -> Iterator[str]:
        """YAML files below a folder, those of tests too."""
        for number, path in enumerate(list_files(folder, is_yaml, _is_shown)):
            if number == _MOST_FILES:
                return
            yield path

    def read(self, path: str) -> bytes:
        """A file as the editor shows it, or as it is; empty where it cannot be read."""
        shown = self._read_open(path)
        if shown is not None:
            return shown
        try:
            with Path(path).open("rb") as file:
                return file.read(_MOST_BYTES)
        except OSError:
            return b""

    def _list_definitions(self) -> Iterator[Json]:
        for path in self.list_paths(self._root) if self._root else ():
            yield from self._define(path)

    def _define(self, path: str) -> tuple[Json, ...]:
        try:
            status = Path(path).stat()
        except OSError:
            return ()
        known = self._read.get(path)
        if known is None or known[:2] != (status.st_mtime, status.st_size):
            content = self.read(path)
            found = read_objects(content, path) if _DEFINITION in content else iter(())
            kept = tuple(d.body for d in found if d.body.get("kind") == _DEFINITION.decode())
            known = self._read[path] = (status.st_mtime, status.st_size, kept)
        return known[2]


def _is_shown(name: str) -> bool:
    return is_visible(name) or name == ".kyverno-test"


def read_objects(content: bytes, path: str) -> Iterator[Document]:
    """The documents of a file that are objects, up to the first that is broken."""
    try:
        for found in read_documents(content, path):
            if isinstance(found, Document) and isinstance(found.body, dict):
                yield found
    except LictorError:
        return
