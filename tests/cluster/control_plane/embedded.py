"""The cluster inside lictor: its API server alone, as `lictor up --bare` runs it."""

import ssl
import sys
from base64 import b64decode
from pathlib import Path

import httpx2
import yaml
from control_plane.credentials import Pair, write_kubeconfig
from control_plane.local import API_SERVER, LocalCluster


class EmbeddedCluster(LocalCluster):
    """Objects are kept in a file, so that they are there again after a restart."""

    collects_garbage = True

    def __init__(self, *, loopback: bool = False) -> None:
        super().__init__(loopback=loopback)
        self._made = self.folder / "data" / "kubeconfig"
        self.client_authority = self._authority = self.folder / "ca.crt"
        self._admin = Pair(self.folder / "admin.crt", self.folder / "admin.key")

    def start_programs(self) -> None:
        """Start the API server; its controllers are in it."""
        self.start_api_server()
        self._wait(self._has_default_account, "the first service account")

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready."""
        self._start(
            API_SERVER,
            sys.executable,
            "-m",
            "lictor",
            "up",
            "--bare",
            f"--data={self._made.parent}",
            f"--address={self.address}",
            f"--port={self._port}",
        )
        self._wait(self._made.exists, "the kubeconfig")
        self._read_kubeconfig()
        self._wait(self._is_ready, "the API server")

    def connect(self) -> httpx2.Client:
        """A client with the administrator's rights; the caller closes it."""
        context = ssl.create_default_context(cafile=self._authority)
        context.load_cert_chain(self._admin.certificate, self._admin.key)
        return httpx2.Client(base_url=self.url, verify=context, timeout=30, trust_env=False)

    def _read_kubeconfig(self) -> None:
        config = yaml.safe_load(self._made.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        for path, encoded in (
            (self._authority, cluster["certificate-authority-data"]),
            (self._admin.certificate, user["client-certificate-data"]),
            (self._admin.key, user["client-key-data"]),
        ):
            path.write_bytes(b64decode(encoded))
        self.kubeconfig = self._write_kubeconfig("admin", self._admin)

    def _write_kubeconfig(self, name: str, user: Pair | str) -> Path:
        path = self.folder / f"{name}.kubeconfig"
        return write_kubeconfig(path, server=self.url, authority=self._authority, user=user)
