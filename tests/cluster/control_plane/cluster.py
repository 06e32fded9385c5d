"""What a test may ask of a cluster, whichever kind it is: the suite is written against this."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import httpx2
from control_plane.process import Process


class Cluster(Protocol):
    """A Kubernetes API with lictor beside it. Tests take it from the fixture `cluster`."""

    kubeconfig: Path
    """The kubeconfig of the administrator, whose name is kubernetes-admin."""
    folder: Path
    """A folder for files of this run: logs, kubeconfigs."""
    address: str
    """The address on which a webhook server must listen so that the API server reaches it."""
    routes_services: bool
    """Whether the API server calls a webhook through its Service; else only by URL."""
    collects_garbage: bool
    """Whether owners, namespaces and Deployments are looked after by a controller manager."""

    @property
    def url(self) -> str:
        """Where the API server is."""

    def command(self, *words: str) -> list[str]:
        """The same command, so that it runs where the cluster's addresses are."""

    def kubectl(
        self, *words: str, stdin: str | None = None, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl as the administrator."""

    def connect(self) -> httpx2.Client:
        """A client of the API with the administrator's rights; the caller closes it."""

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        """A kubeconfig with a token of this service account."""

    def start_lictor(self, *words: str, environment: dict[str, str] | None = None) -> Process:
        """Start `lictor WORDS` beside the API server; it ends with the cluster at the latest."""

    def port(self, usual: int) -> int:
        """A port for a server of ours: the usual one where all ports are free."""

    def restart_api_server(self, *, away: float = 0, kill: bool = False) -> None:
        """Take the API server away for so many seconds, and wait until it is back."""


def run_kubectl(
    command: Sequence[str], kubeconfig: Path, *, stdin: str | None, check: bool
) -> "subprocess.CompletedProcess[str]":
    """Run kubectl with this kubeconfig; its complaint is in the error that is raised."""
    done = subprocess.run(
        [*command, "--kubeconfig", str(kubeconfig)],
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        words = " ".join(command)
        raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done
