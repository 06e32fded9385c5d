"""How servers of modules are spoken to: sources.yml, certificates, credentials, signatures."""

import base64
import ssl
from datetime import UTC, datetime, timedelta

import orjson
import pytest
import wasmtime
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from registry_server import RegistryServer, digest_of

from lictor.addons.kubewarden.modules.module_sources import ModuleSources, read_sources
from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
from lictor.addons.kubewarden.modules.module_verification import (
    read_trust_config,
    read_verification,
)
from lictor.core.errors import LictorError, LoadError, LookupFailedError, ModuleError, UsageError
from lictor.images.settings import RegistrySettings

MODULE = bytes(wasmtime.wat2wasm('(module (func (export "f") (result i32) i32.const 1))'))
QUICK = RegistrySettings(
    exchange_seconds=6.0, connect_seconds=6.0, question_seconds=8.0, attempts=1
)


@pytest.fixture
def make_store(tmp_path):
    def make(**settings) -> ModuleStore:
        folders = {"folder": tmp_path / "store", "private_folder": tmp_path / "private"}
        return ModuleStore(ModuleSettings(**{**folders, "network": QUICK, **settings}))

    return make


def make_certificate(folder) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "modules")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "ca.der").write_bytes(certificate.public_bytes(serialization.Encoding.DER))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "key.pem").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context


@pytest.fixture
def secure(tmp_path):
    with RegistryServer(context=make_certificate(tmp_path)) as server:
        server.take_pushes()
        server.contents["/demo.wasm"] = MODULE
        yield server


def write_sources(folder, **content) -> ModuleSources:
    # JSON is YAML.
    (folder / "sources.yml").write_bytes(orjson.dumps(content))
    return read_sources(str(folder / "sources.yml"))


@pytest.mark.parametrize("kind", ["pem", "der", "data"])
def test_authorities_count_for_their_host_only(secure, make_store, tmp_path, kind) -> None:
    entry = {"type": "Path", "path": str(tmp_path / f"ca.{kind}")}
    if kind == "data":
        entry = {"type": "Data", "data": (tmp_path / "ca.pem").read_text()}
    for host, is_known in ((secure.name, True), ("localhost:1", False)):
        store = make_store(sources=write_sources(tmp_path, source_authorities={host: [entry]}))
        if is_known:
            assert store.fetch(f"https://{secure.name}/demo.wasm").content == MODULE
            assert store.push(MODULE, f"{secure.name}/p/demo:v1", None)
        else:
            with pytest.raises(LookupFailedError, match="certificate"):
                store.push(MODULE, f"{secure.name}/p/demo:v2", None)


def test_an_insecure_source_may_have_any_certificate(secure, make_store, tmp_path) -> None:
    with pytest.raises(LookupFailedError, match="certificate"):
        make_store().fetch(f"https://{secure.name}/demo.wasm")
    sources = write_sources(tmp_path, insecure_sources=[secure.name])
    assert make_store(sources=sources).fetch(f"https://{secure.name}/demo.wasm").content == MODULE
    # Plain HTTP is not what this server speaks.
    with pytest.raises(LookupFailedError):
        make_store(sources=sources).fetch(f"http://{secure.name}/demo.wasm")


def test_a_file_beside_sources_is_found(tmp_path) -> None:
    make_certificate(tmp_path)
    entry = {"type": "Path", "path": "ca.pem"}
    assert write_sources(tmp_path, source_authorities={"h": [entry]}).authorities


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[]", LoadError),
        ("insecure_sources: 3", LoadError),
        ("source_authorities: {h: [{type: Zzz, path: x}]}", LoadError),
        ("source_authorities: {h: [{type: Path, path: none.pem}]}", LoadError),
        ("source_authorities: {h: [{type: Data, data: zzz}]}", UsageError),
        ("a: 1\n---\nb: 1", LoadError),
    ],
)
def test_sources_that_make_no_sense_are_refused(tmp_path, text, error) -> None:
    (tmp_path / "sources.yml").write_text(text)
    with pytest.raises(error):
        read_sources(str(tmp_path / "sources.yml"))


@pytest.mark.parametrize("text", ["", "other: 1", "insecure_sources:\nsource_authorities:\n"])
def test_sources_may_say_nothing(tmp_path, text) -> None:
    (tmp_path / "sources.yml").write_text(text)
    assert read_sources(str(tmp_path / "sources.yml")) == ModuleSources()
    with pytest.raises(LoadError):
        read_sources(str(tmp_path / "none.yml"))


# --- credentials


