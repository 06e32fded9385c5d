"""A shell in which the words of a guide can be typed, and what the guides leave to their readers."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from background_site import Site


def build_policy(name: str, rule: Any, **spec: Any) -> Any:
    """A policy around a part that a guide shows alone."""
    usual = {"name": name, "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {**spec, "rules": [{**usual, **rule}]},
    }


def build_pod(name: str, namespace: str = "default", **container: Any) -> Any:
    usual = {
        "name": "web",
        "image": "registry.internal/web:1.0",
        "securityContext": {"readOnlyRootFilesystem": True},
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{**usual, **container}]},
    }


@dataclass(frozen=True)
class Guide:
    """A cluster and a folder in which the words of a guide can be typed."""

    site: Site
    folder: Path

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a line in a shell, where `kyverno` is lictor."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        known = {**os.environ, "PATH": path, "KUBECONFIG": str(self.site.plane.kubeconfig)}
        return subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=known,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def write(self, name: str, body: Any) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(body, sort_keys=False))

    def create(self, body: Any) -> subprocess.CompletedProcess[str]:
        words = ("create", "--validate=strict", "-f", "-")
        return self.site.plane.kubectl(*words, stdin=json.dumps(body), check=False)


def open_shell(site: Site, folder: Path) -> Guide:
    """A folder with a program of its own that is called kyverno."""
    kyverno = folder / "bin" / "kyverno"
    kyverno.parent.mkdir()
    kyverno.write_text(f'#!/bin/sh\nexec {sys.executable} -m lictor "$@"\n')
    kyverno.chmod(0o755)
    return Guide(site, folder)
