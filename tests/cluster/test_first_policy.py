"""docs/first-policy.md, word for word: every command runs, and says what the page shows."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first-policy.md"
BLOCK = re.compile(r"^```console\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text())
SERVER = "lictor up"
PATIENCE = 120


def start_server(folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        SERVER.split(), cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert "answers at" in server.stdout.readline()
    return server


def test_every_command_runs_and_says_what_the_page_shows(tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path, "NO_COLOR": "1"}
    server = None
    try:
        exports = ""
        for commands, expected in BLOCKS:
            if commands.strip() == SERVER:
                server = start_server(tmp_path, environment)
                continue
            exports += "".join(re.findall("^export .*\n", commands, re.MULTILINE))
            said = run_commands(exports + commands, tmp_path, environment)
            for line in expected.splitlines():
                assert line.strip() in said, said
        assert server is not None
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=PATIENCE)


def run_commands(commands: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    # Why a Pod fails is told with exit code 1.
    assert done.returncode == 0 or "lictor explain" in commands, done.stdout
    return done.stdout
