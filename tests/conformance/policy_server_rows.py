"""Starts `lictor policy-server` as each set-up of the corpus says, and compares every answer."""

import base64
import contextlib
import http.client
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import ssl
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubewarden_guests import CORPUS, Guests
from kubewarden_site import Site
from listed_differences import Listed

from lictor.core.lang.patch.kyverno_patch import compile_json_patch

Row = Mapping[str, Any]
_STARTS_WITHIN = 60.0
_AT_ONCE = 3
# For an answer that must come, however busy the machine is; and for one that must not.
_PATIENCE, _SILENT_SECONDS, _UNCHANGED_SECONDS = 60.0, 6.0, 3.0
# Words of the server itself, or of errors: they need not be the same.
_OWN_WORDS = re.compile(
    r"internal server error|Incoming object is null|attempted to mutate|mutation is not allowed|"
    r"error evaluating|interrupted|host error|bootstrap failure|settings are invalid|Guest call|"
    r"bad metadata|cannot "
)
_HTTP_ERRORS = 400


@dataclass(frozen=True)
class Difference:
    """A row on which lictor and Kubewarden do not say the same."""

    name: str
    want: Any
    got: Any
    is_listed: bool
    # Something is accepted, or served, that Kubewarden does not.
    is_softer: bool

    def __str__(self) -> str:
        return f"{self.name}\n  want {_short(self.want)}\n  got  {_short(self.got)}"


@dataclass
class Comparison:
    """How many rows there are, and those that differ or could not be asked."""

    total: int = 0
    differences: list[Difference] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def unlisted(self) -> list[Difference]:
        return [each for each in self.differences if not each.is_listed]

    @property
    def rate(self) -> float:
        return 1 - len(self.unlisted) / max(self.total, 1)


def read_rows() -> tuple[list[Row], dict[str, list[Row]]]:
    """The set-ups, and the requests to each."""
    lines = (CORPUS / "server-answers.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    requests: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "id" in row:
            requests[row["setup"]].append(row)
    return [row for row in rows if "id" not in row], requests


def compare(guests: Guests, differences: Path, folder: Path, least_rows: int = 0) -> Comparison:
    """Ask all set-ups with so many rows; those that scripts/differences.txt names may differ."""
    setups, requests = read_rows()
    reviews = json.loads((CORPUS / "reviews.json").read_text(encoding="utf-8"))
    listed = Listed("Kubewarden", differences)
    result = Comparison()
    with Site.open(guests.folder, folder) as site, ThreadPoolExecutor(_AT_ONCE) as pool:
        wanted = [setup for setup in setups if len(requests[setup["setup"]]) >= least_rows]
        judges = [
            _Judge(setup, requests[setup["setup"]], reviews, guests, site, folder)
            for setup in wanted
        ]
        for judge in pool.map(_run, judges):
            result.total += judge.total
            result.skipped += judge.skipped
            result.differences += [
                Difference(name, want, got, name in listed, _is_softer(want, got))
                for name, want, got in judge.differences
            ]
    return result


def _run(judge: "_Judge") -> "_Judge":
    judge.run()
    return judge


class _Judge:
    """One set-up."""

    def __init__(
        self,
        setup: Row,
        rows: list[Row],
        reviews: Mapping[str, Any],
        guests: Guests,
        site: Site,
        folder: Path,
    ) -> None:
        self._setup = setup
        self._name: str = setup["setup"]
        self._rows = rows
        self._reviews = reviews
        self._guests = guests
        self._site = site
        self._folder = folder / self._name
        self.total = 1 + len(rows)
        self.differences: list[tuple[str, Any, Any]] = []
        self.skipped: list[str] = []

    def run(self) -> None:
        missing = self._find_missing()
        if missing:
            self.skipped = [f"{self._name}: no {missing}"]
            self.total = 0
            return
        self._prepare()
        with Server(self._setup, self._folder, self._site) as server:
            self._judge_start(server)
            if not server.is_up:
                if self._setup["up"]:
                    self.differences += [(row["id"], row["status"], "not up") for row in self._rows]
                return
            for row in self._rows:
                want, got = _expect(row), self._ask(server, row)
                if not _is_same(row, want, got):
                    self.differences.append((row["id"], want, got))

    def _find_missing(self) -> str:
        text = self._setup["policies.yml"] or ""
        return next((name for name in self._guests.missing if f"file://{name}.wasm" in text), "")

    def _prepare(self) -> None:
        self._folder.mkdir()
        for path in self._guests.folder.glob("*.wasm"):
            (self._folder / path.name).symlink_to(path)
        files = dict(self._setup.get("files") or {})
        files["policies.yml"] = self._setup["policies.yml"]
        for name, text in files.items():
            if text is not None:
                (self._folder / name).write_text(self._site.translate(text), encoding="utf-8")
        self._site.add_files(self._folder)

    def _judge_start(self, server: "Server") -> None:
        setup = self._setup
        want = {"up": setup["up"], "exit": None if setup["up"] else setup["exit"]}
        got = {"up": server.is_up, "exit": server.exit_code}
        if want != got:
            shown = got if server.is_up else got | {"stderr": server.stderr[-600:]}
            self.differences.append((self._name, want, shown))

    def _ask(self, server: "Server", row: Row) -> Any:
        if "served_names" in row:
            return server.reload_certificates(row["served_names"])
        if row["id"] == "workers-1-second":
            loop = self._reviews["pod"]
            threading.Thread(target=server.ask, args=("POST", "/validate/loop", loop)).start()
            time.sleep(0.3)
        began = time.monotonic()
        answer = server.ask_row(row, self._find_body(row))
        if isinstance(answer, dict) and row.get("seconds") is not None:
            answer["seconds"] = round(time.monotonic() - began, 1)
        return answer

    def _find_body(self, row: Row) -> Any:
        if row["id"].endswith("body-2.2-MB"):
            review = json.loads(json.dumps(self._reviews["pod"]))
            if "_raw" not in row["id"]:
                review["request"]["object"]["metadata"]["annotations"] = {"a": "x" * 2_200_000}
            else:
                review = {"request": {"uid": "r-1", "a": "x" * 2_200_000}}
            return review
        if "body" in row:
            return row["body"]
        return self._reviews[row.get("review", "pod")]


# Each server is a process of its own; what all of them import is imported once.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "lictor.cli.exit_codes",
        "lictor.addons.kubewarden.server.service",
        "lictor.addons.kubewarden.server.command",
    ]
)


