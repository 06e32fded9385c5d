"""Redirects, repetition, TLS, proxies, mirrors, and addresses that nobody connects to."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from registry_server import Answer, Handler, RegistryServer, digest_of

from lictor.core.errors import LookupFailedError, UsageError
from lictor.core.lang.networks import LOOPBACK, METADATA
from lictor.core.ports import DEFAULT_ACCESS, RegistryAccess
from lictor.http.addresses import AddressRules
from lictor.images.dialing import Proxy, ProxyChoice
from lictor.images.registries import RemoteRegistries
from lictor.images.settings import RegistrySettings, parse_mirrors


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def _fetch(registries: RemoteRegistries, server: RegistryServer, path: str = "app") -> str:
    return registries.manifest(f"{server.name}/{path}", "v1", DEFAULT_ACCESS).digest


# --- repetition


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_registry_in_trouble_is_asked_again(server: RegistryServer, status: int) -> None:
    digest = server.put_image("app", "v1", {})
    answers = iter([(status, {}, b""), (status, {}, b""), None])
    server.handle = lambda _path, _headers: next(answers)
    assert _fetch(RemoteRegistries(), server) == digest
    assert len(server.asked) == 3


def test_a_registry_that_stays_in_trouble_is_told(server: RegistryServer) -> None:
    server.handle = lambda _path, _headers: (503, {}, b"down for repair")
    with pytest.raises(LookupFailedError, match=r"503$"):
        _fetch(RemoteRegistries(), server)
    assert len(server.asked) == 3


@pytest.mark.parametrize("is_date", [False, True])
def test_the_pause_that_a_registry_wants_is_kept(server: RegistryServer, *, is_date: bool) -> None:
    server.put_image("app", "v1", {})
    moments: list[float] = []

    def answer(_: str, __: Mapping[str, str]) -> Answer | None:
        moments.append(time.monotonic())
        if len(moments) > 1:
            return None
        later = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        return 429, {"Retry-After": later if is_date else "1"}, b""

    server.handle = answer
    _fetch(RemoteRegistries(), server)
    assert moments[1] - moments[0] >= 0.9


def test_nobody_waits_for_an_hour(server: RegistryServer) -> None:
    server.handle = lambda _path, _headers: (429, {"Retry-After": "3600"}, b"")
    registries = RemoteRegistries()
    started = time.monotonic()
    with pytest.raises(LookupFailedError, match="429"):
        _fetch(registries, server)
    with pytest.raises(LookupFailedError, match="allows no request"):
        _fetch(registries, server, "other")
    assert time.monotonic() - started < 60
    assert len(server.asked) == 1


def test_a_connection_that_was_closed_meanwhile_is_replaced() -> None:
    """The answer comes in chunks; the next question on that connection is met by its end."""
    served: list[int] = []

    def serve(listening: socket.socket) -> None:
        for number in range(2):
            connection, _ = listening.accept()
            with suppress(OSError), connection:
                for _ in range(2):
                    if not connection.recv(4096):
                        break
                    if len(served) > number:
                        break
                    served.append(number)
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
                        b'5\r\n{"lay\r\n8\r\ners":[]}\r\n0\r\n\r\n'
                    )

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        name = f"localhost:{listening.getsockname()[1]}/app"
        registries = RemoteRegistries()
        first = registries.manifest(name, "v1", DEFAULT_ACCESS)
        second = registries.manifest(name, "v2", DEFAULT_ACCESS)
    assert first.content == second.content == b'{"layers":[]}'
    assert served == [0, 1]


# --- sizes


def test_content_that_is_too_large_is_not_read(server: RegistryServer) -> None:
    content = b"x" * 5000
    digest = server.put_blob("app", content)
    server.contents["/v2/app/manifests/v1"] = content
    registries = RemoteRegistries(RegistrySettings(manifest_bytes=4000, blob_bytes=4000))
    with pytest.raises(LookupFailedError, match="more than 4000 bytes"):
        registries.blob(f"{server.name}/app", digest, DEFAULT_ACCESS)
    with pytest.raises(LookupFailedError, match="more than 4000 bytes"):
        _fetch(registries, server)
    assert len(server.asked) == 2


def test_pages_of_referrers_without_end_are_not_read(server: RegistryServer) -> None:
    link = {"Link": '</v2/app/referrers/x?page=2>; rel="next"'}
    server.handle = lambda _path, _headers: (200, link, b'{"manifests": []}')
    with pytest.raises(LookupFailedError, match="more than 1000 referrers"):
        RemoteRegistries().referrers(f"{server.name}/app", digest_of(b""), DEFAULT_ACCESS)
    assert len(server.asked) <= 25


# --- redirects and TLS


def _make_certificate(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[RegistryServer]:
    with RegistryServer(context=_make_certificate(tmp_path)) as running:
        yield running


def test_authorities_of_our_own_are_trusted(secure: RegistryServer, tmp_path: Path) -> None:
    digest = secure.put_image("app", "v1", {})
    settings = RegistrySettings(ca_file=str(tmp_path / "ca.pem"))
    assert _fetch(RemoteRegistries(settings), secure) == digest


def test_an_unknown_certificate_is_refused(secure: RegistryServer) -> None:
    secure.put_image("app", "v1", {})
    with pytest.raises(LookupFailedError, match=r"is not trusted.*SSL_CERT_FILE"):
        _fetch(RemoteRegistries(), secure)
    assert not secure.asked


@pytest.mark.parametrize("named_by", ["flag", "policy"])
def test_an_insecure_registry_is_asked_where_it_is_named(
    secure: RegistryServer, named_by: str
) -> None:
    digest = secure.put_image("app", "v1", {})
    insecure = frozenset({secure.name}) if named_by == "flag" else frozenset()
    registries = RemoteRegistries(RegistrySettings(insecure=insecure))
    access = RegistryAccess(allow_insecure=named_by == "policy")
    assert registries.manifest(f"{secure.name}/app", "v1", access).digest == digest


def test_a_redirect_from_https_to_http_is_refused(
    secure: RegistryServer, server: RegistryServer, tmp_path: Path
) -> None:
    secure.handle = lambda _path, _headers: (302, {"Location": f"http://{server.name}/x"}, b"")
    settings = RegistrySettings(ca_file=str(tmp_path / "ca.pem"))
    with pytest.raises(LookupFailedError, match="from HTTPS to HTTP"):
        _fetch(RemoteRegistries(settings), secure)
    assert not server.asked


@pytest.mark.parametrize("location", ["/v2/app/manifests/v1", "file:///etc/passwd", "http://[x/"])
def test_a_redirect_that_leads_nowhere_is_refused(server: RegistryServer, location: str) -> None:
    server.handle = lambda _path, _headers: (302, {"Location": location}, b"")
    with pytest.raises(LookupFailedError, match=r"redirects|invalid URL"):
        _fetch(RemoteRegistries(), server)
    assert len(server.asked) <= 6


# --- addresses

_RULES = AddressRules(METADATA + LOOPBACK, ("10.0.0.0/8", "metadata.internal"))


@pytest.mark.parametrize(
    "registry",
    [
        "localhost:{}",
        "127.0.0.1:{}",
        "127.9.9.9:{}",
        "[::1]:{}",
        "[::ffff:127.0.0.1]:{}",
        "0.0.0.0:{}",
        "2130706433.:{}",
        "169.254.169.254",
        "168.63.129.16",
        "[fd00:ec2::254]",
    ],
)
def test_addresses_of_the_machine_and_its_cloud_are_not_connected_to(
    server: RegistryServer, registry: str
) -> None:
    registries = RemoteRegistries(RegistrySettings(addresses=_RULES))
    name = registry.format(server.port)
    with pytest.raises(LookupFailedError, match=r"blocked|failed to resolve"):
        registries.manifest(f"{name}/app", "v1", DEFAULT_ACCESS)
    assert not server.asked


def test_a_policy_of_a_namespace_does_not_reach_private_networks() -> None:
    registries = RemoteRegistries(
        RegistrySettings(addresses=_RULES, connect_seconds=1.0, attempts=1)
    )
    for name in ("10.1.2.3", "metadata.internal"):
        with pytest.raises(LookupFailedError, match="blocked"):
            registries.manifest(f"{name}/app", "v1", RegistryAccess(namespace="team"))
    with pytest.raises(LookupFailedError) as failure:
        registries.manifest("10.1.2.3/app", "v1", DEFAULT_ACCESS)
    assert "blocked" not in str(failure.value)


def _always(status: int, said: Mapping[str, str]) -> Handler:
    return lambda _path, _headers: (status, said, b"")


def test_a_redirect_or_a_token_realm_does_not_lead_inside(server: RegistryServer) -> None:
    rules = AddressRules(allowed=frozenset({server.name}))
    registries = RemoteRegistries(RegistrySettings(addresses=rules))
    with RegistryServer() as inside:
        where = f"http://{inside.name}/secret"
        challenge = {"WWW-Authenticate": f'Bearer realm="{where}"'}
        for status, headers in ((302, {"Location": where}), (401, challenge)):
            server.handle = _always(status, headers)
            for access in (RegistryAccess(namespace="team"), RegistryAccess(named=frozenset())):
                with pytest.raises(LookupFailedError, match="blocked"):
                    registries.manifest(f"{server.name}/app", "v1", access)
        assert not inside.asked
    assert len(server.asked) == 4


def test_registries_that_are_named_may_be_anywhere(server: RegistryServer) -> None:
    digest = server.put_image("app", "v1", {})
    for chosen in (RegistryAccess(namespace="team"), RegistryAccess(named=frozenset())):
        rules = AddressRules(allowed=frozenset({server.name}))
        registries = RemoteRegistries(RegistrySettings(addresses=rules))
        assert registries.manifest(f"{server.name}/app", "v1", chosen).digest == digest


def test_ipv6_is_spoken() -> None:
    with RegistryServer("::1", family=socket.AF_INET6) as server:
        digest = server.put_image("app", "v1", {})
        name = f"[::1]:{server.port}/app"
        assert RemoteRegistries().manifest(name, "v1", DEFAULT_ACCESS).digest == digest
        assert server.asked[0][1]["host"] == f"[::1]:{server.port}"


# --- mirrors


def test_a_mirror_is_asked_first_and_the_registry_where_it_has_nothing(
    server: RegistryServer,
) -> None:
    with RegistryServer() as mirror:
        at_mirror = mirror.put_image("hub/app", "v1", {"from": "mirror"})
        server.put_image("app", "v1", {"from": "origin"})
        at_origin = server.put_image("other", "v1", {})
        mirrors = parse_mirrors(f"{server.name}={mirror.name}/hub", "--registryMirrors")
        registries = RemoteRegistries(RegistrySettings(mirrors=mirrors))
        assert _fetch(registries, server) == at_mirror
        assert not server.asked
        assert _fetch(registries, server, "other") == at_origin
        assert mirror.paths == ["/v2/hub/app/manifests/v1", "/v2/hub/other/manifests/v1"]
        subject = digest_of(b"subject")
        entry = f'{{"manifests": [{{"digest": "{at_origin}", "size": 1}}]}}'
        server.contents[f"/v2/app/referrers/{subject}"] = entry.encode()
        (found,) = registries.referrers(f"{server.name}/app", subject, DEFAULT_ACCESS)
        assert found.digest == at_origin


@pytest.mark.parametrize("text", ["x", "=y", "docker.io=", "docker.io=docker.io/x", "a b=c"])
def test_what_is_no_mirror_is_told(text: str) -> None:
    with pytest.raises(UsageError, match=r"--registryMirrors.*is not a mirror"):
        parse_mirrors(text, "--registryMirrors")


# --- proxies


@pytest.mark.parametrize(
    ("host", "port", "no_proxy", "uses_proxy"),
    [
        ("reg.example", 443, "", True),
        ("reg.example", 443, "example", False),
        ("reg.example", 443, ".example", False),
        ("reg.example", 443, "*.example", False),
        ("evilreg.example", 443, "reg.example", True),
        ("reg.example", 443, "reg.example:5000", True),
        ("reg.example", 5000, "reg.example:5000", False),
        ("10.1.2.3", 443, "10.0.0.0/8", False),
        ("11.1.2.3", 443, "10.0.0.0/8", True),
        ("reg.example", 443, "*", False),
        ("localhost", 443, "", False),
        ("::1", 443, "", False),
    ],
)
def test_which_hosts_a_proxy_leads_to(
    host: str, port: int, no_proxy: str, *, uses_proxy: bool
) -> None:
    proxies = ProxyChoice(
        {"HTTPS_PROXY": "http://me:p%40ss@proxy.example:3128", "no_proxy": no_proxy}
    )
    found = proxies.find(host, port, is_secure=True)
    expected = Proxy("proxy.example", 3128, "Basic bWU6cEBzcw==")
    assert found == (expected if uses_proxy else None)


def test_a_secure_registry_is_reached_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, secure: RegistryServer, tmp_path: Path
) -> None:
    """The name leads nowhere here: only the proxy knows the way."""
    digest = secure.put_image("app", "v1", {})
    with _Proxy(secure.port) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:pass@127.0.0.1:{proxy.port}")
        settings = RegistrySettings(insecure=frozenset({"reg.invalid"}))
        registries = RemoteRegistries(settings)
        found = registries.manifest("reg.invalid/app", "v1", DEFAULT_ACCESS)
    assert found.digest == digest
    assert proxy.heads[0].startswith(b"CONNECT reg.invalid:443 HTTP/1.1")
    assert b"proxy-authorization: Basic bWU6cGFzcw==" in proxy.heads[0]
    assert "proxy-authorization" not in secure.asked[0][1]


class _Proxy:
    """Connects whoever asks to one port, whatever they ask for."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.heads: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    def __enter__(self) -> "_Proxy":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            self.heads.append(head)
            upstream = socket.create_connection(("127.0.0.1", self._target))
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with source, sink:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
