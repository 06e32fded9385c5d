"""`lictor web --notifications`: the program itself, told by its flags and a file."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from notification_server import TargetServer, run_target


def write_reports(path: Path, *names: str) -> None:
    reports = [
        {
            "apiVersion": "wgpolicyk8s.io/v1alpha2",
            "kind": "PolicyReport",
            "metadata": {"name": f"report-{name}", "namespace": "team-a"},
            "scope": {"apiVersion": "v1", "kind": "Pod", "name": name},
            "results": [{"policy": "p", "rule": "r", "result": "fail", "source": "kyverno"}],
        }
        for name in names
    ]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": reports}))


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "lictor", "web", "--port=0"]
    command += [f"--report={folder / 'reports.json'}", *words]
    return subprocess.Popen(
        [*command, f"--notifications={folder / 'notifications.yaml'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def end(process: "subprocess.Popen[str]") -> str:
    process.send_signal(signal.SIGTERM)
    try:
        return process.communicate(timeout=120)[0]
    finally:
        process.kill()


def wait_for_memory(folder: Path, older: float) -> None:
    """Until what was told is written: from then on nothing is new."""
    path = folder / "told" / "notifications-recent"
    deadline = time.monotonic() + 120
    while not path.exists() or path.stat().st_mtime <= older:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_program_tells_what_is_new_since_it_ran_last(tmp_path: Path) -> None:
    def run(server: TargetServer, number: int) -> str:
        began = time.time() - 0.01
        process = start(tmp_path, f"--notifications-folder={tmp_path / 'told'}")
        try:
            wait_for_memory(tmp_path, began)
            deadline = time.monotonic() + 120
            while len(server.got) < number:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            said = end(process)
        return said

    with run_target() as server:
        (tmp_path / "url").write_text(f"{server.url}/services/key-1234")
        (tmp_path / "notifications.yaml").write_text(
            "targets:\n- name: chat\n  batchWait: 0s\n"
            f"  slack: {{urlFrom: {{file: {tmp_path / 'url'}}}}}\n"
        )
        write_reports(tmp_path / "reports.json", "old")
        assert "The page is at http://127.0.0.1:" in run(server, 0)
        write_reports(tmp_path / "reports.json", "old", "new")
        said = run(server, 1)
    (got,) = server.got
    assert got.target == "/services/key-1234"
    assert "Pod team-a/new" in json.dumps(got.json)
    assert "key-1234" not in said


def test_a_file_that_cannot_be_meant_so_ends_the_program(tmp_path: Path) -> None:
    write_reports(tmp_path / "reports.json", "old")
    (tmp_path / "notifications.yaml").write_text("targets:\n- name: a\n  slak: {}\n")
    process = start(tmp_path)
    said = process.communicate(timeout=120)[0]
    assert process.returncode != 0
    assert "notifications.yaml:3:3: targets[0].slak" in said
    assert 'did you mean "slack"' in said
    assert "Traceback" not in said
