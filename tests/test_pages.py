"""The documentation shows commands with their output: each is run, and must still say the same."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lictor.cli.exit_codes import run
from lictor.cli.main import cli

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_ECHO_CODE = "; echo $?"
# A call in a line of its own or between backticks, as far as it is without quotes and pipes.
CALL = re.compile(r"(?:^ {4,}(?:[$>] )?|`)(lictor [a-z][^`\n#|>;()\"']*)", re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(
    r"^```python\n(.*?)^```\n+prints\n+```text\n(.*?)^```", re.MULTILINE | re.DOTALL
)


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
    assert sum(len(CALL.findall(page.read_text())) for page in PAGES) >= 80


# --- what pages name and show must be there


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that a call means, and what is left of the call."""
    command: click.Command = cli
    while words and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0].rstrip(",."))
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_flags_that_a_page_names_are_there(page):
    for call in CALL.findall(page.read_text()):
        command, words = find_command(call.split()[1:])
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        flags = {word.partition("=")[0].rstrip(",.") for word in words if word.startswith("-")}
        assert flags <= known | {"-h", "--help"}, f"{page.name}: {call}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_policies_that_a_page_shows_are_right(page, tmp_path, capsys):
    shown = [text for text in YAML.findall(page.read_text()) if "kyverno.io/" in text]
    for number, text in enumerate(shown):
        # A test names files beside it, which are not there.
        if "kind: Test" not in text:
            (tmp_path / f"{number}.yaml").write_text(text)
    if any(tmp_path.iterdir()):
        code = run(["lint", str(tmp_path)])
        assert code == 0, capsys.readouterr().out


def test_python_that_a_page_shows_prints_what_it_says(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    [(program, output)] = PYTHON.findall((ROOT / "docs" / "python.md").read_text())
    exec(program, {})
    assert capsys.readouterr().out == output
