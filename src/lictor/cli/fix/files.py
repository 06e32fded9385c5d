"""Files for `fix`: found in folders, read as documents, written back."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from lictor.load.yaml import iter_documents
from lictor.raw import Json
from lictor.report.yaml_text import render_yaml


def walk_files(path: str) -> Iterator[str]:
    """The file itself, or every file below a folder, in order; an error where there is neither."""
    os.stat(path)
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(files))


def read_documents(path: str) -> list[Json]:
    """All documents of a file; empty ones are left out."""
    documents = iter_documents(Path(path).read_bytes(), path)
    return [document.body for document in documents if document.body is not None]


def write_documents(path: str, documents: Sequence[Json]) -> None:
    """Replace a file at once: whoever reads it sees the old text or the new."""
    text = "---\n".join(render_yaml(document) for document in documents)
    beside = f"{path}.new"
    Path(beside).write_text(text, encoding="utf-8")
    os.chmod(beside, os.stat(path).st_mode)
    os.replace(beside, path)
