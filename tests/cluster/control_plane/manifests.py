"""Objects into a cluster: server-side apply without kubectl, and what `lictor install` prints."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import httpx2
from control_plane.cluster import Cluster

Object = dict[str, Any]
# What others stand on comes first.
_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount")
_APPLY = {"Content-Type": "application/apply-patch+yaml"}


def print_manifests(*words: str) -> list[Object]:
    """What `lictor WORDS --format json` prints, such as `install` or `crds`."""
    return list(json.loads(run_lictor(*words, "--format", "json"))["items"])


def run_lictor(*words: str) -> str:
    """What a command of lictor prints."""
    done = subprocess.run(
        [sys.executable, "-m", "lictor", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if done.returncode:
        raise RuntimeError(f"lictor {' '.join(words)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def apply_objects(cluster: Cluster, objects: Iterable[Object]) -> None:
    """Apply these objects on the server's side, those that others need first."""
    ordered = sorted(objects, key=lambda body: _rank(body["kind"]))
    with cluster.connect() as client:
        known: dict[str, dict[str, Object]] = {}
        for body in ordered:
            version = body["apiVersion"]
            if version not in known:
                known[version] = _discover(client, version)
            _apply(client, known[version][body["kind"]], body)


def _rank(kind: str) -> int:
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _discover(client: httpx2.Client, version: str) -> dict[str, Object]:
    answer = client.get(_root(version))
    answer.raise_for_status()
    return {each["kind"]: each for each in answer.json()["resources"] if "/" not in each["name"]}


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _apply(client: httpx2.Client, resource: Object, body: Object) -> None:
    metadata = body["metadata"]
    inside = f"/namespaces/{metadata.get('namespace', 'default')}" if resource["namespaced"] else ""
    path = f"{_root(body['apiVersion'])}{inside}/{resource['name']}/{metadata['name']}"
    answer = client.patch(
        f"{path}?fieldManager=tests&force=true", content=json.dumps(body), headers=_APPLY
    )
    if not answer.is_success:
        raise RuntimeError(f"{body['kind']} {metadata['name']}: {answer.text}")
