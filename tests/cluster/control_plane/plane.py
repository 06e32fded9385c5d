"""A real control plane for one run: etcd, kube-apiserver and kube-controller-manager."""

import ssl
from pathlib import Path

import httpx2
from control_plane.credentials import (
    ADMIN,
    CONTROLLER_MANAGER,
    Authority,
    Pair,
    make_service_account_key,
    write_kubeconfig,
)
from control_plane.local import API_SERVER, LocalCluster
from control_plane.programs import Programs

# The previews of MutatingAdmissionPolicy are off by default; before 1.36 there is nothing else.
_RUNTIME_CONFIG = ",".join(
    f"admissionregistration.k8s.io/{version}=true" for version in ("v1beta1", "v1alpha1")
)
_FEATURES = "MutatingAdmissionPolicy=true"
_SERVICE_RANGE = "10.96.0.0/16"


class ControlPlane(LocalCluster):
    """The cluster of the tests that is as real as it gets without containers."""

    def __init__(self, programs: Programs, *, loopback: bool = False) -> None:
        super().__init__(loopback=loopback)
        self._programs = programs
        self._ports = {
            name: self._network.port(usual) for name, usual in (("etcd", 2379), ("peers", 2380))
        }
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

    def start_programs(self) -> None:
        """Start all; returns when the API answers and namespaces work."""
        self._start_etcd()
        self.start_api_server()
        if self._programs.controller_manager is not None:
            self._start_controller_manager(self._programs.controller_manager)
            self._wait(self._has_default_account, "the first service account")

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
            API_SERVER,
            self._programs.api_server,
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            f"--secure-port={self._port}",
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

    def connect(self) -> httpx2.Client:
        """A client with the administrator's rights; the caller closes it."""
        context = ssl.create_default_context(cafile=self._authority.pair.certificate)
        context.load_cert_chain(self._admin.certificate, self._admin.key)
        return httpx2.Client(base_url=self.url, verify=context, timeout=30, trust_env=False)
