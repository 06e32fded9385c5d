"""The documentation shows commands with their output: each is run, and must still say the same."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from lictor.cli.rim import run

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_ECHO_CODE = "; echo $?"


def find_examples(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Commands after `$`, with the lines of the indented block that follow."""
    command, output = "", []
    for line in [*page.read_text().splitlines(), "end"]:
        if line.startswith("    $ lictor ") or (line.strip() and not line.startswith("    ")):
            if command:
                yield command, output
            command, output = "", []
            if line.startswith("    $ "):
                command = line.removeprefix("    $ ")
        elif command:
            output.append(line.removeprefix("    ").rstrip())


EXAMPLES = [(page, *example) for page in PAGES for example in find_examples(page)]


def drop_edges(lines: list[str]) -> list[str]:
    return "\n".join(line.rstrip() for line in lines).strip("\n").split("\n")


@pytest.mark.parametrize(
    ("page", "command", "output"), EXAMPLES, ids=[f"{p.stem}-{c}" for p, c, _ in EXAMPLES]
)
def test_command_says_what_the_page_shows(page, command, output, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    code = run(shlex.split(command.removesuffix(_ECHO_CODE))[1:])
    said = capsys.readouterr().out.splitlines()
    said += [str(code)] if command.endswith(_ECHO_CODE) else []
    assert drop_edges(said) == drop_edges(output), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_there_are_examples():
    assert len(EXAMPLES) >= 10