def _run_server(folder: str, arguments: list[str], environment: Mapping[str, str]) -> None:
    from lictor.cli.exit_codes import run

    os.chdir(folder)
    os.environ.update(environment)
    log = os.open("server.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    sys.exit(run(arguments))


class Server:
    """A running server, or one that did not come up."""

    def __init__(self, setup: Row, folder: Path, site: Site) -> None:
        self._setup = setup
        self._folder = folder
        self._site = site
        self._port, self._probe_port = _free_port(), _free_port()
        self.is_up = False
        self.exit_code: int | None = None
        self.stderr = ""

    def __enter__(self) -> "Server":
        flags: list[str] = list(self._setup["flags"])
        given = [
            *("--addr", "127.0.0.1", "--port", str(self._port)),
            *("--readiness-probe-port", str(self._probe_port)),
            *("--policies-download-dir", "dl", "--sigstore-cache-dir", "sigstore"),
        ]
        if "--workers" not in flags:
            given += ["--workers", "1"]
        if self._setup["setup"] not in ("flags-no-kubernetes", "host-calls"):
            given.append("--ignore-kubernetes-connection-failure")
        environment = {
            "KUBECONFIG": "none",
            "XDG_CACHE_HOME": str(self._site.cache),
            "KUBEWARDEN_LOG_LEVEL": "error",
            **(self._setup.get("env") or {}),
        }
        arguments = ["policy-server", *given, *flags]
        self._site.give_compiled(self._folder / "dl")
        self._process = _FORKS.Process(
            target=_run_server, args=(str(self._folder), arguments, environment)
        )
        self._process.start()
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, signal.SIGINT)
            self._process.join(10)
            self._process.kill()
        self._process.join()
        for path in self._folder.glob("*.wasm"):
            path.unlink()
        self._site.keep_compiled(self._folder / "dl")
        shutil.rmtree(self._folder / "dl", ignore_errors=True)

    def _wait(self) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < deadline:
            if not self._process.is_alive():
                self.exit_code = self._process.exitcode
                self.stderr = (self._folder / "server.log").read_text(errors="replace")
                return
            with contextlib.suppress(OSError):
                answer = self.ask("GET", "/readiness", port=self._probe_port)
                if answer.get("status") == 200:
                    self.is_up = True
                    return
            time.sleep(0.05)

    def ask_row(self, row: Row, body: Any) -> Any:
        method, path = row.get("method", "POST"), row.get("path", "/validate/a")
        is_probe = row["id"].startswith("probe-") or row["id"] == "tls-readiness-plain"
        port = self._probe_port if is_probe else self._port
        context = None
        if "client_certificate" in row and not row.get("plain_http"):
            context = self._site.make_context(row)
        if method == "GET" or method in ("HEAD", "OPTIONS"):
            body = None
        patience = _PATIENCE if row["status"] is not None else _SILENT_SECONDS
        return self.ask(method, path, body, row.get("headers"), port, context, patience=patience)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        port: int = 0,
        context: ssl.SSLContext | None = None,
        *,
        patience: float = _SILENT_SECONDS,
    ) -> dict[str, Any]:
        """The status and the body; a status of None where there is no answer."""
        given = {"Content-Type": "application/json"} if headers is None else dict(headers)
        data = body if isinstance(body, str) else None if body is None else json.dumps(body)
        port = port or self._port
        if context is None:
            made = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
        else:
            made = http.client.HTTPSConnection("127.0.0.1", port, timeout=patience, context=context)
        try:
            made.request(method, path, None if data is None else data.encode(), given)
            reply = made.getresponse()
            content = reply.read()
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ConnectionRefusedError):
                raise
            return {"status": None, "error": repr(error)}
        finally:
            made.close()
        return {
            "status": reply.status,
            "content-type": reply.headers.get("content-type") or None,
            "allow": reply.headers.get("allow"),
            "answer": _read_body(content),
        }

    def reload_certificates(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Which names are served while the files change."""
        found = {"at start": self._site.read_served_name(self._port)}
        steps: tuple[tuple[str, Callable[[], object]], ...] = (
            (
                "after the certificate file was replaced",
                lambda: self._site.write_new(self._folder, certificate=True, key=False),
            ),
            (
                "after the key file was replaced too",
                lambda: self._site.write_new(self._folder, certificate=False, key=True),
            ),
            (
                "after the certificate file became junk",
                lambda: (self._folder / "server.pem").write_text("junk"),
            ),
        )
        for step, change in steps:
            before = list(found.values())[-1]
            change()
            found[step] = self._wait_for_name(before, wanted[step])
        return found

    def _wait_for_name(self, before: str, wanted: str) -> str:
        """The name that is served after a change; one that must stay is looked at for a while."""
        deadline = time.monotonic() + (_UNCHANGED_SECONDS if before == wanted else _PATIENCE)
        name = before
        while time.monotonic() < deadline and name == before:
            time.sleep(0.1)
            name = self._site.read_served_name(self._port)
        return name


def _read_body(content: bytes) -> Any:
    if not content:
        return "<empty>"
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def _expect(row: Row) -> Any:
    if "served_names" in row:
        return row["served_names"]
    if row["status"] is None:
        return {"status": None}
    return {"status": row["status"], "answer": row["answer"], "seconds": row.get("seconds")}


def _is_same(row: Row, want: Any, got: Any) -> bool:
    if "served_names" in row:
        return bool(want == got)
    if want["status"] != got["status"]:
        return False
    if want["status"] is None:
        return True
    if row.get("allow") and row["allow"] != got["allow"]:
        return False
    limit = row.get("seconds")
    # Sooner is another limit; a machine that is busy is late.
    if limit is not None and not -1.5 < got.get("seconds", 0.0) - limit < _PATIENCE / 2:
        return False
    if want["status"] >= _HTTP_ERRORS:
        return type(want["answer"]) is type(got["answer"]) and (
            not isinstance(want["answer"], dict) or want["answer"].keys() == got["answer"].keys()
        )
    return _reduce(row, want["answer"]) == _reduce(row, got["answer"])


def _reduce(row: Row, answer: Any) -> Any:
    """What must be the same: all but the words of errors, and the way a patch is written."""
    if not isinstance(answer, dict) or "response" not in answer:
        return answer
    response = json.loads(json.dumps(answer["response"]))
    if "patch" in response:
        response["patch"] = _apply(row, response["patch"])
    status = response.get("status") or {}
    if "message" in status:
        status["message"] = _reduce_words(row, status.get("message"), status.get("code"))
    causes = (status.get("details") or {}).get("causes")
    if causes:
        for cause in causes:
            cause["message"] = _reduce_words(row, cause["message"], None)
        causes.sort(key=lambda cause: str(cause["field"]))
    return {**answer, "response": response}


def _reduce_words(row: Row, text: Any, code: Any) -> Any:
    is_own = isinstance(text, str) and _OWN_WORDS.search(text)
    wanted = row["answer"]["response"].get("status") or {}
    wanted_words = json.dumps(wanted)
    if code == 500 or is_own or _OWN_WORDS.search(wanted_words) or "opa" in row:
        return "<words>"
    if not isinstance(text, str):
        return text
    # WASI guests of the corpus tell the host's code first. The order of keys is nobody's promise.
    code_told, space, rest = text.partition(" ")
    with contextlib.suppress(ValueError):
        return (code_told, json.loads(rest)) if space else json.loads(text)
    with contextlib.suppress(ValueError):
        return json.loads(text)
    # Nor is that of violations in Rego.
    return sorted(text.split(", "))


def _apply(row: Row, patch: str) -> Any:
    operations = json.loads(base64.b64decode(patch))
    with contextlib.suppress(Exception):
        reviews = json.loads((CORPUS / "reviews.json").read_text(encoding="utf-8"))
        request = reviews[row["review"]]["request"]
        subject = request if row["path"].startswith("/validate_raw") else request["object"]
        return compile_json_patch(operations)(subject)
    return sorted(map(json.dumps, operations))


def _is_softer(want: Any, got: Any) -> bool:
    if isinstance(want, dict) and want.get("up") is False:
        return bool(isinstance(got, dict) and got.get("up"))
    allowed = _find_allowed(got)
    return allowed is True and _find_allowed(want) is not True


def _find_allowed(answer: Any) -> bool | None:
    with contextlib.suppress(KeyError, TypeError):
        return bool(answer["answer"]["response"]["allowed"])
    return None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) < 900 else f"{text[:900]}..."


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


def iterate_differences(comparison: Comparison) -> Iterator[str]:
    """For people."""
    for each in comparison.differences:
        yield f"{'listed  ' if each.is_listed else 'UNLISTED'} {'SOFTER ' if each.is_softer else ''}{each}"
