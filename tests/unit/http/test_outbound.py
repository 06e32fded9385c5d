"""Where connections lead: one test for each row of docs/operate/security.md, and no way past the check."""

import ast
import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_api import Answer, FakeApi, run_api

from lictor.addons.kubewarden.cli.chosen_modules import SourceFlags, open_store
from lictor.addons.kubewarden.modules.module_sources import ModuleSources
from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
from lictor.addons.web.notifications.sending import OutgoingRequest, RequestSender
from lictor.cli.inputs.lookups import choose_registries
from lictor.cli.inputs.repositories import GitAccess, clone_repository
from lictor.cli.inputs.sources import fetch_url
from lictor.core.errors import (
    BlockedAddressError,
    LictorError,
    LoadError,
    LookupFailedError,
    UndeliveredError,
    UnreachableError,
)
from lictor.core.lang.networks import INSIDE, METADATA, find_blocked
from lictor.core.ports import ApiCall, RegistryAccess
from lictor.http.addresses import Destination, build_connection, open_stream
from lictor.images.cloud_providers import CloudRequest, send
from lictor.images.registries import RemoteRegistries
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.connection import ApiConnection, ApiRequest
from lictor.kubernetes.flags import Flags
from lictor.lookups.registry_access import read_registry_settings
from lictor.lookups.service_calls import ServiceCaller, read_http_limits

ROOT = Path(__file__).parents[3]
CLOUD = "169.254.169.254"
OBJECT = RegistryAccess(named=frozenset())
TEAM = RegistryAccess(namespace="team")


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with run_api(lambda _: Answer(body={})) as running:
        yield running