@pytest.fixture
def private(tmp_path):
    """A registry that wants tokens, which are given to one user for what they ask."""
    pair = base64.b64encode(b"me:secret").decode()
    config = tmp_path / "docker"
    config.mkdir()
    with RegistryServer() as server:
        auths = {"auths": {server.name: {"auth": pair}}}
        (config / "config.json").write_bytes(orjson.dumps(auths))
        server.take_pushes()
        begin, finish = server.handle_post, server.handle_put
        challenge = {
            "WWW-Authenticate": f'Bearer realm="http://{server.name}/token",service="registry"'
        }

        def check(path, headers):
            if path.startswith("/token"):
                if headers.get("authorization") != f"Basic {pair}":
                    return 401, {}, b""
                scope = path.partition("scope=")[2].replace("%3A", ":").replace("%2C", ",")
                return 200, {}, orjson.dumps({"token": scope.replace("%2F", "/")})
            if not headers.get("authorization", "").startswith("Bearer repository:p/demo:pull"):
                return 401, challenge, b""
            return None

        def write(path, body, headers):
            if headers.get("authorization") != "Bearer repository:p/demo:pull,push":
                return 401, challenge, b""
            return finish(path, body, headers)

        server.handle, server.handle_put, server.handle_post = check, write, begin
        yield server, config


def test_docker_credentials_are_shown(private, make_store) -> None:
    server, config = private
    sources = ModuleSources(insecure=frozenset([server.name]))
    for docker_config in (str(config), str(config / "config.json")):
        store = make_store(sources=sources, docker_config=docker_config)
        assert store.push(MODULE, f"{server.name}/p/demo:v1", None)
        assert store.fetch(f"{server.name}/p/demo:v1").content == MODULE
    with pytest.raises(LookupFailedError):
        make_store(sources=sources, docker_config=str(config.parent), folder=config / "x").fetch(
            f"{server.name}/p/demo:v1"
        )


# --- signatures


def sign(server: RegistryServer, digest: str, key: ec.EllipticCurvePrivateKey) -> None:
    payload = orjson.dumps(
        {
            "critical": {
                "identity": {"docker-reference": ""},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
    )
    signature = base64.b64encode(key.sign(payload, ec.ECDSA(hashes.SHA256()))).decode()
    layer = {
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
        "digest": server.put_blob("p/demo", payload),
        "size": len(payload),
        "annotations": {"dev.cosignproject.cosign/signature": signature},
    }
    config = {"mediaType": "x/y", "digest": server.put_blob("p/demo", b"{}"), "size": 2}
    document = {"schemaVersion": 2, "config": config, "layers": [layer]}
    server.put_manifest("p/demo", document, digest.replace(":", "-") + ".sig")


def test_signatures_are_verified_before_a_module_is_kept_or_run(make_store, tmp_path) -> None:
    ours, theirs = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    public = ours.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    rule = {"kind": "pubKey", "key": public.decode()}
    (tmp_path / "verification.yml").write_bytes(orjson.dumps({"allOf": [rule]}))
    config = read_verification(str(tmp_path / "verification.yml"))
    with RegistryServer() as server:
        server.take_pushes()
        sources = ModuleSources(insecure=frozenset([server.name]))
        address = f"{server.name}/p/demo:v1"
        digest = make_store(sources=sources).push(MODULE, address, None).rpartition("@")[2]

        def open_store() -> ModuleStore:
            return make_store(sources=sources, verification=config)

        with pytest.raises(ModuleError, match="no signatures found"):
            open_store().load(address)
        sign(server, digest, theirs)
        with pytest.raises(ModuleError, match="cannot be validated: missing signatures"):
            open_store().load(address)
        assert not (tmp_path / "store").exists()
        sign(server, digest, ours)
        store = open_store()
        assert store.load(address).digest == digest_of(MODULE)[7:]
        assert store.verify(address, config) == digest
        # What was fetched before is changed, and is not believed.
        (kept,) = [path for path in (tmp_path / "store").rglob("demo*") if path.is_file()]
        kept.write_bytes(MODULE + b"\x00\x01\x00")
        assert open_store().load(address).digest == digest_of(MODULE)[7:]
    # Nobody can say any more who signed it.
    with pytest.raises(LookupFailedError):
        open_store().load(address)
    for other in (f"file://{kept}", f"https://{server.name}/demo.wasm"):
        with pytest.raises(ModuleError, match="cannot be verified"):
            open_store().load(other)


def test_a_trust_root_may_be_wrapped(tmp_path) -> None:
    path = tmp_path / "trust.json"
    path.write_bytes(orjson.dumps({"trustedRoot": {"tlogs": []}, "signingConfig": {}}))
    assert orjson.loads(read_trust_config(str(path))) == {"tlogs": []}
    path.write_bytes(b'{"tlogs": []}')
    assert read_trust_config(str(path)) == b'{"tlogs": []}'
    for text in (b"", b"[]"):
        path.write_bytes(text)
        with pytest.raises(LictorError):
            read_trust_config(str(path))
