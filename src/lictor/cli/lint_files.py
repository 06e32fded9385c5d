"""Lints the policies, exceptions and test files that paths name."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from lictor.cli.inputs.records import FILE_RECORDS
from lictor.cli.inputs.repositories import is_repository_url
from lictor.cli.inputs.sources import (
    STDIN,
    expand_glob,
    is_url,
    read_file,
    read_policies,
    resolve_path,
)
from lictor.cli.repairs import replace_file
from lictor.core.errors import LoadError, LookupFailedError, UsageError
from lictor.core.files import is_visible, is_yaml, list_files
from lictor.core.model.finding import Finding
from lictor.core.raw import Json
from lictor.lint.documents import list_objects
from lictor.lint.documents import read_file as read_lint_file
from lictor.lint.fixes import MOST_ROUNDS, fix_text
from lictor.lint.render import LintReport
from lictor.lint.run import lint_texts, list_definitions
from lictor.lint.selection import LintSelection

# Hidden folders are others' business, but for the one in which tests are kept.
_TEST_FOLDER = ".kyverno-test"


def _read_texts(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for given in paths:
        if given == STDIN or is_url(given) or is_repository_url(given):
            yield from ((text.path, text.content) for text in read_policies([given]))
            continue
        for path in expand_glob(given):
            if not os.path.exists(path):
                raise UsageError(f"{path}: no such file or directory")
            for file in _list_linted(path):
                yield file, read_file(file).content


def _list_linted(path: str) -> Iterator[str]:
    """A file, or the YAML files below a folder."""
    return list_files(path, is_yaml, lambda name: is_visible(name) or name == _TEST_FOLDER)


def read_named(path: str, source: str) -> list[tuple[str, bytes]] | None:
    """The files of a path in a test file; None if there is none."""
    if is_url(path) or is_url(source):
        raise LookupFailedError(f"{path} is not a local file")
    try:
        named = expand_glob(resolve_path(path, Path(source).parent))
        found = [each for each in named if os.path.exists(each)]
        if not found:
            return None
        return [(file, read_file(file).content) for p in found for file in _list_linted(p)]
    except LoadError as error:
        raise LookupFailedError(str(error)) from error


def read_definitions(paths: Sequence[str]) -> tuple[Json, ...]:
    """The CustomResourceDefinitions in files and folders; a path without any is an error."""
    return tuple(each for path in paths for each in _read_definitions(path))


def _read_definitions(path: str) -> list[Json]:
    found: list[Json] = []
    for source, content in _read_texts([path]):
        file = read_lint_file(source, content)
        for finding in file.findings:
            raise LoadError(str(finding))
        found += list_definitions(list_objects(file))
    if not found:
        # Without schemas in a given path, fields would silently stay unchecked.
        raise LoadError(f"no CustomResourceDefinition was found in {path}")
    return found


def lint_paths(
    paths: Sequence[str],
    selection: LintSelection | None = None,
    definitions: Sequence[Json] = (),
) -> LintReport:
    """Everything that is wrong with the files that the paths name."""
    report = lint_texts(_read_texts(paths), FILE_RECORDS, read_named, selection, definitions)
    if not report.files:
        # Nothing was looked at: that is no pass.
        raise LoadError(f"no YAML files were found in {', '.join(paths)}")
    return report


class FixedFile(msgspec.Struct, frozen=True):
    """A file that was put right: its path, and what it holds before and after."""

    path: str
    before: bytes
    after: bytes


def fix_paths(
    paths: Sequence[str],
    selection: LintSelection | None = None,
    definitions: Sequence[Json] = (),
    *,
    unsafe: bool = False,
) -> tuple[LintReport, list[FixedFile]]:
    """Return the fixed texts, and the findings that remain; no file is written."""
    before = dict(_read_texts(paths))
    texts = dict(before)
    for _ in range(MOST_ROUNDS):
        report = lint_texts(texts.items(), FILE_RECORDS, read_named, selection, definitions)
        changed = _fix_once(texts, report, unsafe=unsafe)
        if not changed:
            break
        texts.update(changed)
    if not report.files:
        raise LoadError(f"no YAML files were found in {', '.join(paths)}")
    fixed = [
        FixedFile(path, old, texts[path]) for path, old in before.items() if texts[path] != old
    ]
    return report, fixed


def _fix_once(texts: Mapping[str, bytes], report: LintReport, *, unsafe: bool) -> dict[str, bytes]:
    by_file: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_file.setdefault(finding.location.file, []).append(finding)
    changed: dict[str, bytes] = {}
    for path, findings in by_file.items():
        if path in texts:
            fixed = fix_text(read_lint_file(path, texts[path]), findings, unsafe=unsafe)
            if fixed != texts[path]:
                changed[path] = fixed
    return changed


def save_fixed(files: Iterable[FixedFile]) -> None:
    """Write the files atomically: a reader sees the old text or the new."""
    for file in files:
        if not os.path.isfile(file.path):
            raise UsageError(f"{file.path}: only local files can be put right")
        replace_file(file.path, file.after)
