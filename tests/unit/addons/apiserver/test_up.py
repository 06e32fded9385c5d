"""`lictor up` as people use it: it starts, enforces, ends, and comes back."""

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
import yaml

from lictor.addons.apiserver.up.credentials import (
    Credentials,
    hold_kubeconfig,
    remove_kubeconfig,
    write_admin_kubeconfig,
)
from lictor.cli.exit_codes import run
from lictor.core.errors import ApiError, UsageError
from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import Resource

ROOT = Path(__file__).parents[4]
POLICIES = ROOT / "examples" / "policies"
PODS = Resource("", "v1", "pods", "Pod")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CLEANUPS = Resource("kyverno.io", "v2", "cleanuppolicies", "CleanupPolicy")
EXCEPTIONS = Resource("kyverno.io", "v2", "policyexceptions", "PolicyException")
CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
PATIENCE = 120.0


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


def wait_until_gone(pids):
    deadline = time.monotonic() + PATIENCE
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(pid):
    """Nobody may have asked yet how an orphan ended; it has ended all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def make_pod(name, **labels):
    metadata = {"name": name, "namespace": "default", "labels": labels}
    spec = {"containers": [{"name": "c", "image": "ghcr.io/acme/web"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_policies_are_in_force_when_it_says_so(tmp_path):
    with up(tmp_path, f"--policies={POLICIES}") as cluster:
        assert "with 5 policies in force answers at https://127.0.0.1:" in cluster.told
        assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600

        async def work(client):
            with pytest.raises(ApiError, match="The label `team` must name the team"):
                await client.create(PODS, make_pod("refused"))
            return await client.create(PODS, make_pod("taken", team="a"))

        made = cluster.ask(work)
        assert made["spec"]["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
        children = list_descendants(cluster.process.pid)
        # Beside them there may be processes in which policies are tried.
        assert len(children) >= 2
        began = time.monotonic()
    assert cluster.process.returncode == 0
    assert time.monotonic() - began < 60
    assert not cluster.kubeconfig.exists()
    wait_until_gone(children)


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
        wait_until_gone(children)


def test_refused_policies_are_told(tmp_path):
    policy = (POLICIES / "team-label.yaml").read_text().replace("team: ", "^(team): ")
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "bad.yaml").write_text(policy)
    with up(tmp_path, f"--policies={tmp_path / 'policies'}") as cluster:
        assert cluster.told
        cluster.process.send_signal(signal.SIGINT)
        _, told = cluster.process.communicate(timeout=PATIENCE)
    assert "with 0 of 1 policy in force" in cluster.told
    assert "bad.yaml:1: ClusterPolicy team-label: " in told
    assert "not in force" in told


def test_a_cluster_whose_api_server_dies_ends_with_a_sentence(tmp_path):
    with up(tmp_path, "--bare") as cluster:
        (server,) = list_descendants(cluster.process.pid)
        os.kill(server, signal.SIGKILL)
        _, told = cluster.process.communicate(timeout=PATIENCE)
    assert cluster.process.returncode == 1
    assert told.splitlines()[-1] == "Error: the API server ended, so lictor up ended too"


BINDING = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: binding}
spec:
  rules:
  - name: bind
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: rbac.authorization.k8s.io/v1
      kind: RoleBinding
      name: view
      namespace: "{{ request.object.metadata.name }}"
      data:
        roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
"""


def test_policies_that_need_more_rights(tmp_path):
    for name in ("first", "second"):
        text = BINDING.replace("name: binding", f"name: {name}")
        (tmp_path / f"{name}.yaml").write_text(text)
    files = [str(tmp_path / "first.yaml"), str(tmp_path / "second.yaml")]
    data = f"--data={tmp_path / 'data'}"
    with up(tmp_path, data, "--grant-all", "--policies", *files) as cluster:
        assert "with 2 policies in force" in cluster.told
    shutil.rmtree(tmp_path / "data")
    with up(tmp_path, data, "--policies", *files) as cluster:
        assert "with 0 of 2 policies in force" in cluster.told
        cluster.process.send_signal(signal.SIGINT)
        _, told = cluster.process.communicate(timeout=PATIENCE)
    assert "--grant-all" in told


