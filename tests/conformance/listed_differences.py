"""The rows of others' tables that docs/differences.md names: they differ by intent.

They stand in the last column of its tables, `rows`; `*` is any run of characters.
"""

import re
from fnmatch import fnmatchcase
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
_HEAD = ("rows", "---")
_NAME = re.compile(r"[^\s`,]+")


class Listed:
    """The names in the tables behind a line of the page, up to the next section."""

    def __init__(self, line: str, page: Path = PAGE, *, first_table: bool = False) -> None:
        _, _, rest = page.read_text(encoding="utf-8").partition(f"\n{line}\n")
        section = rest.partition("\n## ")[0].strip()
        if first_table:
            section = section.partition("\n\n")[0]
        tables = [text.strip() for text in section.splitlines() if text.startswith("|")]
        cells = [text.removesuffix("|").rpartition("|")[2] for text in tables]
        names = [name for cell in cells for name in _NAME.findall(cell)]
        self.names = tuple(name for name in names if name not in _HEAD)

    def __contains__(self, row: str) -> bool:
        return any(fnmatchcase(row, name) for name in self.names)
