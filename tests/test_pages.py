"""The documentation: every command runs and prints what the page shows, and everything named exists."""

import re
import shutil
from pathlib import Path

import click
import pytest
from page_commands import Block, File, Session, is_accepted, list_parts, matches

from lictor.cli.exit_codes import run
from lictor.cli.main import cli

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# Written by scripts from the program; a test for each compares.
GENERATED = {"commands", "crds", "differences", "kubectl", "licences", "metrics"}
REFERENCE = [p for p in sorted((DOCS / "reference").glob("*.md")) if p.stem not in GENERATED]
FOLDERS = ("get-started", "guides", "operate", "explanation")
WRITTEN = [
    DOCS / "index.md",
    *(page for folder in FOLDERS for page in sorted((DOCS / folder).glob("*.md"))),
]
PAGES = [*WRITTEN, *REFERENCE, ROOT / "README.md"]
ALL = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]
MOST_PAGES, MOST_BYTES, MOST_IN_ONE, MOST_MARKED = 32, 280_000, 12 * 1024, 10
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
# A call between backticks, as far as it is without quotes and pipes.
CALL = re.compile(r"`(lictor [a-z][^`\n#|>;()\"']*)")
YAML = re.compile(r"^```yaml[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
HIDDEN = re.compile(r"^```(?:sh|bash|shell)\b|^ {4,}\$ ", re.MULTILINE)


def name_page(page: Path) -> str:
    return str(page.relative_to(ROOT))


def list_blocks(page: Path) -> list[Block]:
    return [part for part in list_parts(page.read_text()) if isinstance(part, Block)]


WITH_BLOCKS = [page for page in PAGES if any(not block.mark for block in list_blocks(page))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_page)
def test_every_command_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    if "$ kubectl " in text and not shutil.which("kubectl"):
        pytest.skip("there is no kubectl here")
    session = Session(tmp_path)
    try:
        for part in list_parts(text):
            if isinstance(part, File):
                session.write(part)
            elif not part.mark:
                run_block(part, session)
    finally:
        session.close()


def run_block(block: Block, session: Session) -> None:
    for command in block.commands:
        code, output = session.run(command)
        assert is_accepted(command, code), f"{command.text}: exit code {code}\n{output}"
        assert matches(command.output, output), f"{command.text}\n{output}"


def test_commands_are_in_blocks_that_run() -> None:
    blocks = [block for page in PAGES for block in list_blocks(page)]
    assert len(blocks) >= 70
    assert len([block for block in blocks if block.mark]) <= MOST_MARKED
    assert [name_page(page) for page in PAGES if HIDDEN.search(page.read_text())] == []


def test_pages_are_few_and_short() -> None:
    sizes = {page: page.stat().st_size for page in [*WRITTEN, DOCS / "reference" / "python.md"]}
    assert len(sizes) <= MOST_PAGES
    assert sum(sizes.values()) <= MOST_BYTES
    assert [name_page(page) for page, size in sizes.items() if size > MOST_IN_ONE] == []
    assert (ROOT / "README.md").read_text().count("\n") <= 120


@pytest.mark.parametrize("page", ALL, ids=name_page)
def test_links_lead_to_files(page: Path) -> None:
    found = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not found


# --- what pages name and show must exist


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command of a call, and the rest of the call."""
    command: click.Command = cli
    while words and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0].rstrip(",."))
        assert found is not None, f"there is no command {words[0]}"
        command, words = found, words[1:]
    return command, words


def list_calls(page: Path) -> list[str]:
    marked = [c.text for block in list_blocks(page) if block.mark for c in block.commands]
    calls = [text.split("|")[0] for text in marked if text.startswith("lictor ")]
    return [*calls, *CALL.findall(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_commands_and_flags_that_a_page_names_exist(page: Path) -> None:
    for call in list_calls(page):
        command, words = find_command([w for w in call.split()[1:] if w != "--version"])
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        flags = {word.partition("=")[0].rstrip(",.") for word in words if word.startswith("-")}
        assert flags <= known | {"-h", "--help", "-v", "..."}, f"{page.name}: {call}"


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_policies_that_a_page_shows_are_valid(page: Path, tmp_path: Path, capsys) -> None:
    if page.stem == "lint":
        pytest.skip("the page about mistakes shows some")
    shown = [text for text in YAML.findall(page.read_text()) if "kyverno.io/" in text]
    for number, text in enumerate(shown):
        # A test names files that are not beside it here.
        if "kind: Test" not in text:
            (tmp_path / f"{number}.yaml").write_text(text)
    if any(tmp_path.iterdir()):
        code = run(["lint", str(tmp_path)])
        assert code == 0, capsys.readouterr().out


def test_there_are_calls() -> None:
    assert sum(len(list_calls(page)) for page in PAGES) >= 60
