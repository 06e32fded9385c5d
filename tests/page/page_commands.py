"""The commands of a page: run them in a fresh folder, and compare what they print.

    python tests/page/page_commands.py PAGE...              # write the output in place of lines "@@"
    python tests/page/page_commands.py --update PAGE...     # and in place of output that differs

A page is Markdown. In a `console` block, lines after `$ ` are commands (`> ` continues one), all others are
the output; `...` stands for any text, on a line by itself for any lines. A block whose info string has
`title="NAME"` is written to that file before the commands after it run. The examples of the repository are in
`examples/`. `<!-- not run: REASON -->` before a block marks the few that cannot run in a test.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 180
_FENCE = re.compile(
    r"(?:^<!-- not run: (?P<mark>[^\n]+?) -->\n)?^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
# These run until the end of the page.
_SERVERS = ("lictor up", "lictor web", "lictor policy-server")
_PLACEHOLDER = "@@"


@dataclass
class Command:
    """One command of a block, with the lines that the page shows for it."""

    text: str
    output: list[str] = field(default_factory=list)

    @property
    def is_server(self) -> bool:
        return self.text.startswith(_SERVERS)


@dataclass(frozen=True)
class File:
    """A file that the page shows and that its commands use."""

    name: str
    text: str


@dataclass(frozen=True)
class Block:
    """A `console` block."""

    commands: list[Command]
    mark: str | None


def list_parts(page: str) -> Iterator[File | Block]:
    """The files and blocks of a page, in their order."""
    for found in _FENCE.finditer(page):
        title = _TITLE.search(found["info"])
        if title:
            yield File(title[1], found["text"])
        elif found["info"].split()[0] == "console":
            yield Block(parse_commands(found["text"]), found["mark"])


def parse_commands(text: str) -> list[Command]:
    """The commands of a block."""
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif line.startswith("> ") and commands and not commands[-1].output:
            commands[-1].text += "\n" + line[2:]
        elif commands:
            commands[-1].output.append(line.rstrip())
        else:
            raise ValueError(f"a console block begins with a command: {line}")
    return commands


class Session:
    """A fresh folder with the examples, in which the commands of one page run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples")
        programs = Path(sys.executable).parent
        names = {"HOME": str(folder), "PATH": f"{programs}:{os.environ['PATH']}"}
        self._environment = {**os.environ, **names, "NO_COLOR": "1", "COLUMNS": "120"}
        self._environment.pop("KUBECONFIG", None)
        self._exports = ""
        self._servers: list[subprocess.Popen[str]] = []

    def write(self, file: File) -> None:
        """Write a file that the page shows."""
        path = self.folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)

    def run(self, command: Command) -> tuple[int, str]:
        """The exit code and the output of a command; a server is started and goes on."""
        if command.is_server:
            return 0, self._start(command)
        if command.text.startswith("export "):
            self._exports += command.text + "\n"
        done = subprocess.run(
            ["bash", "-c", self._exports + command.text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        return done.returncode, done.stdout

    def _start(self, command: Command) -> str:
        server = subprocess.Popen(
            ["bash", "-c", f"{self._exports}exec {command.text}"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._servers.append(server)
        assert server.stdout is not None
        return "".join(server.stdout.readline() for _ in command.output or ["one"])

    def close(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=LIMIT)


def matches(shown: list[str], output: str) -> bool:
    """Is this the output that the page shows?"""
    if not shown:
        return True
    lines = [_compile_line(line) for line in "\n".join(shown).strip("\n").splitlines()]
    pattern = "".join(lines)
    text = "".join(line.rstrip() + "\n" for line in output.strip("\n").splitlines())
    return re.fullmatch(pattern, text) is not None


def _compile_line(line: str) -> str:
    if line == "...":
        return "(?:[^\n]*\n)*?"
    return re.escape(line).replace(r"\.\.\.", "[^\n]*") + "\n"


def is_accepted(command: Command, code: int) -> bool:
    """Is the exit code 0, or 1 with a reason that the page shows?"""
    return code == 0 or (code == 1 and any(line not in ("", "...") for line in command.output))


def fill(path: Path, folder: Path, *, update: bool) -> None:
    """Write the real output in place of `@@`, and print or replace what differs."""
    text, session = path.read_text(), Session(folder)
    try:
        for part in list_parts(text):
            if isinstance(part, File):
                session.write(part)
                continue
            for command in [] if part.mark else part.commands:
                code, output = session.run(command)
                is_right = matches(command.output, output) and is_accepted(command, code)
                if command.output == [_PLACEHOLDER] or (update and not is_right):
                    text = _replace_output(text, command, output)
                elif not is_right:
                    print(f"--- exit code {code}: {command.text}\n{output}")
    finally:
        session.close()
    path.write_text(text)


def _replace_output(text: str, command: Command, output: str) -> str:
    shown = "$ " + command.text.replace("\n", "\n> ") + "\n"
    lines = "".join(line.rstrip() + "\n" for line in output.strip("\n").splitlines())
    return text.replace(shown + "".join(line + "\n" for line in command.output), shown + lines, 1)


def main(pages: list[str]) -> None:
    """Fill pages."""
    import tempfile

    for page in [each for each in pages if each != "--update"]:
        print(page)
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(page), Path(folder), update="--update" in pages)


if __name__ == "__main__":
    main(sys.argv[1:])
