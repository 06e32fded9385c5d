"""Write the tables of docs/chart.md: our values, and what becomes of those of Kyverno's chart.

    python scripts/make_chart_page.py

What stands above the marker is written by hand. A test compares the rest.
"""

import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lictor.cluster.manifests.values import ValueRow, list_values
from lictor.raw import Json
from lictor.report.yaml_text import render_yaml

PAGE = Path(__file__).parents[1] / "docs" / "chart.md"
TABLE = Path(__file__).parent / "kyverno_chart_values.txt"
MARKER = "<!-- made by scripts/make_chart_page.py from here on -->\n"
BRACES = re.compile(r"\{([^{}]*)\}")
CONTROLLER = r"(?:admission|background|cleanup|reports)Controller"
ROWS = {row.path: row for row in list_values()}


@dataclass(frozen=True)
class Note:
    """What is said of names that begin in a certain way."""

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
    """The names, what is said of those that are the same, and of those that are not."""
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
        note = Note(compile_start(start), ours, words)
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
        raise ValueError(f"{name}: nothing is said of it in {TABLE.name}")
    if found.ours in ("", "-"):
        return Fate(name, "not needed", found.words)
    controller = name.partition(".")[0]
    ours = ", ".join(f"`{each.strip()}`" for each in found.ours.split(","))
    return Fate(name, "renamed", f"{ours.replace('*', controller)}: {found.words}")


def is_ours(name: str) -> bool:
    """Does our chart have it, by itself or within a map?"""
    words = name.split(".")
    return any(".".join(words[:end]) in ROWS for end in range(1, len(words) + 1))


# --- the page


def print_tables() -> str:
    """Both tables."""
    fates = list_fates()
    counts = {fate: sum(each.fate == fate for each in fates) for fate in ("same", "renamed")}
    left = len(fates) - sum(counts.values())
    lines = [
        "## Values of Kyverno's chart",
        "",
        f"All {len(fates)} of chart 1.18: {counts['same']} are the same,"
        f" {counts['renamed']} have another name, {left} are not needed.",
        "",
        "| Kyverno's value | here | |",
        "|---|---|---|",
        *(f"| `{each.name}` | {each.fate} | {each.words} |" for each in fates),
        "",
        "## All values of this chart",
        "",
        "`C` stands for `admissionController`, `backgroundController`, `reportsController` and"
        " `cleanupController`, where all four have the value with the same default.",
        "",
        "| value | usual | what it is |",
        "|---|---|---|",
        *print_values(),
    ]
    return "\n".join(lines) + "\n"


def print_values() -> Iterator[str]:
    """Our own values; what all controllers have is told once."""
    told: set[str] = set()
    for row in ROWS.values():
        short = re.sub(rf"^{CONTROLLER}\.(container\.)?", "C.", row.path)
        alike = [each for each in ROWS.values() if each.path != row.path and is_like(each, row)]
        name = short if len(alike) == 3 else row.path
        if name in told:
            continue
        told.add(name)
        yield f"| `{name}` | {print_default(row.default)} | {row.words} |"


def is_like(one: ValueRow, other: ValueRow) -> bool:
    """The same value of another controller."""
    short = [re.sub(rf"^{CONTROLLER}\.(container\.)?", "C.", each.path) for each in (one, other)]
    return short[0] == short[1] and bool(one.default == other.default)


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
