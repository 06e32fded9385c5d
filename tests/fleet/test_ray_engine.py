"""`apply --engine ray` on a real Ray: what one machine says, in its order, whoever dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

POLICIES = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: team}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [Pod], namespaceSelector: {matchLabels: {strict: "yes"}}}}]}
    validate:
      message: no team
      pattern: {metadata: {labels: {team: "?*"}}}
  - name: image
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: latest is no version
      pattern: {spec: {containers: [{image: "!*:latest"}]}}
"""
# Enough for a dozen tasks.
PODS = 20_000
PADDING = "x" * 400


def pod(number):
    team = f"team: t{number % 4}" if number % 3 else ""
    image = "nginx:latest" if number % 5 == 0 else "nginx:1.27"
    notes = f"annotations: {{note: {PADDING}}}"
    head = f"metadata: {{name: pod-{number}, namespace: a, labels: {{{team}}}, {notes}}}"
    body = f"spec: {{containers: [{{name: c, image: '{image}'}}]}}"
    return f"---\napiVersion: v1\nkind: Pod\n{head}\n{body}\n"


SPACE = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {strict: 'yes'}}\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """One large file, and the same in snapshots of ten clusters."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "policy.yaml").write_text(POLICIES)
    (folder / "pods.yaml").write_text("".join(map(pod, range(PODS))) + SPACE)
    for cluster in range(10):
        snapshot = folder / "snapshots" / f"c{cluster}"
        snapshot.mkdir(parents=True)
        (snapshot / "pods.yaml").write_text(
            "".join(map(pod, range(cluster * 50, cluster * 50 + 50)))
        )
        (snapshot / "spaces.yaml").write_text(SPACE if cluster % 2 else SPACE.replace("yes", "no"))
    return folder


def start(folder, *arguments, environment=None):
    return subprocess.Popen(
        [sys.executable, "-m", "lictor", "apply", "policy.yaml", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def apply(folder, *arguments, environment=None):
    process = start(folder, *arguments, environment=environment)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def test_ray_of_this_machine_alone(ray_program, inputs):
    plain = apply(inputs, "-r", "pods.yaml")
    by_ray = apply(inputs, "-r", "pods.yaml", "--engine", "ray", "--parallel", "2")
    assert by_ray == plain
    assert plain[0] == 1
    assert f"fail: {PODS // 3 + 1 + PODS // 5}," in plain[1]


@pytest.mark.parametrize("form", [("--output-format", "sarif"), ("--table",), ("--failed-only",)])
def test_a_cluster_of_ray_says_the_same(cluster, inputs, form):
    plain = apply(inputs, "-r", "pods.yaml", *form)
    assert by_cluster(cluster, inputs, "-r", "pods.yaml", *form) == plain


def by_cluster(cluster, folder, *arguments):
    return apply(folder, "--engine", cluster.address, *arguments, environment=cluster.environment)


def test_clusters_from_paths(cluster, inputs):
    arguments = ("-r", "snapshots", "--cluster-from", "snapshots/{cluster}/*.yaml")
    plain = apply(inputs, *arguments)
    assert by_cluster(cluster, inputs, *arguments) == plain
    assert "cluster c1:" in plain[1]


def test_a_worker_killed_in_the_middle_changes_nothing(cluster, inputs):
    plain = apply(inputs, "-r", "pods.yaml")
    (code, out, err), killed = apply_and_kill(cluster, inputs, at_most=1)
    assert killed == 1
    assert (code, out) == plain[:2]
    assert "workers that died: 1; what they had begun was done again" in err


def test_a_run_that_loses_all_its_workers_ends_with_an_error(cluster, inputs):
    (code, _, err), _ = apply_and_kill(cluster, inputs, at_most=1000)
    assert code == 1
    assert "3 workers died over it" in err
    assert "pods.yaml:" in err


def apply_and_kill(cluster, folder, at_most):
    """Kill workers that judge, as long as the run lasts."""
    process = start(
        folder, "-r", "pods.yaml", "--engine", cluster.address, environment=cluster.environment
    )
    killed = set()

    def kill():
        while process.poll() is None and len(killed) < at_most:
            for worker in set(cluster.list_workers()) - killed:
                if len(killed) < at_most:
                    killed.add(worker)
                    os.kill(worker, signal.SIGKILL)
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    out, err = process.communicate(timeout=300)
    killer.join()
    return (process.returncode, out, err), len(killed)


class QuietHandler(SimpleHTTPRequestHandler):
    """Says nothing."""

    def log_message(self, *_):
        pass


def test_http(cluster, inputs):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(inputs)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/pods.yaml?signature=secret"
    try:
        code, out, err = by_cluster(cluster, inputs, "-r", url)
        _, _, missing = by_cluster(cluster, inputs, "-r", url.replace("pods", "none"))
    finally:
        server.shutdown()
        server.server_close()
    assert (code, out) == (1, apply(inputs, "-r", "pods.yaml")[1])
    assert "secret" not in out + err + missing
    assert "could not be fetched" in missing


def test_s3(ray_program, inputs):
    """A store on loopback that speaks S3; the workers find it by their environment."""
    moto = pytest.importorskip(
        "moto.server", reason="S3 is tested with moto: pip install 'moto[server]' s3fs"
    )
    pytest.importorskip("s3fs", reason="S3 is read by s3fs: pip install s3fs")
    import fsspec

    server = moto.ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "hidden-key",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    arguments = ("--cluster-from", "snapshots/{cluster}/*.yaml", "--output-format", "jsonl")
    try:
        store = fsspec.filesystem(
            "s3", endpoint_url=given["AWS_ENDPOINT_URL"], key="key", secret="hidden-key"
        )
        store.mkdir("bucket")
        store.put(str(inputs / "snapshots"), "bucket/snapshots", recursive=True)
        stored = apply(
            inputs,
            *("-r", "s3://bucket/snapshots", "--engine", "ray", "--parallel", "2", *arguments),
            environment={**os.environ, **given},
        )
    finally:
        server.stop()
    plain = apply(inputs, "-r", "snapshots", *arguments)
    assert stored[0] == plain[0] == 1
    assert read_rows(stored[1]) == read_rows(plain[1])
    assert "hidden-key" not in stored[1] + stored[2]


def read_rows(text):
    rows = [json.loads(line) for line in text.splitlines()]
    return [{name: row[name] for name in row if name != "time"} for row in rows]


def test_a_cluster_that_is_not_there(ray_program, inputs):
    code, _, err = apply(inputs, "-r", "pods.yaml", "--engine", "ray://127.0.0.1:1")
    assert code == 1
    assert "no Ray cluster could be reached there" in err
