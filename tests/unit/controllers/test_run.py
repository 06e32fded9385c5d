"""Which loops run, the port for health, and the end of a process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress

import pytest

from lictor.controllers.controllers import CONTROLLERS, choose_loops
from lictor.controllers.run import Health, open_health_port
from lictor.core.errors import UsageError
from lictor.kubernetes.flags import Flags

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
users: [{name: nobody, user: {token: none}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
"""


@pytest.mark.parametrize(
    ("which", "some"),
    [
        ((), {"certificates", "policies", "ttl"}),
        (("admission",), {"certificates", "policies", "heartbeat", "ownership"}),
        (("certificates",), {"certificates"}),
        (("certificates", "cleanup"), {"certificates", "ttl", "cleanup-policies"}),
    ],
)
def test_choosing(which, some):
    chosen = choose_loops(which)
    assert some <= chosen
    everything = {name for names in CONTROLLERS.values() for name in names}
    assert (chosen == everything) == (not which)


def test_an_unknown_name_is_refused():
    with pytest.raises(UsageError, match="unknown controller 'nonsense'; there are admission, "):
        choose_loops(("nonsense",))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, path, method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def with_health(flags, play):
    async def run():
        health = Health(flags)
        with open_health_port(flags) as bound:
            serving = asyncio.create_task(health.serve(bound))
            try:
                await asyncio.to_thread(play, health, bound.getsockname()[1])
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(run())


def test_the_port_answers():
    def play(health, port):
        assert ask(port, "/health/liveness") == (200, "ok")
        assert ask(port, "/health/readiness") == (503, "not ready")
        health.is_ready = True
        assert ask(port, "/health/readiness?verbose") == (200, "ok")
        assert ask(port, "/health/readiness", "HEAD") == (200, "")
        assert "python_info" in ask(port, "/metrics")[1]
        assert ask(port, "/secrets")[0] == 404
        assert ask(port, "/metrics", "DELETE")[0] == 405

    with_health(Flags(metrics_port=0, metrics_host="127.0.0.1"), play)


def test_metrics_can_be_turned_off():
    def play(health, port):
        assert ask(port, "/metrics")[0] == 404
        assert ask(port, "/health/liveness")[0] == 200

    with_health(Flags(metrics_port=0, metrics_host="127.0.0.1", disable_metrics=True), play)


@pytest.mark.parametrize(
    "sent", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"x" * 40_000, b"", b"\r\n\r\n"],
    ids=["bytes", "short", "long", "nothing", "empty"],
)  # fmt: skip
def test_nonsense_does_no_harm(sent):
    def play(health, port):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # as for those who say nothing
                while line.recv(4096):
                    pass
        assert ask(port, "/health/liveness")[0] == 200

    with_health(Flags(metrics_port=0, metrics_host="127.0.0.1"), play)


def test_connections_are_bounded():
    """Silent clients and idle ones are closed for others; the port answers all the same."""

    def is_closed(line):
        line.settimeout(0.01)
        try:
            return line.recv(4096) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def play(health, port):
        with ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                for _ in range(100)
            ]
            for _ in range(80):
                line = socket.create_connection(("127.0.0.1", port), timeout=60)
                stack.enter_context(line)
                line.sendall(b"GET /health/liveness HTTP/1.1\r\nhost: x\r\n\r\n")
                assert b"200 OK" in line.recv(4096)
            assert ask(port, "/health/liveness") == (200, "ok")
            assert sum(map(is_closed, silent)) >= 60

    with_health(Flags(metrics_port=0, metrics_host="127.0.0.1"), play)


def start_control(tmp_path, *words):
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "lictor",
            "control",
            "--kubeconfig",
            tmp_path / "kubeconfig",
            *words,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_without_an_api_server_it_lives_waits_and_ends_when_told(tmp_path, number):
    port = free_port()
    process = start_control(tmp_path, f"--metricsPort={port}", "--metricsHost=127.0.0.1")
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                assert ask(port, "/health/liveness")[0] == 200
                break
            except OSError:
                assert time.monotonic() < deadline
                assert process.poll() is None, process.stdout.read()
                time.sleep(0.1)
        assert ask(port, "/health/readiness")[0] == 503
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_a_port_in_use_is_said_in_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start_control(tmp_path, f"--metricsPort={port}", "--metricsHost=127.0.0.1")
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Error: " in said
    assert "address already in use" in said
    assert "Traceback" not in said


def test_wrong_calls(tmp_path):
    process = start_control(tmp_path, "nonsense")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "Error: unknown controller 'nonsense'" in said
