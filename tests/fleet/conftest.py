"""Tests on a real Ray: run when asked for.

    LICTOR_RAY_TESTS=1 pytest tests/fleet        or just        pytest tests/fleet

`pytest` on everything leaves this folder out: Ray starts a dozen processes. Where Ray is missing, one
line says what to install.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ASKED = "LICTOR_RAY_TESTS"
START_SECONDS = 120


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out unless it was named, by the variable or on the command line."""
    if os.environ.get(ASKED) == "1" or HERE not in collection_path.parents:
        return None
    named = (Path(str(word).partition("::")[0]).absolute() for word in config.args)
    return None if any(path == HERE or HERE in path.parents for path in named) else True


@pytest.fixture(scope="session")
def ray_program() -> str:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'lictor[ray]'")
    return str(Path(sys.executable).with_name("ray"))


def find_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class RayCluster:
    """A cluster of one machine, with two workers."""

    def __init__(self, address: str, head: int, environment: dict[str, str]) -> None:
        self.address = address
        self.head = head
        self.environment = environment

    def list_workers(self) -> list[int]:
        """The processes that judge now."""
        found = subprocess.run(
            ["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
        )
        rows = [line.split(None, 2) for line in found.stdout.splitlines()[1:]]
        parents = {int(pid): int(parent) for pid, parent, _ in rows}
        judging = [int(pid) for pid, _, name in rows if "_JudgeActor.judge" in name]
        return [worker for worker in judging if self._holds(worker, parents)]

    def _holds(self, process: int, parents: dict[int, int]) -> bool:
        while process and process != self.head:
            process = parents.get(process, 0)
        return process == self.head


@pytest.fixture(scope="session")
def cluster(ray_program: str) -> Iterator[RayCluster]:
    """Ends with the tests, by the process that was started and no other."""
    # The names of Ray's sockets have a limit, which pytest's folders pass.
    folder = tempfile.mkdtemp(prefix="rt", dir="/tmp")
    port = find_port()
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    head = subprocess.Popen(
        [ray_program, "start", "--head", "--port=0", f"--ray-client-server-port={port}", "--num-cpus=2",
         "--include-dashboard=false", f"--temp-dir={folder}", "--block"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        address = f"ray://127.0.0.1:{port}"
        wait_for_cluster(address, port, head, environment)
        yield RayCluster(address, head.pid, environment)
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_cluster(
    address: str, port: int, head: "subprocess.Popen[bytes]", environment: dict[str, str]
) -> None:
    """The port is open before anybody can be served there."""
    deadline = time.monotonic() + START_SECONDS
    asking = [sys.executable, "-c", f"import ray; ray.init({address!r}).disconnect()"]
    while time.monotonic() < deadline and head.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            is_open = probe.connect_ex(("127.0.0.1", port)) == 0
        asked = is_open and subprocess.run(
            asking, env=environment, capture_output=True, check=False
        )
        if asked and not asked.returncode:
            return
        time.sleep(0.2)
    pytest.fail("Ray did not start")
