"""Files of a run that did not come to its end, and texts of others on a terminal."""

import os
import stat
import subprocess
import sys

import pytest

from lictor.cli.exit_codes import run
from lictor.cli.output_files import PendingFile

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: names}
spec:
  rules:
  - name: short
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: "too long: {{ request.object.metadata.name }}", pattern: {metadata: {name: "?"}}}
"""
PODS = "".join(
    f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: pod-{number}}}\n" for number in range(60)
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "pods.yaml").write_text(PODS)
    (tmp_path / "broken.yaml").write_text(PODS + "---\nkind: [\n")
    return tmp_path


FILES = "jsonl=out/a.jsonl,sarif=out/a.sarif,yaml=out/a.yaml,html=out/a.html"


def test_a_run_that_fails_leaves_no_file_that_looks_whole(folder):
    assert run(["apply", "policy.yaml", "-r", "pods.yaml", "--output-file", FILES]) == 1
    assert sorted(os.listdir("out")) == ["a.html", "a.jsonl", "a.sarif", "a.yaml"]
    # Nor what an earlier run found.
    flags = ("policy.yaml", "-r", "broken.yaml", "--output-file", FILES)
    # As a process of its own: what is left is removed when it ends.
    command = (sys.executable, "-m", "lictor", "apply", *flags)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "broken.yaml:" in ended.stderr
    assert os.listdir("out") == []


@pytest.mark.parametrize("form", ["jsonl", "sarif"])
def test_an_interrupt_leaves_no_file_that_looks_whole(folder, monkeypatch, form):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lictor.cli.apply_printer.ApplyPrinter.add", stop)
    flags = ("--output-format", form, "--output", f"out/{form}")
    assert run(["apply", "policy.yaml", "-r", "pods.yaml", *flags]) == 130
    assert not os.path.exists(f"out/{form}")


def test_a_file_keeps_its_place_behind_a_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    pending = PendingFile(str(tmp_path / "link"))
    with pending.open() as stream:
        stream.write("new")
    assert not (tmp_path / "real").exists()
    pending.finish()
    assert (tmp_path / "link").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_what_is_no_plain_file_is_written_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    pending = PendingFile(str(tmp_path / "pipe"))
    with pending.open() as stream:
        stream.write("rows")
    pending.finish()
    assert os.read(reader, 10) == b"rows"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_names_and_messages_have_no_power_over_the_terminal(folder, capsys):
    name = r'"x\e]0;mine\a\e[2J\npass: 9, fail: 0\u202e"'
    (folder / "pods.yaml").write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n")
    assert run(["apply", "policy.yaml", "-r", "pods.yaml"]) == 1
    told = capsys.readouterr().out
    assert r"default/Pod/x\x1b]0;mine\x07\x1b[2J\npass: 9, fail: 0\u202e failed" in told
    assert "\x1b" not in told
    assert "\u202e" not in told
