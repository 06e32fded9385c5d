"""Files for `fix`: found in folders, read as documents, written back."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from lictor.files import TakesName, read_bytes, walk_folder
from lictor.load.yaml import iter_documents
from lictor.raw import Json
from lictor.report.yaml_text import render_yaml


def find_files(path: str, takes: TakesName) -> Iterator[str]:
    """The file itself, or the files below a folder; an error where there is neither."""
    os.stat(path)
    if not os.path.isdir(path):
        yield path
        return
    # Files are written: those behind a link to a folder are somebody else's.
    yield from walk_folder(path, takes, lambda name: name != ".git")


def read_documents(path: str) -> list[Json]:
    """All documents of a file; empty ones are left out."""
    documents = iter_documents(read_bytes(path), path)
    return [document.body for document in documents if document.body is not None]


def write_documents(path: str, documents: Sequence[Json]) -> None:
    """Replace a file at once: whoever reads it sees the old text or the new."""
    text = "---\n".join(render_yaml(document) for document in documents)
    beside = f"{path}.new"
    Path(beside).write_text(text, encoding="utf-8")
    os.chmod(beside, os.stat(path).st_mode)
    os.replace(beside, path)
