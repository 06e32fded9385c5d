"""The last step of the GitHub Action: run lictor with the inputs, mark lines, write the summary.

Inputs come as variables LICTOR_*, see action.yml. All texts that are shown come from policies and
resources of a pull request, and are written so that GitHub takes none of them for a command or for
HTML.
"""

import contextlib
import io
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lictor.cli.exit_codes import run

COMMANDS = {"apply": "sarif", "lint": "sarif", "test": "junit"}
FILES = {"sarif": "lictor.sarif", "junit": "lictor.xml"}
# GitHub shows no more than ten of a sort in a step; the rest stands in the report and the summary.
MOST_MARKS = 10
MOST_ROWS = 200
_LEVELS = {"error": "error", "warning": "warning", "note": "notice", "none": "notice"}
# Results that make `apply` exit with 1, for any severity of their policy.
_FAILING = ("fail", "error")
_KNOWN_TO_MARKDOWN = frozenset("&<>\"'|`*_[]()\\~@#!$:")


@dataclass(frozen=True)
class Mark:
    """One finding, and the line that it is about."""

    level: str
    file: str
    line: int
    rule: str
    object: str
    text: str


def list_lines(text: str) -> list[str]:
    """One value in each line that has any."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def build_call(given: Mapping[str, str]) -> list[str]:
    """The words of the command."""
    command = given.get("LICTOR_COMMAND", "").strip()
    if command not in COMMANDS:
        raise SystemExit(f"command: write one of {', '.join(COMMANDS)}, found {command!r}")
    policies = list_lines(given.get("LICTOR_POLICIES", ""))
    if not policies:
        # Without policies nothing could fail.
        raise SystemExit("policies: name at least one file or folder")
    resources = list_lines(given.get("LICTOR_RESOURCES", ""))
    if (command == "apply") != bool(resources):
        raise SystemExit("resources: name files or folders, one in a line, for apply only")
    words = [command, *policies, *(word for name in resources for word in ("--resource", name))]
    form = "--format" if command == "lint" else "--output-format"
    words += [form, COMMANDS[command]]
    if command == "test":
        words += ["--require-tests", "--remove-color"]
    return [*words, *list_lines(given.get("LICTOR_ARGUMENTS", ""))]


def read_marks(report: str) -> Iterator[Mark]:
    """The findings of a SARIF report."""
    for result in (each for part in json.loads(report)["runs"] for each in part["results"]):
        place: dict[str, Any] = next(iter(result.get("locations") or ()), {})
        physical = place.get("physicalLocation", {})
        logical: dict[str, Any] = next(iter(place.get("logicalLocations") or ()), {})
        status = result.get("properties", {}).get("status", "")
        level = "error" if status in _FAILING else result.get("level", "warning")
        yield Mark(
            level=_LEVELS.get(level, "warning"),
            file=physical.get("artifactLocation", {}).get("uri", ""),
            line=physical.get("region", {}).get("startLine", 1),
            rule=result.get("ruleId", ""),
            object=logical.get("fullyQualifiedName", ""),
            text=result["message"]["text"],
        )


def render_command(mark: Mark) -> str:
    """A workflow command that marks the line in the pull request."""
    place = (
        f"file={_escape_property(mark.file)},line={mark.line},title={_escape_property(mark.rule)}"
    )
    return f"::{mark.level} {place}::{_escape_text(mark.text)}"


def _escape_text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_text(text).replace(":", "%3A").replace(",", "%2C")


def render_summary(command: str, code: int, marks: list[Mark]) -> str:
    """What the page of the job shows."""
    lines = [f"### lictor {command}: {'all is well' if code == 0 else f'exit code {code}'}", ""]
    if marks:
        lines += ["| | rule | object | line | message |", "|---|---|---|---|---|"]
    for mark in marks[:MOST_ROWS]:
        cells = (mark.level, mark.rule, mark.object, f"{mark.file}:{mark.line}", mark.text)
        lines.append(f"| {' | '.join(map(_render_cell, cells))} |")
    if len(marks) > MOST_ROWS:
        lines += ["", f"{len(marks) - MOST_ROWS} more stand in the report."]
    return "\n".join([*lines, ""])


def _render_cell(text: str) -> str:
    """Text as it is: what Markdown and HTML know is written as entities."""
    plain = " ".join(text.split())
    return "".join(f"&#{ord(each)};" if each in _KNOWN_TO_MARKDOWN else each for each in plain)


def append(variable: str, text: str) -> None:
    """Add to one of the files that GitHub reads after the step."""
    name = os.environ.get(variable)
    if name:
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(text)


@contextlib.contextmanager
def no_commands() -> Iterator[None]:
    """Lines that are printed meanwhile are text, also where they look like commands for GitHub."""
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", flush=True)
    try:
        yield
    finally:
        print(f"::{word}::", flush=True)


def run_quietly(words: list[str]) -> tuple[int, str]:
    """The exit code, and what lictor printed."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(output):
        code = run(words)
    output.seek(0)
    return code, output.read()


def main() -> int:
    """Run, write, and end as lictor did."""
    words = build_call(os.environ)
    command = words[0]
    usual = Path(os.environ.get("RUNNER_TEMP", ".")) / FILES[COMMANDS[command]]
    report = Path(os.environ.get("LICTOR_REPORT", "").strip() or usual)
    with no_commands():
        code, text = run_quietly(words)
        if command == "test":
            print(text)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(text, encoding="utf-8")
    found = read_marks(text) if text.startswith("{") else ()
    marks = sorted(found, key=lambda mark: mark.level)
    for mark in marks[:MOST_MARKS]:
        print(render_command(mark))
    print(f"lictor {command}: exit code {code}, {report}")
    append("GITHUB_STEP_SUMMARY", render_summary(command, code, marks))
    append("GITHUB_OUTPUT", f"report={report}\nexit-code={code}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
