"""`lictor wasm` from end to end: modules of our own are annotated, inspected, run and measured."""

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wat_guests import LOOP, PAYLOAD, data, wapc, wasi

from lictor.cli.exit_codes import run

METADATA = """\
rules:
- {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
mutating: false
executionMode: MODE
annotations: {io.kubewarden.policy.title: demo, io.kubewarden.policy.version: 0.10}
"""
REQUEST = {
    "uid": "u",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "operation": "CREATE",
    "userInfo": {"username": "ann"},
    "name": "a",
    "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
}
# Says which protocol it speaks; the name of the question has 16 letters.
PROTOCOL = """
  (if (i32.eq (local.get $operation) (i32.const 16)) (then
    (i32.store (i32.const 512) (i32.const 0x22317622))
    (call $respond (i32.const 512) (i32.const 4)) (return (i32.const 1))))"""
REJECT = '{"accepted":false,"message":"no","code":403}'

Lictor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lictor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Lictor:
    """Runs a command of `lictor wasm` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    # Compiled modules of one test serve the others.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    (tmp_path / "accept.wasm").write_bytes(wapc(settings=PROTOCOL))
    (tmp_path / "reject.wasm").write_bytes(wapc(answer=REJECT, settings=PROTOCOL))

    def call(*words: str, stdin: str = "") -> tuple[int, str, str]:
        given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", given)
        code = run(["wasm", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def annotate(lictor: Lictor, module: str, mode: str = "kubewarden-wapc") -> tuple[int, str, str]:
    Path("metadata.yml").write_text(METADATA.replace("MODE", mode))
    return lictor("annotate", "-m", "metadata.yml", "-o", "made.wasm", module)


def ask(lictor: Lictor, *words: str, stdin: str = "") -> Any:
    code, out, err = lictor("run", *words, stdin=stdin)
    assert code == 0, err
    return json.loads(out)


def test_a_module_becomes_a_policy(lictor: Lictor) -> None:
    assert annotate(lictor, "reject.wasm") == (0, "", "")
    code, page, _ = lictor("inspect", "made.wasm")
    assert code == 0
    assert "title:                       demo" in page.splitlines()
    assert "io.kubewarden.policy.version 0.10" in page.splitlines()
    answer = ask(lictor, "made.wasm", "-r", "request.json")
    assert (answer["allowed"], answer["status"]) == (False, {"message": "no", "code": 403})
    code, manifest, _ = lictor("scaffold", "manifest", "-t", "ClusterAdmissionPolicy", "made.wasm")
    assert code == 0
    Path("policy.yaml").write_text(manifest.replace("spec:", "spec:\n  mode: monitor"))
    assert ask(lictor, "policy.yaml", "-r", "request.json")["allowed"] is True


@pytest.mark.parametrize(
    ("module", "mode", "told"),
    [
        (wapc(), "kubewarden-wapc", "speaks protocol"),
        (wapc(settings=LOOP), "kubewarden-wapc", "time limit"),
        (wapc(), "gatekeeper", "does not come from Rego"),
        (wasi(), "kubewarden-wapc", "__guest_call"),
        (b"text", "wasi", "no WebAssembly module"),
    ],
)
def test_modules_that_are_not_what_the_metadata_says(
    lictor: Lictor, monkeypatch: pytest.MonkeyPatch, module: bytes, mode: str, told: str
) -> None:
    limits = "lictor.addons.kubewarden.cli.inspection.PROTOCOL_SECONDS"
    monkeypatch.setattr(limits, 0.2)
    Path("module.wasm").write_bytes(module)
    code, _, err = annotate(lictor, "module.wasm", mode)
    assert (code, told in err) == (1, True), err
    assert not Path("made.wasm").exists()


def test_a_policy_that_loops_is_rejected_in_time(lictor: Lictor) -> None:
    Path("loop.wasm").write_bytes(wapc(LOOP))
    answer = ask(lictor, "loop.wasm", "-r", "request.json", "--timeout", "0.2")
    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)
    code, _, err = lictor("bench", "loop.wasm", "-r", "request.json", "--timeout", "0.1")
    assert (code, "nothing to measure" in err) == (1, True), err


def test_settings_that_loop_are_refused_in_time(lictor: Lictor) -> None:
    Path("loop.wasm").write_bytes(wapc(settings=LOOP))
    code, out, err = lictor("run", "loop.wasm", "-r", "request.json", "--timeout", "0.2")
    assert (code, out, "settings" in err) == (1, "", True)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["run", "accept.wasm"], 2, "request-path"),
        (["run", "accept.wasm", "-r", "none.json"], 1, "none.json"),
        (["run", "none.wasm", "-r", "request.json"], 1, "none.wasm"),
        (["run", "accept.wasm", "-r", "request.json", "-e", "zzz"], 2, "zzz"),
        (["run", "accept.wasm", "-r", "request.json", "--settings-json", "[1]"], 1, "mapping"),
        (["run", "accept.wasm", "-r", "request.json", "--settings-json", "{x"], 1, "no JSON"),
        (
            ["run", "accept.wasm", "-r", "request.json", "--allowed-host-capabilities", "zzz"],
            1,
            "zzz",
        ),
        (
            [
                "run",
                "accept.wasm",
                "-r",
                "request.json",
                "--record-host-capabilities-interactions",
                "a",
                "--replay-host-capabilities-interactions",
                "b",
            ],
            2,
            "not both",
        ),
        (["verify", "-k", "k", "-a", "env", "registry://localhost:1/a:v1"], 1, "NAME=VALUE"),
        (["verify", "registry://localhost:1/a:v1"], 1, "no required signer is given"),
        (["push", "accept.wasm", "registry://localhost:1/a:v1", "-f", "false"], 1, "no metadata"),
        (["push", "accept.wasm", "file:///a"], 1, "no metadata"),
        (["push", "accept.wasm"], 2, "2 arg(s)"),
        (["pull", "file:///none.wasm"], 1, "none.wasm"),
        (["inspect", "accept.wasm"], 1, "annotate it first"),
        (["inspect", "-o", "json", "accept.wasm"], 2, "json"),
        (["load"], 2, "input"),
        (["completions", "-s", "csh"], 2, "csh"),
        (["scaffold"], 2, ""),
        ([], 2, ""),
        (["zzz"], 2, "zzz"),
    ],
)
def test_wrong_calls(lictor: Lictor, words: list[str], code: int, told: str) -> None:
    Path("k").write_text("no key")
    got, out, err = lictor(*words)
    assert got == code, err
    assert told in err + out
    assert "internal error" not in err


def test_requests_come_from_reviews_and_pipes_too(lictor: Lictor) -> None:
    review = json.dumps({"kind": "AdmissionReview", "request": REQUEST})
    assert ask(lictor, "accept.wasm", "-r", "-", stdin=review)["uid"] == "u"
    code, _, err = lictor("run", "accept.wasm", "-r", "-", stdin=json.dumps(REQUEST["object"]))
    assert (code, "admission request" in err) == (1, True)


def test_fields_that_kubernetes_does_not_know_do_not_reach_the_policy(lictor: Lictor) -> None:
    echo = f"""(call $respond (i32.const 1024) (i32.const 0))
      (call $complain (i32.const {PAYLOAD}) (local.get $payload)) (return (i32.const 0))"""
    Path("echo.wasm").write_bytes(wapc(echo))
    strange = json.dumps({**REQUEST, "strange": 1})
    answer = ask(lictor, "echo.wasm", "-r", "-", stdin=strange)
    assert '"userInfo"' in answer["status"]["message"]
    assert "strange" not in answer["status"]["message"]


def test_raw_requests_are_any_json(lictor: Lictor) -> None:
    assert ask(lictor, "accept.wasm", "-r", "-", "--raw", stdin="[1]")["uid"] == ""


@pytest.mark.parametrize(
    ("flags", "granted"),
    [
        ([], True),
        (["--allowed-host-capabilities", "oci/*"], False),
        (["--allowed-host-capabilities", "oci/*", "net/*"], True),
        (["--allowed-host-capabilities", "oci/*", "--allowed-host-capabilities", "net/*"], True),
        (["--allowed-host-capabilities"], False),
    ],
)
def test_host_capabilities(lictor: Lictor, flags: list[str], granted: object) -> None:
    asks = _ask_for("localhost")
    Path("ask.wasm").write_bytes(asks)
    answer = ask(lictor, "ask.wasm", "-r", "request.json", *flags)
    assert answer["allowed"] is granted, answer


def _ask_for(host: str) -> bytes:
    """Accepts where the host resolves."""
    texts = ("kubewarden", "net", "v1/dns_lookup_host", f'"{host}"')
    places, code, at = [], "", 2048
    for text in texts:
        code += data(at, text)
        places.append(f"(i32.const {at}) (i32.const {len(text)})")
        at += 64
    call = f"""(if (i32.eqz (call $ask {" ".join(places)})) (then
      (call $complain (i32.const 2048) (i32.const 10)) (return (i32.const 0))))"""
    return wapc(call, extra=code)


def test_sessions_are_recorded_and_replayed(lictor: Lictor) -> None:
    Path("ask.wasm").write_bytes(_ask_for("localhost"))
    record, replay = (f"--{word}-host-capabilities-interactions" for word in ("record", "replay"))
    ask(lictor, "ask.wasm", "-r", "request.json", record, "s.yml")
    assert "!DNSLookupHost" in Path("s.yml").read_text()
    text = Path("s.yml").read_text().replace("localhost", "nowhere.invalid")
    Path("s.yml").write_text(text)
    Path("ask.wasm").write_bytes(_ask_for("nowhere.invalid"))
    assert ask(lictor, "ask.wasm", "-r", "request.json", replay, "s.yml")["allowed"] is True
    _, _, err = lictor("run", "accept.wasm", "-r", "request.json", replay, "s.yml")
    assert "not requested" in err


def test_bench_tells_figures(lictor: Lictor) -> None:
    flags = [
        "--warm-up-time",
        "0",
        "--measurement-time",
        "0.05",
        "--num-samples",
        "5",
        "--num-resamples",
        "5",
    ]
    words = ["bench", "accept.wasm", "-r", "request.json", *flags, "--dump-results-to-disk", "d"]
    code, out, err = lictor(*words)
    assert code == 0, err
    assert "validate_settings [" in out
    assert "elapsed\t[min mean max]:" in out
    assert {name: len(seconds) for name, seconds in json.loads(Path("d").read_bytes()).items()} == {
        "validate_settings": 5,
        "validate": 5,
    }


def test_manifests_hold_nothing_but_policies(lictor: Lictor) -> None:
    Path("pod.yaml").write_text(json.dumps(REQUEST["object"]))
    code, _, err = lictor("run", "pod.yaml", "-r", "request.json")
    assert (code, "nothing but" in err) == (1, True)


def test_info_names_builtins_and_the_store(lictor: Lictor) -> None:
    code, out, _ = lictor("info")
    assert code == 0
    for words in ("  - strings.any_prefix_match", "  - sprintf", "Policy store: "):
        assert words in out


@pytest.mark.parametrize("shell", ["bash", "elvish", "fish", "powershell", "zsh"])
def test_completions(lictor: Lictor, shell: str) -> None:
    code, out, _ = lictor("completions", "-s", shell)
    assert (code, f"{shell}_complete" in out) == (0, True)


def test_names_of_files_are_taken_as_they_are(lictor: Lictor) -> None:
    annotate(lictor, "accept.wasm")
    Path("made.wasm").rename("a%2Fb c%20d.wasm")
    assert lictor("inspect", "a%2Fb c%20d.wasm")[0] == 0
    assert ask(lictor, "a%2Fb c%20d.wasm", "-r", "request.json")["allowed"] is True
    Path("accept.wasm").rename("a%20b.wasm")
    assert annotate(lictor, "a%20b.wasm") == (0, "", "")


def test_a_file_that_is_missing_is_named(lictor: Lictor) -> None:
    for command in (["inspect", "none.wasm"], ["run", "none.wasm", "-r", "request.json"]):
        code, _, told = lictor(*command)
        assert code == 1
        assert "there is no file none.wasm" in told


def test_modules_have_no_power_over_the_terminal(lictor: Lictor) -> None:
    Path("metadata.yml").write_text(
        METADATA.replace("MODE", "kubewarden-wapc").replace("demo", r'"\e]0;x\x07d\x9b2J\u202e"')
    )
    lictor("annotate", "-m", "metadata.yml", "-o", "made.wasm", "accept.wasm")
    _, page, _ = lictor("inspect", "made.wasm")
    assert r"\x1b]0;x\x07d\u009b2J\u202e" in page
    assert "\x1b" not in page
    code, _, told = lictor("inspect", "\x1b]0;x\x07.wasm")
    assert code
    assert "\x1b" not in told


@pytest.mark.parametrize(("more", "is_bold"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_headings_are_bold_on_terminals_only(
    lictor: Lictor, more: dict[str, str], is_bold: object
) -> None:
    annotate(lictor, "accept.wasm")
    words = [sys.executable, "-m", "lictor", "wasm", "inspect", "made.wasm"]
    environment = {**os.environ, "TERM": "xterm", **more}
    piped = subprocess.run(words, env=environment, capture_output=True, check=True).stdout
    assert b"\x1b" not in piped
    main, end = pty.openpty()
    with subprocess.Popen(words, env=environment, stdout=end, stderr=end) as process:
        os.close(end)
        shown = _read_all(main)
    assert process.returncode == 0
    assert (b"\x1b[1m" in shown) is is_bold
    assert b"title:" in shown


def _read_all(terminal: int) -> bytes:
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    return shown


REGO = "package shop.team\n\nmain := {}\n"
# A stand-in for opa: puts a module into a bundle where it is told to.
OPA = """#!/bin/sh
[ "$1 $2 $3 $4 $5 $6" = "build -t wasm -e shop/team/main -o" ] || exit 1
tar -czf "$7" -P --transform 's,.*,/policy.wasm,' "$MODULE"
"""


def test_rego_is_compiled_by_opa(lictor, tmp_path, monkeypatch):
    (tmp_path / "policy.rego").write_text(REGO)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    code, _, told = lictor("run", "policy.rego", "-r", "request.json")
    assert code == 1
    assert "`opa build -t wasm -e shop/team/main -o bundle.tar.gz policy.rego`" in told
    (tmp_path / "opa").write_text(OPA)
    (tmp_path / "opa").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("MODULE", str(tmp_path / "reject.wasm"))
    annotated = ask(lictor, "policy.rego", "-r", "request.json", "-e", "kubewarden-wapc")
    assert annotated["allowed"] is False
    (tmp_path / "other.rego").write_text("package other\n")
    code, _, told = lictor("run", "other.rego", "-r", "request.json")
    assert code == 1
    assert "opa build failed" in told
