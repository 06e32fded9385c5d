"""`lictor up` as people use it: it starts, enforces, ends, and comes back."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from lictor.cli.rim import run
from lictor.cluster.client import Client
from lictor.cluster.config import load_config
from lictor.cluster.resource import Resource
from lictor.errors import ApiError

ROOT = Path(__file__).parents[3]
POLICIES = ROOT / "examples" / "policies"
PODS = Resource("", "v1", "pods", "Pod")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
PATIENCE = 30.0


class Cluster:
    """A `lictor up` that runs."""

    def __init__(self, process, kubeconfig, told):
        self.process = process
        self.kubeconfig = kubeconfig
        self.told = told

    def ask(self, work):
        async def main():
            client = Client(load_config(str(self.kubeconfig)))
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(main())


@contextmanager
def up(folder, *words):
    kubeconfig = folder / "kubeconfig"
    process = subprocess.Popen(
        [sys.executable, "-m", "lictor", "up", f"--kubeconfig={kubeconfig}", "--port=0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Cluster(process, kubeconfig, process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


def list_descendants(pid):
    found = []
    for line in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(line), *list_descendants(int(line))]
    return found


def make_pod(name, **labels):
    metadata = {"name": name, "namespace": "default", "labels": labels}
    spec = {"containers": [{"name": "c", "image": "ghcr.io/acme/web"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_policies_are_in_force_when_it_says_so(tmp_path):
    with up(tmp_path, f"--policies={POLICIES}") as cluster:
        assert "with policies in force answers at https://127.0.0.1:" in cluster.told
        assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600

        async def work(client):
            with pytest.raises(ApiError, match="The label `team` must name the team"):
                await client.create(PODS, make_pod("refused"))
            return await client.create(PODS, make_pod("taken", team="a"))

        made = cluster.ask(work)
        assert made["spec"]["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
        children = list_descendants(cluster.process.pid)
        assert len(children) == 2
        began = time.monotonic()
    assert cluster.process.returncode == 0
    assert time.monotonic() - began < 10
    assert not cluster.kubeconfig.exists()
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_objects_and_keys_are_kept(tmp_path):
    data = tmp_path / "data"
    body = {"metadata": {"name": "kept", "namespace": "default"}, "data": {"a": "b"}}
    kubeconfigs = []
    for work in (
        lambda client: client.create(CONFIG_MAPS, body),
        lambda client: client.get(CONFIG_MAPS, "kept", "default"),
    ):
        with up(tmp_path, f"--data={data}", "--bare") as cluster:
            assert cluster.told.startswith("A Kubernetes API answers at")
            assert cluster.ask(work)["data"] == {"a": "b"}
        assert cluster.kubeconfig.exists()
        kubeconfigs.append(load_config(str(cluster.kubeconfig)))
    assert kubeconfigs[0].certificate == kubeconfigs[1].certificate
    assert stat.S_IMODE((data / "objects.db").stat().st_mode) == 0o600


def test_everything_ends_with_the_parent(tmp_path):
    with up(tmp_path) as cluster:
        children = list_descendants(cluster.process.pid)
        os.kill(cluster.process.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while any(Path(f"/proc/{pid}").exists() for pid in children):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_refused_policies_are_told(tmp_path):
    policy = (POLICIES / "team-label.yaml").read_text().replace("team: ", "^(team): ")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "bad.yaml").write_text(policy)
    with up(tmp_path, f"--policies={tmp_path / 'policies'}") as cluster:
        assert cluster.told
        cluster.process.send_signal(signal.SIGINT)
        _, told = cluster.process.communicate(timeout=PATIENCE)
    assert "bad.yaml:1: ClusterPolicy team-label: " in told
    assert "not in force" in told


def test_a_file_without_objects_is_an_error(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    words = ["up", f"--policies={tmp_path / 'empty.yaml'}"]
    done = subprocess.run(
        [sys.executable, "-m", "lictor", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "empty.yaml: no objects in there" in done.stderr


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        pytest.param(["--address=localhost"], "write an IP address", 2, id="a name"),
        pytest.param(["--policies=/nowhere"], "does not exist", 2, id="no policies"),
        pytest.param(["--port=99999"], "99999", 2, id="no such port"),
        pytest.param(["--address=192.0.2.1"], "cannot listen on 192.0.2.1", 2, id="not ours"),
    ],
)
def test_wrong_calls(words, told, code, capsys, tmp_path):
    assert run(["up", f"--kubeconfig={tmp_path / 'x'}", *words]) == code
    assert told in capsys.readouterr().err


def test_a_port_that_is_taken(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run(["up", f"--kubeconfig={tmp_path / 'x'}", f"--port={port}"]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_files_that_are_no_objects(capsys, tmp_path):
    (tmp_path / "list.yaml").write_text("- a\n")
    assert run(["up", f"--policies={tmp_path}", f"--kubeconfig={tmp_path / 'x'}"]) == 1
    assert "list.yaml:1: is no object of a cluster" in capsys.readouterr().err