def start(*words):
    """`lictor up` that ends by itself, as it cannot begin."""
    command = [sys.executable, "-m", "lictor", "up", "--port=0", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_the_second_is_told_of_the_first(tmp_path):
    data = tmp_path / "data"
    with up(tmp_path, f"--data={data}", "--bare") as cluster:
        before = cluster.kubeconfig.read_bytes()
        same_folder = start(f"--data={data}", "--bare", f"--kubeconfig={tmp_path / 'other'}")
        same_file = start("--bare", f"--kubeconfig={cluster.kubeconfig}")
        for done, what in ((same_folder, data), (same_file, cluster.kubeconfig)):
            assert done.returncode == 2
            assert f"{what} is used by process {cluster.process.pid} (" in done.stderr
            assert "lictor up" in done.stderr
        assert cluster.kubeconfig.read_bytes() == before
        assert not (tmp_path / "other").exists()
        assert cluster.ask(lambda client: client.get(NAMESPACES, "default"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "kubeconfig"]
    assert not (data / "lock").exists()


EXCEPTION = {
    "apiVersion": "kyverno.io/v2",
    "kind": "PolicyException",
    "metadata": {"name": "free", "namespace": "default"},
    "spec": {
        "exceptions": [{"policyName": "team-label", "ruleNames": ["*"]}],
        "match": {"any": [{"resources": {"kinds": ["Pod"], "names": ["free"]}}]},
    },
}
CLEANUP = {
    "apiVersion": "kyverno.io/v2",
    "kind": "CleanupPolicy",
    "metadata": {"name": "tidy", "namespace": "default"},
    "spec": {
        "schedule": "0 0 1 1 *",
        "match": {"any": [{"resources": {"kinds": ["Secret"]}}]},
    },
}
RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {
        "name": "tidy",
        "labels": {"rbac.kyverno.io/aggregate-to-cleanup-controller": "true"},
    },
    "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "delete"]}],
}


def test_a_cluster_that_comes_back_judges_again(tmp_path):
    """The second start finds webhook configurations that lead to a port of the first."""
    words = [f"--data={tmp_path / 'data'}", f"--policies={POLICIES}"]
    # The policies are stored: the third start needs no files.
    for pod, given in (("first", words), ("second", words), ("third", words[:1])):
        with up(tmp_path, *given) as cluster:
            assert "with 5 policies in force" in cluster.told

            async def work(client, pod=pod):
                with pytest.raises(ApiError, match="The label `team` must name the team"):
                    await client.create(PODS, make_pod("refused"))
                await client.create(PODS, make_pod(pod, team="a"))

            cluster.ask(work)
            cluster.process.send_signal(signal.SIGINT)
            _, told = cluster.process.communicate(timeout=PATIENCE)
        assert "Error" not in told
        assert "is not ready" not in told


def test_names_and_flags_of_kyverno(tmp_path):
    flags = ("enablePolicyException=true", "exceptionNamespace=default", "metricsPort=0")
    words = ("--prefix=kyverno", *(f"--flag={flag}" for flag in flags))
    with up(tmp_path, f"--policies={POLICIES}", *words) as cluster:
        assert "5 policies in force" in cluster.told
        told = [cluster.process.stdout.readline() for _ in range(8)]
        [page] = [line.split()[1] for line in told if "/metrics" in line]
        [address] = [line.split()[-1] for line in told if "Web UI" in line]

        async def work(client):
            await client.get(SERVICE_ACCOUNTS, "kyverno-admission-controller", "kyverno")
            with pytest.raises(ApiError, match="aggregate-to-cleanup-controller"):
                await client.create(CLEANUPS, CLEANUP)
            await client.create(CLUSTER_ROLES, RIGHTS)
            await retry(lambda: client.create(CLEANUPS, CLEANUP))
            await client.create(EXCEPTIONS, EXCEPTION)
            await retry(lambda: client.create(PODS, make_pod("free")))

        cluster.ask(work)
        assert "kyverno_admission_requests_total" in httpx2.get(page, trust_env=False).text
        base, _, key = address.partition("/?key=")
        assert httpx2.get(base, trust_env=False, timeout=30).status_code == 401
        known = {"authorization": f"Bearer {key}"}
        assert "Overview" in httpx2.get(base, headers=known, trust_env=False).text


async def retry(ask):
    """What follows from another object may come a moment later."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except ApiError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


# --- files that are not ours, or broken


@pytest.mark.parametrize(
    ("content", "is_ours"),
    [
        ("", True),
        ("kind: Config\nclusters: [{name: lictor}]\nusers: [{name: lictor-admin}]\n", True),
        ("kind: Config\nclusters: [{name: prod}]\nusers: [{name: me}]\n", False),
        (
            "kind: Config\nclusters: [{name: lictor}, {name: prod}]\n"
            "users: [{name: lictor-admin}, {name: me}]\n",
            False,
        ),
        ("notes: [", False),
        ("a diary\n", False),
    ],
)
def test_kubeconfigs_of_others_are_left_alone(tmp_path, content, is_ours):
    file = tmp_path / "config"
    file.write_text(content)
    if is_ours:
        with hold_kubeconfig(file):
            pass
    else:
        with pytest.raises(UsageError, match="was not written by lictor up"), hold_kubeconfig(file):
            pass
    assert file.read_text() == content
    assert list(tmp_path.iterdir()) == [file]


def make_credentials(authority="ca"):
    return Credentials(authority, "", "", "", "", "", (), datetime.now(UTC))


def test_a_kubeconfig_is_private_whatever_was_there(tmp_path):
    file, elsewhere = tmp_path / "config", tmp_path / "elsewhere"
    file.write_text("")
    file.chmod(0o666)
    write_admin_kubeconfig(file, "https://127.0.0.1:1", make_credentials())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    elsewhere.write_text("other")
    file.unlink()
    file.symlink_to(elsewhere)
    with pytest.raises(UsageError, match="symbolic link"), hold_kubeconfig(file):
        pass
    # Where it became a link after the check, the link is replaced and not followed.
    write_admin_kubeconfig(file, "https://127.0.0.1:1", make_credentials())
    assert elsewhere.read_text() == "other"
    assert not file.is_symlink()


def test_only_our_own_kubeconfig_is_removed(tmp_path):
    file = tmp_path / "config"
    write_admin_kubeconfig(file, "https://127.0.0.1:1", make_credentials("another"))
    remove_kubeconfig(file, make_credentials())
    assert file.exists()
    remove_kubeconfig(file, make_credentials("another"))
    assert not file.exists()


def test_merged_kubeconfigs_keep_their_names_apart(tmp_path):
    write_admin_kubeconfig(tmp_path / "config", "https://127.0.0.1:1", make_credentials())
    content = yaml.safe_load((tmp_path / "config").read_text())
    [user], [cluster] = content["users"], content["clusters"]
    # What kubeadm, kind and minikube call theirs.
    assert user["name"] not in ("kubernetes-admin", "admin", "default", "minikube")
    assert cluster["name"] not in ("kubernetes", "default", "minikube")


def break_key(file):
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "key": "no key"}))


BROKEN = [
    ("objects.db", lambda file: file.write_bytes(b"x" * 9000), "begin with an empty cluster"),
    ("objects.db", lambda file: file.write_bytes(b""), "begin with an empty cluster"),
    ("credentials.json", lambda file: file.write_text('{"a":'), "new keys are made"),
    ("credentials.json", lambda file: (file.unlink(), file.mkdir()), "new keys are made"),
    ("credentials.json", break_key, "new keys are made"),
]


def test_broken_files_are_named(tmp_path):
    data = tmp_path / "data"
    with up(tmp_path, f"--data={data}", "--bare"):
        pass
    for number, (name, harm, advice) in enumerate(BROKEN):
        folder = tmp_path / str(number)
        shutil.copytree(data, folder)
        harm(folder / name)
        done = start(f"--data={folder}", "--bare")
        assert done.returncode == 1, name
        assert f"{folder / name}: " in done.stderr
        assert advice in done.stderr
        assert "Traceback" not in done.stderr


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
        pytest.param(["--flag=v"], "write NAME=VALUE", 2, id="no value"),
        pytest.param(
            ["--flag=webhookTimeot=3"], "did you mean webhookTimeout", 2, id="no such flag"
        ),
        pytest.param(["--flag=serverIP=1"], "cannot be set here", 2, id="a flag of ours"),
        pytest.param(["--flag=backgroundScanInterval=often"], "a duration", 2, id="no duration"),
        pytest.param(["--prefix=Kyverno"], "lower case letters", 2, id="no prefix"),
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


TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policy.yaml]
resources: [pod.yaml]
results:
- {policy: team, rule: known, kind: Pod, resources: [web], result: pass}
"""
TEAM = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: team}
spec:
  rules:
  - name: known
    match: {any: [{resources: {kinds: [Pod]}}]}
    context:
    - name: teams
      configMap: {name: teams, namespace: default}
    validate:
      message: the team is not known
      deny:
        conditions:
          all:
          - {key: "{{ request.object.metadata.labels.team }}", operator: NotEquals, value: "{{ teams.data.name }}"}
"""


def test_tests_look_up_the_cluster_of_a_kubeconfig(tmp_path, capsys):
    folder = tmp_path / "tests"
    folder.mkdir()
    pod = yaml.safe_dump(make_pod("web", team="red"))
    for name, text in (("kyverno-test", TEST), ("policy", TEAM), ("pod", pod)):
        (folder / f"{name}.yaml").write_text(text)
    body = {"metadata": {"name": "teams", "namespace": "default"}, "data": {"name": "red"}}
    with up(tmp_path, "--bare") as cluster:
        cluster.ask(lambda client: client.create(CONFIG_MAPS, body))
        assert run(["test", str(folder), f"--kubeconfig={cluster.kubeconfig}"]) == 0
    assert run(["test", str(folder)]) == 1
    assert "1 tests failed" in capsys.readouterr().out
