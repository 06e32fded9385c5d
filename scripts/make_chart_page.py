"""Write the tables of docs/reference/chart.md: how our values differ from those of Kyverno's chart.

    python scripts/make_chart_page.py

The text above the marker is written by hand. A test compares the rest.
"""

import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lictor.core.raw import Json
from lictor.core.report.yaml_text import render_yaml
from lictor.install.values import list_values

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "chart.md"
TABLE = Path(__file__).parent / "kyverno_chart_values.txt"
MARKER = "<!-- made by scripts/make_chart_page.py from here on -->\n"
BRACES = re.compile(r"\{([^{}]*)\}")
CONTROLLER = r"(?:admission|background|cleanup|reports)Controller"
ROWS = {row.path: row for row in list_values()}


@dataclass(frozen=True)
class Note:
    """A note about names that begin in a certain way."""

    name: str
    start: re.Pattern[str]
    ours: str
    words: str


@dataclass(frozen=True)
class Fate:
    """What becomes of one value of Kyverno's chart."""

    name: str
    fate: str
    words: str


def list_fates() -> list[Fate]:
    """All values of Kyverno's chart."""
    names, same, others = read_table()
    return [find_fate(name, same, others) for name in names]


def read_table() -> tuple[list[str], list[Note], list[Note]]:
    """The names, with remarks for equal and for different ones."""
    names: list[str] = []
    same: list[Note] = []
    others: list[Note] = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if " | " not in line:
            names += expand(line)
            continue
        start, ours, words = (part.strip() for part in line.removeprefix("= ").split("|"))
        note = Note(start, compile_start(start), ours, words)
        (same if line.startswith("= ") else others).append(note)
    return names, same, others


def compile_start(start: str) -> re.Pattern[str]:
    """A beginning of names; `*` is any controller."""
    text = re.escape(start).replace(r"\*", CONTROLLER)
    return re.compile(rf"{text}(?:\.|$)")


def expand(pattern: str) -> Iterator[str]:
    """`a.{b,c}`: a.b and a.c."""
    parts = BRACES.split(pattern)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    return ("".join(words) for words in itertools.product(*choices))


def find_fate(name: str, same: list[Note], others: list[Note]) -> Fate:
    """Same, renamed, or not needed."""
    if is_ours(name):
        note = next((note for note in same if note.start.match(name)), None)
        return Fate(name, "same", note.words if note else "")
    found = next((note for note in others if note.start.match(name)), None)
    if found is None:
        raise ValueError(f"{name}: no entry in {TABLE.name}")
    if found.ours in ("", "-"):
        return Fate(name, "not needed", found.words)
    controller = name.partition(".")[0]
    ours = ", ".join(f"`{each.strip()}`" for each in found.ours.split(","))
    return Fate(name, "renamed", f"{ours.replace('*', controller)}: {found.words}")


def is_ours(name: str) -> bool:
    """Whether lictor's chart has it, directly or within a map."""
    words = name.split(".")
    return any(".".join(words[:end]) in ROWS for end in range(1, len(words) + 1))


# --- the page


def print_tables() -> str:
    """What differs between the charts, and the values that only lictor has."""
    names, same, others = read_table()
    fates = [find_fate(name, same, others) for name in names]
    counts = Counter(each.fate for each in fates)
    lines = [
        "## Values of Kyverno's chart",
        "",
        f"Of the {len(fates)} values of Kyverno's chart 1.19, {counts['same']} have the same name"
        f" and meaning, {counts['renamed']} have another name,"
        f" and {counts['not needed']} are not needed."
        " `*` is any controller; a name includes the values below it.",
        "",
        "| value of Kyverno's chart | here | note |",
        "|---|---|---|",
        *(f"| `{note.name}` | same | {note.words} |" for note in same),
        *(f"| `{note.name}` | {print_names(note.ours)} | {note.words} |" for note in others),
        "",
        "## Values of this chart only",
        "",
        "All values and defaults: `charts/lictor/values.yaml`. `*` is any controller.",
        "",
        "| value | default | description |",
        "|---|---|---|",
        *print_values(set(names)),
    ]
    return "\n".join(lines) + "\n"


def print_names(ours: str) -> str:
    """The names here, or that none is needed."""
    if ours in ("", "-"):
        return "not needed"
    return ", ".join(f"`{each.strip()}`" for each in ours.split(","))


def print_values(theirs: set[str]) -> Iterator[str]:
    """The values that Kyverno's chart does not have; a value of all controllers is listed once."""
    starts = {".".join(name.split(".")[:end]) for name in theirs for end in range(1, 9)}
    listed: set[str] = set()
    for row in ROWS.values():
        name = re.sub(rf"^{CONTROLLER}\.", "*.", row.path)
        if row.path not in starts and name not in listed:
            listed.add(name)
            yield f"| `{name}` | {print_default(row.default)} | {row.words} |"


def print_default(value: Json) -> str:
    """What is usual, where it is short."""
    if value in ("", [], {}, None):
        return ""
    text = render_yaml({"x": value}).removeprefix("x:").strip()
    return "see values.yaml" if "\n" in text or len(text) > 40 else f"`{text}`"


def main() -> int:
    """Write the part below the marker."""
    above = PAGE.read_text(encoding="utf-8").partition(MARKER)[0]
    PAGE.write_text(f"{above}{MARKER}\n{print_tables()}", encoding="utf-8")
    print(f"{PAGE} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
