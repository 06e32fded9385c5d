"""A policy server as a process, and policies for it: guests of our own, written into a folder."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from wat_guests import LOOP, wapc, wasi

from lictor.addons.kubewarden.runtime.metadata import write_metadata
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.lang.wasm_records import ExecutionMode

# Processes on a busy machine take their time.
PATIENCE = 90.0
REJECT = '{"accepted":false,"message":"no","code":403}'
_GROW = "(drop (memory.grow (i32.const 32000))) (unreachable)"
_FLOOD = "(loop $again (call $print (i32.const 1) (i32.const 0) (i32.const 524288)) (br $again))"
GUESTS: Mapping[str, Callable[[], bytes]] = {
    "accept": wapc,
    "reject": lambda: wapc(answer=REJECT),
    "loop": lambda: wapc(LOOP),
    "start-loop": lambda: wapc(extra=f'(func (export "wapc_init") {LOOP})'),
    "bomb": lambda: wapc(_GROW),
    "trap": lambda: wapc("(unreachable)"),
    "garbage": lambda: wapc(answer="this is no answer"),
    "lies": lambda: wapc(answer='{"accepted":"yes"}'),
    "invalid": lambda: wapc(valid='{"valid":false,"message":"bad settings"}'),
    "flood": lambda: wasi(_FLOOD),
    "mutate": lambda: wapc(
        answer='{"accepted":true,"mutated_object":{"metadata":{"labels":{"a":"b"}}}}'
    ),
}


def write_guest(folder: Path, name: str) -> str:
    """The address of a guest."""
    mode = ExecutionMode.WASI if name == "flood" else ExecutionMode.WAPC
    metadata = ModuleMetadata(protocol_version="v1", execution_mode=mode)
    path = folder / f"{name}.wasm"
    path.write_bytes(write_metadata(GUESTS[name](), metadata))
    return f"file://{path}"


def make_review(namespace: str = "shop", uid: str = "u-1") -> dict[str, Any]:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": namespace,
            "userInfo": {},
            "object": pod,
        },
    }


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class PolicyServerProcess:
    """`lictor policy-server`, from its start to its end."""

    def __init__(
        self, folder: Path, policies: Mapping[str, Any], *flags: str, **environment: str
    ) -> None:
        self.folder = folder
        self.port, self.probe_port = find_port(), find_port()
        self.write(policies)
        given = ["--addr", "127.0.0.1", "--port", str(self.port)]
        given += ["--readiness-probe-port", str(self.probe_port), "--policies-download-dir", "dl"]
        given += ["--ignore-kubernetes-connection-failure", *flags]
        with (folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lictor", "policy-server", *given],
                cwd=folder,
                env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **environment},
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> "PolicyServerProcess":
        self.wait_until(self.is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)

    def write(self, policies: Mapping[str, Any]) -> None:
        """All at once, as a ConfigMap changes."""
        draft = self.folder / "draft.yml"
        draft.write_text(json.dumps(policies))
        draft.replace(self.folder / "policies.yml")

    def read_log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert self.process.poll() is None, self.read_log()
            assert time.monotonic() < deadline, self.read_log()
            time.sleep(0.05)

    def is_ready(self) -> bool:
        try:
            return self.call("GET", "/readiness", port=self.probe_port)[0] == 200
        except OSError:
            return False

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        port: int = 0,
        context: ssl.SSLContext | None = None,
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        kind: Any = http.client.HTTPSConnection if context else http.client.HTTPConnection
        more = {"context": context} if context else {}
        with closing(kind("127.0.0.1", port or self.port, timeout=30, **more)) as connection:
            connection.request(method, path, data, {"content-type": "application/json"})
            reply = connection.getresponse()
            content = reply.read()
        try:
            return reply.status, msgspec.json.decode(content)
        except msgspec.DecodeError:
            return reply.status, content.decode()

    def ask(self, policy: str, path: str = "validate", **review: str) -> dict[str, Any]:
        """The response of a policy."""
        status, answer = self.call("POST", f"/{path}/{policy}", make_review(**review))
        assert status == 200, answer
        response: dict[str, Any] = answer["response"]
        return response

    def ask_beside(self, policy: str, count: int) -> list[threading.Thread]:
        """Ask so often at the same time, and do not wait for the answers."""
        threads = [threading.Thread(target=self.ask, args=(policy,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        return threads
