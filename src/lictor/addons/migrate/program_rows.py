"""Runs command lines of Kyverno's form on the same inputs, and compares their rows of results."""

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import yaml

from lictor.addons.migrate.verdicts import Tally
from lictor.core.errors import LictorError, UsageError
from lictor.core.raw import Json, JsonObject

# The results of a row: several if a program reports the same rule for a resource more than once.
Rows: TypeAlias = dict["RowKey", str]
ABSENT = "-"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
# What programs print before and after the YAML of a report.
_NO_YAML = ("---", "pass: ", "Applying ", "POLICY REPORT:", "Warning: ")
_FIELDS = 6


class RowKey(msgspec.Struct, frozen=True, order=True):
    """What a result is about."""

    policy: str
    rule: str
    resource: str


class RowDifference(msgspec.Struct, frozen=True):
    """A row with different results; `-` if a program has no such row."""

    policy: str
    rule: str
    resource: str
    theirs: str
    ours: str


class ProgramComparison(Tally):
    """How many rows two programs have in common."""

    differences: list[RowDifference] = msgspec.field(default_factory=list)

    def note_rows(self, theirs: Mapping[RowKey, str], ours: Mapping[RowKey, str]) -> None:
        """Compare all rows of both."""
        for key in sorted({*theirs, *ours}):
            results = theirs.get(key, ABSENT), ours.get(key, ABSENT)
            if self.count(is_same=results[0] == results[1]):
                self.differences.append(RowDifference(key.policy, key.rule, key.resource, *results))


def run_program(program: Sequence[str], arguments: Iterable[str], seconds: float) -> str:
    """The standard output of a program; the exit code carries no more information than its rows."""
    command = [*program, *arguments]
    try:
        done = subprocess.run(  # noqa: S603  (the user names the program)
            command, capture_output=True, text=True, timeout=seconds, check=False
        )
    except OSError as error:
        raise UsageError(f"{program[0]}: cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise LictorError(f"{program[0]}: no answer within {seconds:g} s") from error
    if not done.stdout.strip():
        lines = done.stderr.strip().splitlines()
        raise LictorError(f"{program[0]}: printed nothing: {lines[-1] if lines else 'no message'}")
    return _COLOR.sub("", done.stdout)


# --- apply


def read_report_rows(text: str) -> Rows:
    """The results of the policy reports that `apply --policy-report` prints."""
    found: dict[RowKey, list[str]] = {}
    for report in _list_reports(text):
        scope = report.get("scope")
        for result in _list_objects(report.get("results")):
            subjects = _list_objects(result.get("resources") or result.get("subjects"))
            for subject in subjects or _list_objects([scope]) or [{}]:
                key = RowKey(
                    str(result.get("policy") or ""),
                    str(result.get("rule") or ""),
                    _name_subject(subject),
                )
                found.setdefault(key, []).append(str(result.get("result") or ""))
    return {key: ",".join(sorted(results)) for key, results in found.items()}


def _list_reports(text: str) -> Iterator[JsonObject]:
    for document in _split_documents(text):
        try:
            report = yaml.load(document, Loader=yaml.CSafeLoader)
        except yaml.YAMLError as error:
            raise LictorError(f"a policy report cannot be read: {error}") from error
        if isinstance(report, dict) and str(report.get("kind")).endswith("Report"):
            yield report


def _split_documents(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        is_begin = line.startswith("apiVersion:")
        if is_begin or line.startswith(_NO_YAML):
            if lines:
                yield "\n".join(lines)
            lines = [line] if is_begin else []
        elif lines:
            lines.append(line)
    if lines:
        yield "\n".join(lines)


def _list_objects(value: Json) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _name_subject(subject: JsonObject) -> str:
    parts = (subject.get(name) for name in ("kind", "namespace", "name"))
    return "/".join(str(part) for part in parts if part)


# --- test


def read_table_rows(text: str) -> Rows:
    """The results of the tables that `test` prints, of any version; a long cell has many lines."""
    found: dict[RowKey, list[str]] = {}
    row: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split("[│|]", line)[1:-1]]
        if len(cells) < _FIELDS:
            _add_row(row, found)
            row = []
        elif cells[0] or not row:
            _add_row(row, found)
            row = cells
        else:
            row = [begun + more for begun, more in zip(row, cells, strict=False)]
    _add_row(row, found)
    return {key: ",".join(sorted(results)) for key, results in found.items()}


def _add_row(row: Sequence[str], found: dict[RowKey, list[str]]) -> None:
    if row and row[0].isdecimal():
        _, policy, rule, resource, result, *_ = row
        found.setdefault(RowKey(policy, rule, resource), []).append(result)
