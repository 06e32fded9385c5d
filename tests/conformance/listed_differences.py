"""The rows of recorded answers that scripts/differences.txt lists: they differ on purpose.

Each line of a section is `theirs || ours || rows`; in rows, `*` is any text.
"""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[2] / "scripts" / "differences.txt"


class Difference(NamedTuple):
    """What another program does, what lictor does, and the recorded answers that show it."""

    theirs: str
    ours: str
    rows: tuple[str, ...]


def read_sections(file: Path = FILE) -> dict[str, list[Difference]]:
    """The differences of each section, in the order of the file."""
    sections: dict[str, list[Difference]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            sections[line[2:]] = current = []
        elif line and not line.startswith(";"):
            theirs, ours, *rows = line.split(" || ")
            current.append(Difference(theirs, ours, tuple(" ".join(rows).split())))
    return sections


class Listed:
    """The rows of all sections whose title begins with a text."""

    def __init__(self, title: str, file: Path = FILE) -> None:
        sections = [rows for name, rows in read_sections(file).items() if name.startswith(title)]
        if not sections:
            raise ValueError(f"{file.name} has no section {title}")
        self.names = tuple(name for rows in sections for each in rows for name in each.rows)

    def __contains__(self, row: str) -> bool:
        return any(fnmatchcase(row, name) for name in self.names)
