"""`test --watch`: the real program runs again when a file changes, and ends by an interrupt."""

import os
import signal
import subprocess
import sys
import threading
import time
from queue import Queue

import pytest

from lictor.cli import exit_codes

POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: named}
spec:
  rules:
  - name: named
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: call it x, pattern: {metadata: {name: x}}}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"
TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: named}
policies: [../policy.yaml]
resources: [pod.yaml]
results: [{policy: named, rule: named, kind: Pod, resources: [x], result: pass}]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "tests" / "pod.yaml").write_text(POD)
    (tmp_path / "tests" / "kyverno-test.yaml").write_text(TEST)
    return tmp_path


def wait_for(lines: "Queue[str]", text: str) -> None:
    deadline = time.monotonic() + 120
    while text not in lines.get(timeout=max(deadline - time.monotonic(), 0.01)):
        pass


def change(path, text):
    path.write_text(text)
    # Two changes within one tick of the file system's clock look like one.
    os.utime(path, ns=(time.time_ns(), time.time_ns() + 1))


def test_runs_again_when_a_file_changes(folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "lictor", "test", str(folder / "tests"), "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: Queue[str] = Queue()
    assert process.stdout is not None
    output = process.stdout
    reader = threading.Thread(target=lambda: [lines.put(line) for line in output])
    reader.start()
    try:
        wait_for(lines, "1 tests passed and 0 tests failed")
        wait_for(lines, "watching 3 files")
        # A policy beside the folder that was named.
        change(folder / "policy.yaml", POLICY.replace("{name: x}}}", "{name: yy}}}"))
        wait_for(lines, "0 tests passed and 1 tests failed")
        wait_for(lines, "watching 3 files")
        change(folder / "tests" / "kyverno-test.yaml", "kind: [")
        wait_for(lines, "Error: ")
        change(folder / "tests" / "kyverno-test.yaml", TEST.replace("result: pass", "result: fail"))
        wait_for(lines, "1 tests passed and 0 tests failed")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        reader.join()
        output.close()


def test_only_local_folders_are_watched(capsys):
    assert exit_codes.run(["test", "https://github.com/a/b", "--watch"]) == 1
    assert "only local folders can be watched" in capsys.readouterr().err
