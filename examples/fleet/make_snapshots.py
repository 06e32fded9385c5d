#!/usr/bin/env python3
"""Write snapshots of N made-up clusters with M objects each, as `kubectl get -A -o json` would.

    make_snapshots.py FOLDER [--clusters 1000] [--objects 100]

Each lies in FOLDER/CLUSTER/objects.json. The same ones every time; standard library only.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

NAMESPACES = ("shop", "search", "billing", "monitoring")
IMAGES = ("nginx:1.27", "nginx:latest", "redis", "ghcr.io/acme/app:v3", "registry.k8s.io/pause:3.9")
HARDENED = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def make_objects(count: int, choose: random.Random) -> Iterator[dict[str, object]]:
    """Namespaces, then Pods in them; about a third of the Pods is not as it should be."""
    for name in NAMESPACES:
        metadata = {"name": name, "labels": {"team": choose.choice(("a", "b"))}}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    for number in range(max(count - len(NAMESPACES), 0)):
        containers = [
            {
                "name": f"c{index}",
                "image": choose.choice(IMAGES),
                "securityContext": choose.choice(({}, HARDENED, HARDENED)),
                "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "100m"}},
            }
            for index in range(1 + number % 3)
        ]
        metadata = {
            "name": f"pod-{number}",
            "namespace": choose.choice(NAMESPACES),
            "labels": choose.choice(({}, {"app.kubernetes.io/name": "x", "team": "a"})),
            "uid": f"{choose.getrandbits(64):016x}",
        }
        spec = {"containers": containers, "nodeName": f"node-{number % 9}"}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def main() -> None:
    """Write them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--objects", type=int, default=100)
    given = parser.parse_args()
    for number in range(given.clusters):
        folder = given.folder / f"cluster-{number:04}"
        folder.mkdir(parents=True, exist_ok=True)
        items = list(make_objects(given.objects, random.Random(number)))
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        (folder / "objects.json").write_text(json.dumps(listed, indent=1))


if __name__ == "__main__":
    main()
