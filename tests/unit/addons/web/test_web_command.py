"""`lictor web` as a program: its address opens the page of files, and nothing else does."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest

from lictor.cli.exit_codes import run

REPORT = {
    "apiVersion": "wgpolicyk8s.io/v1alpha2",
    "kind": "PolicyReport",
    "metadata": {"name": "r", "namespace": "red"},
    "results": [{"policy": "p", "rule": "r", "result": "fail", "message": "wrong"}],
}


@contextmanager
def web(*words):
    process = subprocess.Popen(
        [sys.executable, "-m", "lictor", "web", "--port=0", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONUNBUFFERED": "1", "PATH": "/usr/bin:/bin"},
    )
    try:
        yield process, re.search(r"http://\S+", process.stdout.readline())[0]
    finally:
        process.kill()
        process.communicate()


def test_reports_of_files(tmp_path):
    file = tmp_path / "report.json"
    file.write_text(json.dumps(REPORT), encoding="utf-8")
    with web("--report", str(file)) as (process, address):
        base, _, key = address.partition("/?key=")
        assert base.startswith("http://127.0.0.1:")
        with httpx2.Client(base_url=base, trust_env=False) as browser:
            assert browser.get("/results.json").status_code == 401
            assert browser.get("/", headers={"host": "evil.example"}).status_code == 421
            answer = browser.get("/results.json", headers={"authorization": f"Bearer {key}"})
            assert [row["policy"] for row in answer.json()] == ["p"]
            opened = browser.get(address)
            assert opened.status_code == 303
            assert "Secure; HttpOnly; SameSite=Strict" in opened.headers["set-cookie"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--address=0.0.0.0",), "--login"),
        (("--report=nowhere.yaml",), "nowhere.yaml"),
        (("report.yaml",), "--report"),
        (("--tls-cert=nowhere.crt",), "nowhere.crt"),
    ],
)
def test_wrong_calls(words, told, capsys):
    assert run(["web", *words]) == 2
    assert told in capsys.readouterr().err