def resolve_to(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Let every name have these addresses, one after the other; the last one for good."""
    left = list(answers)

    def resolve(host, port, *_rest, **_more):
        address = host if host[0].isdigit() else left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def in_pod(**flags: str) -> RemoteRegistries:
    return RemoteRegistries(read_registry_settings(Flags(**flags), in_pod=True))


def ask(registries, host: str, access: RegistryAccess | None = None) -> None:
    """LookupFailedError unless the registry could be asked; it has no such image."""
    try:
        registries.manifest(f"{host}/app", "v1", access or RegistryAccess())
    except LookupFailedError as error:
        if "blocked" in str(error):
            raise


def call_service(given: ApiCall, **flags: str):
    async def run():
        limits = read_http_limits(Flags(**flags))
        caller = ServiceCaller(limits, most_bytes=1000, seconds=5.0)
        try:
            return await caller.call(given)
        finally:
            await caller.close()

    return asyncio.run(run())


def blocked(kind: type[Exception] = LookupFailedError):
    return pytest.raises(kind, match="blocked")


# --- the rows


def check_files(api: FakeApi, _folder: Path) -> None:
    assert fetch_url(f"{api.url}/a.yaml").content == b"{}"
    with blocked(LoadError):
        fetch_url(f"http://{CLOUD}/a.yaml")
    with blocked(LoadError):
        clone_repository(f"http://{CLOUD}/a/b", GitAccess())


def check_commands(api: FakeApi, _folder: Path) -> None:
    host = api.url.removeprefix("http://")
    for access in (RegistryAccess(), OBJECT, TEAM):
        registries = choose_registries(network=True)
        ask(registries, host, access)
        with blocked():
            ask(registries, CLOUD, access)
    with blocked():
        open_store(SourceFlags()).fetch(f"https://{CLOUD}/a.wasm", "team")
    assert len(api.asked) >= 3


def check_services(api: FakeApi, _folder: Path) -> None:
    assert call_service(ApiCall(service_url=api.url)) == {}
    with blocked():
        call_service(ApiCall(service_url=f"http://{CLOUD}/latest"))


def check_named_registries(api: FakeApi, folder: Path) -> None:
    host = api.url.removeprefix("http://")
    ask(in_pod(), host, RegistryAccess(named=frozenset((host,))))
    ask(in_pod(), host)
    assert len(api.asked) == 2
    with blocked():
        ask(in_pod(), CLOUD, RegistryAccess(named=frozenset((CLOUD,))))
    with blocked():
        ask(in_pod(registry_allowlist=CLOUD), CLOUD)
    with blocked():
        ModuleStore(ModuleSettings(folder=folder)).fetch(f"https://{CLOUD}/a.wasm")


def check_administration(api: FakeApi, _folder: Path) -> None:
    async def connect(server: str) -> None:
        connection = ApiConnection(ClusterConfig(server=server))
        try:
            await connection.send(ApiRequest("GET", "/version"))
        finally:
            await connection.close()

    async def watch(server: str) -> None:
        connection = ApiConnection(ClusterConfig(server=server))
        try:
            async with connection.stream("/api/v1/pods", {}, 5.0):
                pass
        finally:
            await connection.close()

    for use in (connect, watch):
        asyncio.run(use(api.url))
        with blocked(UnreachableError):
            asyncio.run(use(f"http://{CLOUD}"))
    assert len(api.asked) == 2
    with blocked(UndeliveredError):
        asyncio.run(RequestSender({}).send(OutgoingRequest(f"http://{CLOUD}/", {}, b"")))
    proxy = {"http_proxy": f"http://{CLOUD}:3128"}
    with blocked(UndeliveredError):
        asyncio.run(RequestSender(proxy).send(OutgoingRequest("http://a.example/", {}, b"")))
    with blocked(BlockedAddressError):
        build_connection(CLOUD, 4318, 1.0).request("POST", "/v1/traces")


def check_services_of_objects(api: FakeApi, _folder: Path) -> None:
    given = ApiCall(service_url=f"{api.url}/x", is_chosen_by_object=True)
    with blocked():
        call_service(given)
    assert not api.asked
    assert call_service(given, http_allowlist=api.url) == {}
    with blocked():
        call_service(ApiCall(service_url="http://db.prod.svc/", is_chosen_by_object=True))


def check_images_of_objects(api: FakeApi, _folder: Path) -> None:
    check_blocked_inside(api, OBJECT)


def check_namespaces(api: FakeApi, folder: Path) -> None:
    check_blocked_inside(api, TEAM)
    store = ModuleStore(ModuleSettings(folder=folder))
    host = api.url.removeprefix("http://")
    for address in (f"https://{host}/a.wasm", f"registry://{host}/a:v1"):
        with blocked():
            store.fetch(address, "team")
    with blocked():
        in_pod().trusted_root(f"{api.url}/tuf", b"", "team")
    asked = len(api.asked)
    sources = ModuleSources(insecure=frozenset((host,)))
    with pytest.raises(LictorError) as error:
        ModuleStore(ModuleSettings(folder=folder, sources=sources)).fetch(address, "team")
    assert "blocked" not in str(error.value)
    assert len(api.asked) > asked


def check_blocked_inside(api: FakeApi, access: RegistryAccess) -> None:
    host = api.url.removeprefix("http://")
    for name in (host, CLOUD, "10.1.2.3", "registry.team.svc:5000", "[::1]:5000", "localhost"):
        with blocked():
            ask(in_pod(), name, access)
    assert not api.asked
    ask(in_pod(registry_allowlist=host), host, access)
    assert api.asked


def check_expressions(api: FakeApi, _folder: Path) -> None:
    for url in (api.url, f"http://{CLOUD}/", "http://10.1.2.3/"):
        with blocked():
            call_service(ApiCall(service_url=url, guarded=True))
    assert call_service(ApiCall(service_url=api.url, guarded=True), http_blocklist="10.0.0.0/8")
    with blocked():
        # Whatever the list says.
        call_service(ApiCall(service_url=f"http://{CLOUD}/", guarded=True), http_blocklist="a.b")


def check_cloud(api: FakeApi, _folder: Path) -> None:
    assert send(CloudRequest("GET", f"{api.url}/token", is_metadata=True)) == (200, b"{}")
    with blocked(BlockedAddressError):
        send(CloudRequest("GET", f"http://{CLOUD}/token"))


ROWS = {
    "files by URL": check_files,
    "images and modules": check_commands,
    "`apiCall.service` in a cluster-wide policy": check_services,
    "registries that a cluster-wide policy": check_named_registries,
    "API servers": check_administration,
    "`apiCall.service` with a variable": check_services_of_objects,
    "images in registries": check_images_of_objects,
    "images, modules, trust roots": check_namespaces,
    "CEL's `http`": check_expressions,
    "lictor's credentials": check_cloud,
}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_table(row: str, api: FakeApi, tmp_path: Path) -> None:
    ROWS[row](api, tmp_path)


def test_the_table_has_no_other_rows() -> None:
    page = (ROOT / "docs" / "operate" / "security.md").read_text()
    lines = page.partition("## Connections")[2].partition("\n## ")[0].splitlines()
    cells = [line.split("|")[2].strip() for line in lines if line.startswith("| ")][1:]
    assert [next(row for row in ROWS if cell.startswith(row)) for cell in cells] == list(ROWS)


# --- names


@pytest.mark.parametrize("address", [CLOUD, "100.100.100.200", "::ffff:169.254.169.254"])
def test_a_name_that_leads_to_the_cloud(monkeypatch, api: FakeApi, address: str) -> None:
    """The address is checked, not the name; each client resolves once."""
    resolve_to(monkeypatch, address)
    url = "http://good.example/a.yaml"
    with blocked(LoadError):
        fetch_url(url)
    with blocked():
        call_service(ApiCall(service_url=url))
    with blocked():
        ask(in_pod(), "good.example")
    with blocked(BlockedAddressError):
        build_connection("good.example", 80, 1.0).request("GET", "/")
    with blocked(BlockedAddressError):
        asyncio.run(open_stream(Destination("good.example", 80)))


def test_the_second_answer_of_a_name_server_does_not_count(monkeypatch, api: FakeApi) -> None:
    port = int(api.url.rpartition(":")[2])
    for use in (
        lambda: fetch_url(f"http://good.example:{port}/"),
        lambda: call_service(ApiCall(service_url=f"http://good.example:{port}/")),
        lambda: send(CloudRequest("GET", f"http://good.example:{port}/")),
    ):
        resolve_to(monkeypatch, "127.0.0.1", CLOUD)
        use()


def test_a_redirect_to_the_cloud_is_not_followed() -> None:
    location = {"location": f"http://{CLOUD}/latest"}
    with run_api(lambda _: Answer(302, b"", location)) as api:
        for use in (
            lambda: fetch_url(f"{api.url}/a.yaml"),
            lambda: call_service(ApiCall(service_url=api.url)),
            lambda: ask(choose_registries(network=True), api.url.removeprefix("http://")),
        ):
            with blocked(LictorError):
                use()


@pytest.mark.parametrize(
    ("host", "is_blocked"),
    [
        ("registry.team.svc", True), ("registry.team.svc.cluster.local.", True),
        ("svc.example", False), ("my.svcs.example", False), ("a.localhost", True),
        ("34.118.225.1", True), ("192.0.2.1", False), ("0x7f.1", True), ("::ffff:10.0.0.1", True),
    ],
)  # fmt: skip
def test_what_is_inside(host: str, *, is_blocked: bool) -> None:
    assert bool(find_blocked(host, METADATA + INSIDE)) is is_blocked


def test_no_body_is_shown() -> None:
    with run_api(lambda _: Answer(403, b'{"errors":[{"code":"DENIED"}], "x": "SECRET"}')) as api:
        host = api.url.removeprefix("http://")
        with pytest.raises(LookupFailedError, match=r"HTTP 403 \(DENIED\)") as registry:
            in_pod().manifest(f"{host}/app", "v1", RegistryAccess())
        with pytest.raises(LookupFailedError, match="HTTP 403") as service:
            call_service(ApiCall(service_url=api.url))
    assert "SECRET" not in f"{registry.value}{service.value}"


# --- no way past it

OPENERS = frozenset((
    "open_connection", "create_connection", "HTTPConnection", "HTTPSConnection", "urlopen",
    "build_opener", "AsyncClient", "AsyncHTTPTransport", "HTTPTransport", "sock_connect",
    "connect_ex", "connect_tcp", "create_datagram_endpoint", "OTLPSpanExporter", "url_to_fs",
    "OTLPMetricExporter", "open_unix_connection", "PoolManager", "connect",
))  # fmt: skip
# Modules, what they call, and why.
KNOWN = {
    ("http/addresses.py", "open_connection"): "the check",
    ("http/addresses.py", "create_connection"): "the check",
    ("http/addresses.py", "HTTPConnection"): "opened by open_socket",
    ("http/addresses.py", "HTTPSConnection"): "opened by open_socket",
    ("kubernetes/connection.py", "AsyncHTTPTransport"): "with the checked backend",
    ("kubernetes/connection.py", "AsyncClient"): "over that transport",
    ("kubernetes/connection.py", "connect_tcp"): "to a checked address",
    ("lookups/service_calls.py", "AsyncClient"): "over that transport",
    ("addons/migrate/lictor_server.py", "AsyncClient"): "over that transport",
    ("policies/trials.py", "sock_connect"): "a Unix socket",
    ("webhook/slow_requests.py", "open_unix_connection"): "a Unix socket",
    ("webhook/probe.py", "connect"): "a Unix socket",
    ("addons/apiserver/persistence.py", "connect"): "SQLite",
    (
        "addons/kubewarden/cli/runs.py",
        "connect",
    ): "lookups of a cluster, by kubernetes/connection.py",
    ("webhook/span_export.py", "OTLPSpanExporter"): "gRPC, see docs/operate/security.md",
    ("addons/kubewarden/server/spans.py", "OTLPSpanExporter"): "gRPC, see docs/operate/security.md",
    (
        "addons/kubewarden/server/otlp.py",
        "OTLPMetricExporter",
    ): "gRPC, see docs/operate/security.md",
    ("addons/fleet/addresses.py", "url_to_fs"): "object storage, see docs/operate/security.md",
    ("controllers/webhook_configuration/draft.py", "connect"): "a method of WebhookEndpoint",
    ("addons/kubewarden/controller/webhooks.py", "connect"): "a method of WebhookEndpoint",
}


def list_openers() -> set[tuple[str, str]]:
    source = ROOT / "src" / "lictor"
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in OPENERS:
                    found.add((path.relative_to(source).as_posix(), name))
    return found


def test_no_module_connects_past_the_check() -> None:
    assert list_openers() == set(KNOWN)


def test_httpx_is_opened_with_our_transport_only() -> None:
    for path in (ROOT / "src" / "lictor").rglob("*.py"):
        text = path.read_text()
        assert text.count("httpx2.AsyncClient(") == text.count("transport="), path
        assert "httpx2.Client(" not in text
        assert "httpx2.get(" not in text
