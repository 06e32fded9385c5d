"""The scripts that look after the lock: what they find, and that they never take silence for health."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts"))
import check_dependencies  # noqa: E402
import list_licences  # noqa: E402

_HASH = f"--hash=sha256:{'0' * 64}"
_LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
_PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "names", "problems"),
    [
        (f"a==1 \\\n    {_HASH}\n", ["a"], []),
        (f"A_b==1.2 ; sys_platform == 'win32' \\\n    {_HASH}\n", ["a-b"], []),
        ("a==1\n", ["a"], ["a: no hash"]),
        ("a==1 \\\n    --hash=md5:00\n", ["a"], ["a: no hash"]),
        (f"a>=1 \\\n    {_HASH}\n", [], ["a>=1 \\: not pinned to one version by =="]),
        (f"# note\na==1 \\\n    {_HASH}\nb\n", ["a"], ["b: not pinned to one version by =="]),
    ],
)
def test_lines_of_the_lock(text: str, names: list[str], problems: list[str]) -> None:
    entries, found = check_dependencies.read_lock(text)
    assert [entry.name for entry in entries] == names
    assert found == problems


def test_our_lock_is_complete_and_hashed() -> None:
    entries, problems = check_dependencies.read_lock(_LOCK)
    gaps = check_dependencies.find_gaps(entries, check_dependencies.list_declared(_PROJECT))
    assert [*problems, *gaps] == []
    assert len(entries) > 40


def test_the_lock_of_ray_is_hashed_and_goes_with_ours() -> None:
    text = (ROOT / "requirements-ray.lock").read_text(encoding="utf-8")
    entries, problems = check_dependencies.read_lock(text)
    assert problems == []
    found = {entry.name: entry.version for entry in entries}
    assert {"ray", "pyarrow", "fsspec"} <= found.keys()
    ours = {entry.name: entry.version for entry in check_dependencies.read_lock(_LOCK)[0]}
    assert {name: ours[name] for name in ours.keys() & found.keys()} == {
        name: found[name] for name in ours.keys() & found.keys()
    }


def test_the_lock_of_the_documentation_is_hashed() -> None:
    text = (ROOT / "requirements-docs.lock").read_text(encoding="utf-8")
    entries, problems = check_dependencies.read_lock(text)
    assert problems == []
    assert {"zensical", "mkdocstrings-python"} <= {entry.name for entry in entries}


@pytest.mark.parametrize(
    ("taken", "told"),
    [
        ("httpx2", "httpx2: wanted by pyproject.toml, not in the lock"),
        ("httpcore2", "httpcore2: wanted by httpx2, not in the lock"),
        ("iniconfig", "iniconfig: wanted by pytest, not in the lock"),
    ],
)
def test_what_is_missing_is_told(taken: str, told: str) -> None:
    entries, _ = check_dependencies.read_lock(_LOCK)
    rest = [entry for entry in entries if entry.name != taken]
    assert told in check_dependencies.find_gaps(rest, check_dependencies.list_declared(_PROJECT))


def test_other_versions_are_told() -> None:
    entries, _ = check_dependencies.read_lock(_LOCK)
    changed = [
        check_dependencies.Locked("click", "0.1", "", 1) if entry.name == "click" else entry
        for entry in entries
    ]
    [line] = [
        each for each in check_dependencies.find_differences(changed) if each.startswith("click")
    ]
    assert line.startswith("click: 0.1 in the lock, ")


@contextmanager
def service(answer: object) -> Iterator[str]:
    """Someone on loopback who knows holes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            queries = json.loads(self.rfile.read(length))["queries"]
            body = json.dumps(answer(queries) if callable(answer) else answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def run_check(service: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The script on a small lock that is well: what is installed but not in it is not asked about."""
    command = [sys.executable, str(ROOT / "scripts/check_dependencies.py"), "--service", service]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def _answer(holes: dict[str, str]) -> object:
    return lambda queries: {
        "results": [
            {"vulns": [{"id": holes[each["package"]["name"]]}]}
            if each["package"]["name"] in holes
            else {}
            for each in queries
        ]
    }


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (_answer({}), 0, "0 problems"),
        (_answer({"click": "PYSEC-1"}), 1, "PYSEC-1"),
        ({"results": []}, 3, "NOT CHECKED"),
        ({"message": "busy"}, 3, "NOT CHECKED"),
    ],
    ids=("none", "one", "too few answers", "no answer"),
)
def test_known_holes(answer: object, code: int, said: str, tmp_path: Path) -> None:
    with service(answer) as address:
        done = run_check(address, tmp_path)
    others = [each for each in done.stdout.splitlines() if "installed" in each]
    if others:
        pytest.skip(f"this environment is not the lock's: {others[0]}")
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)


def test_a_service_that_is_away_is_not_health(tmp_path: Path) -> None:
    done = run_check("http://127.0.0.1:9", tmp_path)
    assert done.returncode != 0
    assert "NOT CHECKED" in done.stderr


def test_the_page_of_licences_is_current() -> None:
    """Written anew by `python scripts/list_licences.py > docs/reference/licences.md`."""
    entries, _ = check_dependencies.read_lock(_LOCK)
    page = (ROOT / "docs/reference/licences.md").read_text(encoding="utf-8")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines()}
    for entry in entries:
        assert f"| {entry.name} | {entry.version} | " in rows.get(entry.name, "")
        told = list_licences.find_licence(entry.name)
        assert told in rows[entry.name] or told == "not installed here"
    assert len([name for name in rows if name in {entry.name for entry in entries}]) == len(entries)
