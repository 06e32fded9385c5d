"""Policies in a cluster ask private registries with the Secrets that are theirs, and no others."""

import asyncio
import http.server
import json
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import ClassVar

import pytest
from control_plane.cluster import Cluster

from lictor.core.errors import ConflictError, LookupFailedError
from lictor.core.ports import RegistryAccess
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import NAMESPACE, SECRET
from lictor.lookups.lookups import ClusterLookups

_CONFIG = b'{"config": {"User": "1000"}}'
_MANIFEST = json.dumps(
    {"config": {"digest": f"sha256:{sha256(_CONFIG).hexdigest()}"}, "layers": []}
).encode()


class _PrivateRegistry(http.server.BaseHTTPRequestHandler):
    """One image, shown to whoever has a password; the users who had one are noted."""

    protocol_version = "HTTP/1.1"
    users: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        said = self.headers.get("authorization", "")
        if not said:
            self._reply(401, b"{}")
            return
        self.users.append(said)
        self._reply(200, _CONFIG if "/blobs/" in self.path else _MANIFEST)

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="private"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    _PrivateRegistry.users.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _PrivateRegistry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"localhost:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@asynccontextmanager
async def _ready(cluster: Cluster, registry: str) -> AsyncIterator[Client]:
    client = Client(load_config(str(cluster.kubeconfig)))
    try:
        for namespace in ("pull-own", "pull-team"):
            with suppress(ConflictError):
                await client.create(NAMESPACE, {"metadata": {"name": namespace}})
            await _write_secret(client, namespace, registry)
        yield client
    finally:
        await client.close()


async def _write_secret(client: Client, namespace: str, registry: str) -> None:
    """A pull Secret whose user is named after the namespace."""
    auths = {"auths": {registry: {"username": namespace, "password": "pass"}}}
    content = b64encode(json.dumps(auths).encode()).decode()
    body = {
        "metadata": {"name": "pull", "namespace": namespace},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": content},
    }
    with suppress(ConflictError):
        await client.create(SECRET, body)
        return
    await client.patch(SECRET, "pull", {"data": body["data"]}, namespace=namespace)


@pytest.mark.parametrize(
    ("access", "user"),
    [
        (RegistryAccess(), "pull-own"),
        (RegistryAccess(secrets=("pull",)), "pull-own"),
        (RegistryAccess(namespace="pull-team", secrets=("pull",)), "pull-team"),
        # Lictor's own credentials are not for policies of a namespace, nor are other Secrets.
        (RegistryAccess(namespace="pull-team"), ""),
        (RegistryAccess(namespace="pull-team", secrets=("absent",)), ""),
        (RegistryAccess(namespace="pull-team", secrets=("pull-own/pull",)), ""),
    ],
)
def test_whose_secret_opens_a_private_registry(
    cluster: Cluster, registry: str, access: RegistryAccess, user: str
) -> None:
    async def test() -> None:
        async with _ready(cluster, registry) as client:
            flags = Flags(
                image_pull_secrets="pull",
                enable_config_map_caching=False,
                # It is on loopback: policies of a namespace reach it only where this names it.
                registry_allowlist=registry,
            )
            loop = asyncio.get_running_loop()
            lookups = ClusterLookups(client, loop, flags, namespace="pull-own")
            found = await asyncio.to_thread(_describe, lookups, f"{registry}/app:v1", access)
            await lookups.close()
        expected = f"Basic {b64encode(f'{user}:pass'.encode()).decode()}"
        assert found == ("1000" if user else "refused")
        assert set(_PrivateRegistry.users) == ({expected} if user else set())

    asyncio.run(asyncio.wait_for(test(), 60))


def _describe(lookups: ClusterLookups, reference: str, access: RegistryAccess) -> str:
    try:
        return str(lookups.image_data(reference, access)["configData"]["config"]["User"])
    except LookupFailedError:
        return "refused"
