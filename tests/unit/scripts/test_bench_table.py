"""The table of the benches: which bars it shows, when they hold, and what stands beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "tools" / "bench"
sys.path.append(str(BENCH))

from bars import Bar  # noqa: E402
from measuring import measure  # noqa: E402
from peer import KNOWN, NoPeerError, Peer  # noqa: E402

COUNTS = "pass: 2, fail: 0, warn: 0, error: 0, skip: 0"
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: disallow-latest-tag}
spec:
  rules:
  - name: tag
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: needs a tag, pattern: {spec: {containers: [{image: "*:*"}]}}}
  - name: latest
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: latest is no version, pattern: {spec: {containers: [{image: "!*:latest"}]}}}
"""
MAKE_PODS = """
print("apiVersion: v1\\nkind: Pod\\nmetadata: {name: a}")
print("spec: {containers: [{name: c, image: 'IMAGE'}]}")
"""


@pytest.mark.parametrize(
    ("most", "least", "figures", "holds"),
    [
        ({"CPU-s": 1.0}, {}, {"CPU-s": 1.0}, True),
        ({"CPU-s": 1.0}, {}, {"CPU-s": 1.001, "MB": 5}, False),
        ({"CPU-s": 1.0, "MB": 5}, {}, {"CPU-s": 0.1, "MB": 6}, False),
        ({"CPU-s": 1.0, "MB": 5}, {}, {"CPU-s": 0.1}, False),
        ({}, {"times": 1.7}, {"times": 1.7}, True),
        ({}, {"times": 1.7}, {"times": 1.6}, False),
        ({}, {"times": 1.7}, {}, False),
        ({}, {}, {"CPU-s": 9.0}, None),
    ],
)
def test_a_bar_holds_where_every_figure_is_there_and_within(most, least, figures, holds):
    assert Bar("work", most, least).judge(figures).holds is holds


def test_what_went_wrong_breaks_a_bar_whatever_it_cost():
    row = Bar("work", {"CPU-s": 1.0}).judge({"CPU-s": 0.1}, fault="other counts")
    assert (row.state, row.note) == ("MISSED", "other counts")
    assert Bar("work").judge({"CPU-s": 0.1}, fault="other counts").state == "MISSED"
    assert Bar("work", {"CPU-s": 1.0}).skip("later").state == "not measured"


def test_a_command_that_judged_nothing_has_a_fault():
    silent = measure([sys.executable, "-c", "raise SystemExit(3)"])
    assert silent.find_fault().startswith("exit code 3: ")
    assert measure([sys.executable, "-c", f"print('{COUNTS}')"]).find_fault() == ""


def write_program(path: Path, lines: str) -> str:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def test_the_peer_is_run_on_the_same_arguments(tmp_path):
    told = tmp_path / "told"
    program = write_program(tmp_path / "kyverno", f'echo "$@" > {told}; echo "{COUNTS}"')
    ours = measure([sys.executable, "-c", "pass"])
    found = Peer(program).compare("some work", ["apply", "a b.yaml", "-r", "c"], ours)
    assert told.read_text() == "apply a b.yaml -r c\n"
    assert found.text.startswith("measured ")
    assert found.text.endswith(" times ours")
    assert found.summary == COUNTS


@pytest.mark.parametrize("lines", ["exit 0", "echo unknown command; exit 1"])
def test_a_peer_that_did_not_do_the_work_has_no_figures(tmp_path, lines):
    program = write_program(tmp_path / "kyverno", lines)
    ours = measure([sys.executable, "-c", "pass"])
    found = Peer(program).compare("version", ["apply"], ours)
    assert found.text.startswith("FAILED with exit code ")
    assert found.summary == ""


def test_without_a_peer_what_is_known_is_marked_as_such():
    ours = measure([sys.executable, "-c", "pass"])
    for name in KNOWN:
        assert Peer().compare(name, ["apply"], ours).text.startswith("known ")
    assert Peer().compare("work that nobody knows", ["apply"], ours).text == ""
    with pytest.raises(NoPeerError, match="no-such-kyverno"):
        Peer("no-such-kyverno")


@pytest.mark.parametrize(
    ("image", "flags", "code"), [("nginx:1.27", [], 0), ("nginx:latest", ["--strict"], 1)]
)
def test_the_table_has_every_bar_and_strict_tells_by_the_exit_code(tmp_path, image, flags, code):
    inputs = tmp_path / "shared" / "bench"
    (inputs / "policies").mkdir(parents=True)
    (inputs / "policies" / "disallow-latest-tag.yaml").write_text(POLICY)
    (inputs / "make_pods.py").write_text(MAKE_PODS.replace("IMAGE", image))
    peer = write_program(tmp_path / "kyverno", f'echo "Version: 1"; echo "{COUNTS}"')
    words = ["--shared", str(inputs.parent), "--only", "start", "--peer", peer]
    ran = subprocess.run(
        [sys.executable, str(BENCH / "bench.py"), *words, *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (code, "")
    rows = {line[:43].strip(): line for line in ran.stdout.splitlines()}
    assert "Kyverno measured" in rows["version"]
    # How long it takes depends on the machine; what it counts does not.
    is_wrong = "pass: 1, fail: 1, warn: 0, error: 0, skip: 0, not pass: 2, fail: 0"
    assert (is_wrong in rows["apply 1 policy, 1 Pod"]) is bool(code)
    assert "not measured" in rows["first scan of 10,000 Pods, 38 policies"]
    assert "<= 18 CPU-s" in rows["first scan of 10,000 Pods, 38 policies"]
    assert rows["Ray: two workers against one"].endswith("--all measures it")


def test_an_unknown_section_is_a_wrong_call():
    ran = subprocess.run(
        [sys.executable, str(BENCH / "bench.py"), "--only", "appply"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "--only appply: it is none of start, apply," in ran.stderr
