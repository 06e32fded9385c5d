"""What both kinds of cluster have in common: a network, a folder, and programs in them."""

import atexit
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx2
from control_plane.cluster import run_kubectl
from control_plane.credentials import Pair
from control_plane.network import Network, make_folder, make_network
from control_plane.process import Process, start_process

API_SERVER = "kube-apiserver"
_PATIENCE = 90.0


class LocalCluster:
    """Programs of this machine that are a cluster together; gone without a trace when stopped."""

    kubeconfig: Path
    # Whether objects go when their owner is gone.
    collects_garbage: bool

    def __init__(self, *, loopback: bool = False) -> None:
        self._network = make_network(loopback=loopback)
        self.folder = make_folder()
        atexit.register(self.stop)
        self._processes: dict[str, Process] = {}
        self._lictors: list[Process] = []
        self.address = self._network.address
        self.routes_services = bool(self._network.name)
        self._port = self._network.port(6443)

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self._port}"

    @property
    def network(self) -> Network:
        """Where the programs run."""
        return self._network

    def start(self) -> Self:
        """Start all programs; returns when the API answers and namespaces work."""
        try:
            self.start_programs()
        except BaseException:
            self.stop()
            raise
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_programs(self) -> None:
        """Each kind of cluster knows its own."""
        raise NotImplementedError

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready."""
        raise NotImplementedError

    def stop_api_server(self, *, kill: bool = False) -> None:
        """Take the API server away, gently or at once."""
        process = self._processes.pop(API_SERVER)
        if kill:
            process.kill()
        else:
            # It waits long for open watches; nothing is lost by not waiting.
            process.stop(patience=5)

    def restart_api_server(self, *, away: float = 0, kill: bool = False) -> None:
        """Take the API server away for so many seconds, and wait until it is back."""
        self.stop_api_server(kill=kill)
        time.sleep(away)
        self.start_api_server()

    def stop(self) -> None:
        """End everything and remove every trace; doing it twice does no harm."""
        atexit.unregister(self.stop)
        for process in (*self._lictors, *reversed(self._processes.values())):
            process.kill()
        self._processes.clear()
        self._network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self) -> httpx2.Client:
        """A client with the administrator's rights; the caller closes it."""
        raise NotImplementedError

    def command(self, *words: str) -> list[str]:
        """The same command, inside the network of the cluster."""
        return [*self._network.prefix, *words]

    def kubectl(
        self, *words: str, stdin: str | None = None, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl as the administrator."""
        command = self.command("kubectl", *words)
        return run_kubectl(command, self.kubeconfig, stdin=stdin, check=check)

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        """A kubeconfig with a token of this service account."""
        words = ("create", "token", service_account, "-n", namespace, "--duration=24h")
        token = self.kubectl(*words).stdout.strip()
        return self._write_kubeconfig(f"{namespace}.{service_account}", token)

    def _write_kubeconfig(self, name: str, user: Pair | str) -> Path:
        raise NotImplementedError

    def start_lictor(self, *words: str, environment: dict[str, str] | None = None) -> Process:
        """Start `lictor WORDS` inside the network."""
        number = len(self._lictors)
        process = start_process(
            [sys.executable, "-m", "lictor", *words],
            name=f"lictor-{number}",
            log=self.folder / f"lictor-{number}.log",
            prefix=self.lictor_prefix(words),
            environment={"HOME": str(self.folder), **(environment or {})},
        )
        self._lictors.append(process)
        return process

    def lictor_prefix(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """What stands before `lictor WORDS`."""
        return self._network.prefix

    def port(self, usual: int) -> int:
        """A port for a server of ours."""
        return self._network.port(usual)

    def process(self, name: str) -> Process:
        """One of the programs, by its name, such as kube-apiserver."""
        return self._processes[name]

    @property
    def processes(self) -> tuple[Process, ...]:
        """All programs of the cluster that run."""
        return tuple(self._processes.values())

    def _start(self, name: str, program: str | Path, *flags: str) -> None:
        self._processes[name] = start_process(
            [str(program), *flags],
            name=name,
            log=self.folder / f"{name}.log",
            prefix=self._network.prefix,
            environment={"HOME": str(self.folder)},
        )

    def _is_ready(self) -> bool:
        with self.connect() as client:
            return client.get("/readyz").status_code == 200

    def _has_default_account(self) -> bool:
        with self.connect() as client:
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            return client.get(path).status_code == 200

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            self._check_running()
            try:
                if is_there():
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(0.1)
        raise TimeoutError(f"{what} is not there after {_PATIENCE:.0f} s")

    def _check_running(self) -> None:
        for process in self._processes.values():
            if not process.is_running():
                raise RuntimeError(f"{process.name} ended:\n{process.read_log()}")
