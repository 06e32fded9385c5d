"""Lints the text of an open file as `lictor lint` lints the file, with the same settings."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from lictor.editor.workspace_files import ReadOpen, WorkspaceFiles
from lictor.errors import LictorError
from lictor.families.registry import registry
from lictor.lint.documents import TEST_FILE, LintFile, read_file
from lictor.lint.fixes import MOST_ROUNDS, Fix, find_fixes, fix_text
from lictor.lint.run import lint_texts
from lictor.lint.selection import LintSelection
from lictor.load.yaml import decode_text
from lictor.model.finding import Finding, Location
from lictor.offline.lint_files import read_named
from lictor.offline.lint_settings import combine, find_lint_settings
from lictor.offline.records import FILE_RECORDS

# Groups of files that only the command line reads.
_OFFLINE_GROUP = "cli.kyverno.io"


class CheckedText:
    """One version of a text, and what is wrong with it."""

    def __init__(self, path: str, content: bytes, findings: tuple[Finding, ...]) -> None:
        self.path = path
        self.content = content
        self.findings = findings

    @cached_property
    def file(self) -> LintFile:
        return read_file(self.path, self.content)

    @cached_property
    def text(self) -> str:
        """As positions of findings and edits count it."""
        return decode_text(self.content, self.path)

    @cached_property
    def fixes(self) -> list[tuple[Finding, Fix]]:
        return find_fixes(self.file, self.findings)


class TextChecker:
    """Lints texts; keeps the last version of each, and the settings of each folder."""

    def __init__(self, read_open: ReadOpen, files: WorkspaceFiles) -> None:
        self._read_open = read_open
        self._files = files
        self._selections: dict[Path, LintSelection] = {}
        self._checked: dict[str, CheckedText] = {}

    def check(self, path: str, text: str) -> CheckedText:
        """What is wrong with a text; one that was not changed is not linted again."""
        content = text.encode(errors="surrogatepass")
        known = self._checked.get(path)
        if known is None or known.content != content:
            known = self._checked[path] = self._lint(path, content)
        return known

    def forget(self) -> None:
        """Other files were changed: settings and what tests name may be different now."""
        self._selections.clear()
        self._checked.clear()

    def fix_all(self, checked: CheckedText) -> str:
        """The text with everything put right that can be without changing a verdict."""
        content = checked.content
        for _ in range(MOST_ROUNDS):
            fixed = fix_text(read_file(checked.path, content), checked.findings)
            if fixed == content:
                break
            content = fixed
            checked = self._lint(checked.path, content)
        return content.decode()

    def _lint(self, path: str, content: bytes) -> CheckedText:
        try:
            found = lint_texts(
                [(path, content)],
                FILE_RECORDS,
                self._read_named,
                self._select(Path(path).parent),
                self._files.definitions,
            ).findings
        except (LictorError, OSError) as error:
            # A text that could not be checked must not look like one without mistakes.
            found = (Finding((), f"not checked: {error}", location=Location(path)),)
        if not _may_hold_policies(path, content):
            found = tuple(each for each in found if each.check != "bad-document")
        return CheckedText(path, content, tuple(found))

    def _select(self, folder: Path) -> LintSelection:
        if folder not in self._selections:
            self._selections[folder] = combine(find_lint_settings(folder), (), ())
        return self._selections[folder]

    def _read_named(self, path: str, source: str) -> list[tuple[str, bytes]] | None:
        """What a test names, with the text that the editor shows where a file is open."""
        found = read_named(path, source)
        return None if found is None else list(self._replace_open(found))

    def _replace_open(self, files: list[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        for path, content in files:
            shown = self._read_open(path)
            yield path, content if shown is None else shown


def _may_hold_policies(path: str, content: bytes) -> bool:
    """Editors show all YAML files: templates and the like are no broken policies."""
    if Path(path).name == TEST_FILE:
        return True
    groups = {kind.group for kind in registry().kinds} | {_OFFLINE_GROUP}
    return any(group.encode() in content for group in groups)
