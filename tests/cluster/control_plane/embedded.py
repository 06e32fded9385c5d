"""The cluster inside lictor: its API server alone, as `lictor up --bare` runs it."""

import ssl
import sys
from base64 import b64decode
from pathlib import Path

import httpx
import yaml
from control_plane.credentials import Pair, write_kubeconfig
from control_plane.local import API_SERVER, LocalCluster


class EmbeddedCluster(LocalCluster):
    """Objects are kept in a file, so that they are there again after a restart."""

    collects_garbage = True

    def __init__(self, *, loopback: bool = False) -> None:
        super().__init__(loopback=loopback)
        self.kubeconfig = self.folder / "admin.kubeconfig"

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
            f"--data={self.folder / 'data'}",
            f"--kubeconfig={self.kubeconfig}",
            f"--address={self.address}",
            f"--port={self._port}",
        )
        self._wait(self.kubeconfig.exists, "the kubeconfig")
        self._wait(self._is_ready, "the API server")

    def connect(self) -> httpx.Client:
        """A client with the administrator's rights; the caller closes it."""
        authority, token = self._read_credentials()
        context = ssl.create_default_context(cadata=authority)
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.url, headers=headers, verify=context, timeout=30, trust_env=False
        )

    def _read_credentials(self) -> tuple[str, str]:
        config = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
        return b64decode(authority).decode(), config["users"][0]["user"]["token"]

    def _write_kubeconfig(self, name: str, user: Pair | str) -> Path:
        authority = self.folder / "authority.crt"
        authority.write_text(self._read_credentials()[0], encoding="ascii")
        path = self.folder / f"{name}.kubeconfig"
        return write_kubeconfig(path, server=self.url, authority=authority, user=user)
