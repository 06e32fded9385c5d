"""A real control plane for one run: etcd, kube-apiserver and kube-controller-manager."""

import atexit
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from control_plane.cluster import run_kubectl
from control_plane.credentials import (
    ADMIN,
    CONTROLLER_MANAGER,
    Authority,
    Pair,
    make_service_account_key,
    write_kubeconfig,
)
from control_plane.network import Network, make_folder, make_network
from control_plane.process import Process, start_process
from control_plane.programs import Programs

# Both versions of MutatingAdmissionPolicy are behind a gate in this release.
_RUNTIME_CONFIG = ",".join(
    f"admissionregistration.k8s.io/{version}=true" for version in ("v1beta1", "v1alpha1")
)
_FEATURES = "MutatingAdmissionPolicy=true"
_SERVICE_RANGE = "10.96.0.0/16"
_PATIENCE = 90.0


class ControlPlane:
    """The cluster of the tests that is as real as it gets without containers."""

    def __init__(self, programs: Programs, *, loopback: bool = False) -> None:
        self._programs = programs
        self._network = make_network(loopback=loopback)
        self.folder = make_folder()
        atexit.register(self.stop)
        self._ports = {
            name: self._network.port(usual)
            for name, usual in (("etcd", 2379), ("peers", 2380), ("api", 6443))
        }
        self._processes: dict[str, Process] = {}
        self._lictors: list[Process] = []
        self.address = self._network.address
        self.routes_services = bool(self._network.name)
        self.collects_garbage = programs.controller_manager is not None
        self._prepare_credentials()

    def _prepare_credentials(self) -> None:
        self._authority = Authority(self.folder)
        self._admin = self._authority.sign_client(*ADMIN)
        names = (self.address, "127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc")
        self._serving = self._authority.sign_server(names)
        self._account_key = make_service_account_key(self.folder)
        self.kubeconfig = self._write_kubeconfig("admin", self._admin)

    def _write_kubeconfig(self, name: str, user: Pair | str) -> Path:
        return write_kubeconfig(
            self.folder / f"{name}.kubeconfig",
            server=self.url,
            authority=self._authority.pair.certificate,
            user=user,
        )

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self._ports['api']}"

    @property
    def network(self) -> Network:
        """Where the programs run."""
        return self._network

    def start(self) -> "ControlPlane":
        """Start all programs; returns when the API answers and namespaces work."""
        try:
            self._start_etcd()
            self.start_api_server()
            if self._programs.controller_manager is not None:
                self._start_controller_manager(self._programs.controller_manager)
                self._wait(self._has_default_account, "the first service account")
        except BaseException:
            self.stop()
            raise
        return self

    def __enter__(self) -> "ControlPlane":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End everything and remove every trace; doing it twice does no harm."""
        atexit.unregister(self.stop)
        for process in self._lictors:
            process.kill()
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            if process := self._processes.pop(name, None):
                process.kill()
        self._network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str, program: Path, *flags: str) -> None:
        self._processes[name] = start_process(
            [str(program), *flags],
            name=name,
            log=self.folder / f"{name}.log",
            prefix=self._network.prefix,
            environment={"HOME": str(self.folder)},
        )

    def _start_etcd(self) -> None:
        clients, peers = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peers"))
        self._start(
            "etcd",
            self._programs.etcd,
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--log-level=error",
        )

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready."""
        issuer = "https://kubernetes.default.svc.cluster.local"
        self._start(
            "kube-apiserver",
            self._programs.api_server,
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            f"--secure-port={self._ports['api']}",
            f"--bind-address={'0.0.0.0' if self.routes_services else '127.0.0.1'}",
            f"--advertise-address={self._advertised()}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
            f"--client-ca-file={self._authority.pair.certificate}",
            f"--service-account-issuer={issuer}",
            f"--service-account-key-file={self._account_key}",
            f"--service-account-signing-key-file={self._account_key}",
            f"--service-cluster-ip-range={_SERVICE_RANGE}",
            f"--feature-gates={_FEATURES}",
            f"--runtime-config={_RUNTIME_CONFIG}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            # So the server itself finds the endpoints behind a Service: there is no kube-proxy.
            "--enable-aggregator-routing=true",
            "--profiling=false",
        )
        self._wait(self._is_ready, "the API server")

    def _advertised(self) -> str:
        # The server refuses to announce loopback; nobody follows this address there.
        return self.address if self.routes_services else "198.18.0.1"

    def _start_controller_manager(self, program: Path) -> None:
        user = self._authority.sign_client(*CONTROLLER_MANAGER)
        kubeconfig = self._write_kubeconfig("controller-manager", user)
        self._start(
            "kube-controller-manager",
            program,
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--service-account-private-key-file={self._account_key}",
            f"--root-ca-file={self._authority.pair.certificate}",
            f"--cluster-signing-cert-file={self._authority.pair.certificate}",
            f"--cluster-signing-key-file={self._authority.pair.key}",
            # As in a cluster made by kubeadm: each controller is a user of its own to policies.
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._network.port(10257)}",
            "--profiling=false",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
        )

    def stop_api_server(self, *, kill: bool = False) -> None:
        """Take the API server away, gently or at once."""
        process = self._processes.pop("kube-apiserver")
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

    def connect(self) -> httpx.Client:
        """A client with the administrator's rights; the caller closes it."""
        context = ssl.create_default_context(cafile=self._authority.pair.certificate)
        context.load_cert_chain(self._admin.certificate, self._admin.key)
        return httpx.Client(base_url=self.url, verify=context, timeout=30, trust_env=False)

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

    def start_lictor(self, *words: str, environment: dict[str, str] | None = None) -> Process:
        """Start `lictor WORDS` inside the network."""
        number = len(self._lictors)
        process = start_process(
            [sys.executable, "-m", "lictor", *words],
            name=f"lictor-{number}",
            log=self.folder / f"lictor-{number}.log",
            prefix=self._network.prefix,
            environment={"HOME": str(self.folder), **(environment or {})},
        )
        self._lictors.append(process)
        return process

    def port(self, usual: int) -> int:
        """A port for a server of ours."""
        return self._network.port(usual)

    def process(self, name: str) -> Process:
        """One of the programs, by its name, such as kube-apiserver."""
        return self._processes[name]

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
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise TimeoutError(f"{what} is not there after {_PATIENCE:.0f} s")

    def _check_running(self) -> None:
        for process in self._processes.values():
            if not process.is_running():
                raise RuntimeError(f"{process.name} ended:\n{process.read_log()}")
