"""One cluster with lictor in it, on which tests run one after the other."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from chainsaw.api import Api
from chainsaw.case import Case
from chainsaw.groups import Group, find_group, list_extra_roles
from chainsaw.janitor import Janitor
from chainsaw.runner import Result, Runner
from chainsaw.signed_images import SignedImages
from chainsaw.tools import write_tools
from control_plane.cluster import Cluster
from control_plane.install import Installation, install_lictor
from control_plane.manifests import apply_objects
from image_tools.loopback_registry import serve_registry
from image_tools.programs import CRANE, find_tool

PREFIX = "kyverno"
Say = Callable[[str], None]


@dataclass
class Session:
    """Runs tests and keeps the cluster as it was before each."""

    cluster: Cluster
    installation: Installation
    runner: Runner
    janitor: Janitor
    group: Group
    say: Say

    def run(self, cases: Sequence[Case]) -> Iterator[Result]:
        """Run tests in order; lictor is started anew where they want other flags."""
        for case in cases:
            note = self._prepare(find_group(case))
            result = self.runner.run(case)
            if not self._is_running():
                # First it must run again: while it is away its webhooks refuse every clean-up.
                note = f"{note} lictor ended: {self._read_last_words()}".strip()
                self._prepare(self.group)
            troubles = self.janitor.sweep()
            if troubles:
                self.say(f"left behind by {case.path}: {'; '.join(troubles)}")
            yield replace(result, reason=f"{result.reason} [{note}]") if note else result

    def _prepare(self, group: Group) -> str:
        """Lictor must run, and with these flags; says what had to be done for that."""
        running = self._is_running()
        if running and group == self.group:
            return ""
        self.group = group
        self.say(f"lictor with the flags of {group.name}: {' '.join(group.flags)}")
        self.installation.restart(group.flags)
        return "" if running else "lictor was not running and has been started again"

    def _is_running(self) -> bool:
        replicas = (*self.installation.replicas, *self.installation.controllers)
        return bool(replicas) and all(each.process.is_running() for each in replicas)

    def _read_last_words(self) -> str:
        replicas = (*self.installation.replicas, *self.installation.controllers)
        ended = [each.process for each in replicas if not each.process.is_running()]
        return " ".join(process.read_log(600) for process in ended)


@dataclass(frozen=True)
class Manner:
    """How a session behaves."""

    longest: float | None = None
    """No operation waits longer than this, in seconds."""
    delays: bool = False
    """Whether to wait before cleaning up where the settings say so."""
    controllers: Sequence[str] = ()
    """Controllers that run beside admission, such as background."""
    images: SignedImages | None = None
    """Images in a registry of our own, for tests that ask one."""


@contextmanager
def open_session(cluster: Cluster, group: Group, say: Say, manner: Manner) -> Iterator[Session]:
    """Lictor in a fresh cluster under Kyverno's names, and a runner beside it."""
    with _serve_images(cluster, manner.images):
        say(f"installing lictor with the flags of {group.name}: {' '.join(group.flags)}")
        installation = install_lictor(
            cluster, prefix=PREFIX, namespace=PREFIX, flags=group.flags, replicas=0
        )
        apply_objects(cluster, list_extra_roles())
        installation.start_replica()
        for name in manner.controllers:
            installation.start_controller(f"{name}-controller")
        with cluster.connect() as client:
            api = Api(client)
            runner = Runner(
                api,
                cluster.command,
                _make_environment(cluster),
                longest=manner.longest,
                delays=manner.delays,
                rewrite=manner.images.rewrite if manner.images else lambda body: body,
            )
            janitor = Janitor(api, PREFIX, PREFIX, runner.leave)
            janitor.remember()
            yield Session(cluster, installation, runner, janitor, group, say)
            installation.stop()


def _make_environment(cluster: Cluster) -> dict[str, str]:
    tools = write_tools(cluster.folder / "tools")
    return {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}",
        "HOME": str(cluster.folder),
    }


@contextmanager
def _serve_images(cluster: Cluster, images: SignedImages | None) -> Iterator[None]:
    """A registry inside the cluster's network."""
    if images is None:
        yield
        return
    port = cluster.port(5000)
    prefix = cluster.command()
    # In a network of its own it is reached from outside as well, which loopback alone is not.
    listen = f"0.0.0.0:{port}" if prefix else f"127.0.0.1:{port}"
    with serve_registry(find_tool(CRANE), listen, prefix):
        images.upload(f"{cluster.address}:{port}", f"localhost:{port}")
        # Lictor's processes inherit it: the Sigstore that stands for the public one.
        os.environ["TUF_ROOT"] = str(images.write_trust_root(cluster.folder / "sigstore"))
        yield
