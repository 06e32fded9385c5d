"""The progress bar touches no stream but its own: whatever is printed arrives where it was sent."""

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lictor.cli.exit_codes import run

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: a team is needed, pattern: {metadata: {labels: {team: "?*"}}}}
  - name: owner
    match: {any: [{resources: {kinds: [Pod], names: ["*7"]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {owner: me}}}}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: pod-%d}\n---\n"
# The bar comes at once instead of after a second of work.
SCRIPT = (
    "import sys, lictor.cli.terminal as terminal; terminal.PROGRESS_DELAY_SECONDS = 0.0\n"
    "from lictor.cli.exit_codes import run; sys.exit(run(sys.argv[1:]))"
)
FORMATS = [
    [],
    ["--table"],
    ["--stdin"],
    ["--generate-exceptions"],
    ["--output-format", "json"],
    ["-p"],
    ["-p", "--output-format", "json"],
    ["--output-format", "markdown"],
    ["--output-format", "junit"],
    ["--output-format", "sarif"],
]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("progress")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "pods.yaml").write_text("".join(POD % number for number in range(200)))
    files = [str(folder / "policy.yaml"), "-r", str(folder / "pods.yaml")]
    return [sys.executable, "-c", SCRIPT, "apply", *files, "--remove-color", "--parallel", "2"]


class Terminal:
    """A pseudo-terminal: one end for a program to write to, and what arrives at the other."""

    def __init__(self) -> None:
        self._master, self.end = pty.openpty()
        self._chunks: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._master, 65536):
                self._chunks.append(chunk)
        except OSError:
            # Linux says so when the other end is closed.
            return

    def finish(self) -> bytes:
        os.close(self.end)
        self._reader.join()
        os.close(self._master)
        return b"".join(self._chunks)


def run_on_terminal(command: list[str], file: Path) -> bytes:
    """Run with stdout in a file and stderr on a terminal; gives what the terminal got."""
    terminal = Terminal()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with file.open("wb") as out:
        subprocess.run(command, stdout=out, stderr=terminal.end, env=environment, check=False)
    return terminal.finish()


def without_times(text: bytes) -> bytes:
    text = re.sub(rb'seconds"?: ?\d+', b"", text)
    return re.sub(rb"[-\d]{10}T[:\d]{8}Z?|time=\"[^\"]*\"", b"", text)


@pytest.mark.parametrize("form", FORMATS, ids=" ".join)
def test_results_go_to_the_file(
    command: list[str], form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([*command[3:-2], *form])
    expected = capsys.readouterr().out.encode()
    shown = run_on_terminal([*command, *form], tmp_path / "out")
    assert b"Evaluating" in shown
    written = (tmp_path / "out").read_bytes()
    assert len(written) > 1000
    assert without_times(written) == without_times(expected)


def test_on_two_terminals_each_gets_its_own(command: list[str]) -> None:
    out, err = Terminal(), Terminal()
    subprocess.run([*command], stdout=out.end, stderr=err.end, check=False)
    printed, shown = out.finish(), err.finish()
    assert printed.count(b"a team is needed") == 200
    assert shown == b""


def test_quiet_means_no_bar_either(command: list[str], tmp_path: Path) -> None:
    assert run_on_terminal([*command, "--quiet"], tmp_path / "out") == b""
