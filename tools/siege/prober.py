"""Honest requests about `green`, at a small steady rate: is each answered rightly, and how soon?

Runs as a process of its own, so that the attacker's work does not hold it up. Each answer is a line of
JSON. Half of the requests go to the webhook as the API server would send them, on connections that stay
open; the others through the API server, which has ways of its own to be slow.
"""

import argparse
import base64
import http.client
import itertools
import json
import ssl
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from waiting import Waiting

Object = dict[str, Any]
_PATIENCE = 20.0
_CONNECTIONS = 4
_lock = threading.Lock()


@dataclass(frozen=True)
class Probe:
    """A request, and what its answer must hold."""

    path: str
    data: dict[str, str]
    allowed: bool
    said: str


DIRECT = (
    Probe("/validate/fail", {"fine": "1"}, allowed=True, said=""),
    Probe("/validate/fail", {"password": "1"}, allowed=False, said="no passwords"),
    Probe("/validate/fail", {"key": "1"}, allowed=False, said="no keys"),
    Probe("/mutate/fail", {"fine": "1"}, allowed=True, said="stamped"),
    Probe("/vpol/guard-cel", {"token": "1"}, allowed=False, said="no tokens"),
    Probe("/vpol/guard-cel", {"fine": "1"}, allowed=True, said=""),
)
_MAPS = "/api/v1/namespaces/green/configmaps?dryRun=All"
THROUGH = (
    Probe(_MAPS, {"fine": "1"}, allowed=True, said="stamped"),
    Probe(_MAPS, {"password": "1"}, allowed=False, said="no passwords"),
    Probe(_MAPS, {"key": "1"}, allowed=False, said="no keys"),
    Probe(_MAPS, {"token": "1"}, allowed=False, said="no tokens"),
)


@dataclass(frozen=True)
class Answer:
    """What came of a probe. `own` is the time without what others took, in milliseconds like `raw`."""

    way: str
    at: float
    raw: float
    own: float
    right: bool
    text: str
    facts: dict[str, float]


class Connections:
    """A few connections in turn, so that every worker is asked."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, count: int) -> None:
        self._made = [
            http.client.HTTPSConnection(host, port, context=context, timeout=_PATIENCE)
            for _ in range(count)
        ]
        self._turns = itertools.cycle(self._made)
        # Seconds that the last request spent on opening its connection.
        self.opening = 0.0

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """The answer. A connection that was closed while idle is opened anew, as clients do."""
        connection = next(self._turns)
        was_open = connection.sock is not None
        self.opening = 0.0
        try:
            return self._send(connection, path, body)
        except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
            connection.close()
            if not was_open:
                raise
        try:
            return self._send(connection, path, body)
        except (http.client.HTTPException, OSError):
            connection.close()
            raise

    def _send(
        self, connection: http.client.HTTPSConnection, path: str, body: bytes
    ) -> tuple[int, bytes]:
        if connection.sock is None:
            began = time.monotonic()
            connection.connect()
            self.opening = time.monotonic() - began
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def build_review(data: dict[str, str]) -> Object:
    """What the API server would send."""
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    metadata = {"name": "probe", "namespace": "green"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    request = {
        "uid": "0c2b7a52-4c0e-4c3c-9d8b-6e0d6a6f0a11",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "probe",
        "namespace": "green",
        "operation": "CREATE",
        "userInfo": {"username": "honest", "groups": ["system:authenticated"]},
        "object": body,
        "oldObject": None,
        "dryRun": True,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def judge_review(probe: Probe, status: int, body: bytes) -> bool:
    """Is this the right answer of the webhook?"""
    if status != 200:
        return False
    response = json.loads(body)["response"]
    if response.get("patch"):
        body += base64.b64decode(response["patch"])
    return response["allowed"] is probe.allowed and probe.said.encode() in body


def judge_object(probe: Probe, status: int, body: bytes) -> bool:
    """Is this the right answer of the API server?"""
    return (status == 201) is probe.allowed and probe.said.encode() in body


def ask(way: str, probe: Probe, connections: Connections, waiting: Waiting) -> Answer:
    """One probe."""
    direct = way == "webhook"
    sent = (
        build_review(probe.data) if direct else {"metadata": {"name": "probe"}, "data": probe.data}
    )
    judge = judge_review if direct else judge_object
    waiting.begin()
    at, began = time.time(), time.monotonic()
    try:
        status, body = connections.post(probe.path, json.dumps(sent).encode())
        right, text = judge(probe, status, body), f"{status} {body[:600].decode(errors='replace')}"
    except (http.client.HTTPException, OSError, ValueError, KeyError) as error:
        right, text = False, f"{type(error).__name__}: {error}"
    raw = time.monotonic() - began
    excused, facts = waiting.end() if raw > 0.02 else (0.0, {})
    facts["opening"] = connections.opening
    own = max(raw - excused, 0.0)
    return Answer(way, at, raw * 1e3, own * 1e3, right, "" if right else text, facts)


def probe_for_ever(way: str, connections: Connections, rate: float, pids: Path) -> None:
    """Ask, and tell; never faster than this, and slower where answers are."""
    waiting = Waiting(pids)
    for probe in itertools.cycle(DIRECT if way == "webhook" else THROUGH):
        began = time.monotonic()
        answer = ask(way, probe, connections, waiting)
        with _lock:
            print(json.dumps(asdict(answer)), flush=True)
        time.sleep(max(1 / rate - (time.monotonic() - began), 0.0))


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def main() -> None:
    """Ask until the parent is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--api-port", type=int, required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--pids", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=10.0)
    given = parser.parse_args()
    webhook = Connections(given.host, given.port, _trusting(), _CONNECTIONS)
    known = _trusting()
    known.load_cert_chain(given.certificate, given.key)
    server = Connections(given.host, given.api_port, known, 1)
    thread = threading.Thread(
        target=probe_for_ever, args=("API server", server, given.rate / 3, given.pids), daemon=True
    )
    thread.start()
    try:
        probe_for_ever("webhook", webhook, given.rate, given.pids)
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(0)


if __name__ == "__main__":
    main()
