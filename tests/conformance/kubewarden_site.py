"""What the set-ups of the corpus have around them: certificates, registries, a small Kubernetes."""

import base64
import contextlib
import hashlib
import json
import os
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubewarden_guests import CORPUS

_PEM = serialization.Encoding.PEM
_LAYER = "application/vnd.wasm.content.layer.v1+wasm"
_CONFIG = "application/vnd.wasm.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_SIGNED = "application/vnd.dev.cosign.simplesigning.v1+json"
_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)
_USER, _WORD = "me", "secret-word"

Answer = tuple[int, str, bytes]


class Site:
    """Made once for all set-ups."""

    def __init__(self, guests: Path, folder: Path) -> None:
        self.cache = folder / ".cache"
        self._compiled = folder / ".compiled"
        self._compiled.mkdir()
        self._pairs = _make_pairs()
        self._registry = _Registry(guests)
        self._translations = self._registry.describe_translations()
        self._kubernetes = _Kubernetes()
        self._servers = [
            _serve(self._registry.answer),
            _serve(self._registry.answer_private),
            _serve(self._kubernetes.answer, self._kubernetes.post),
        ]
        names = ("registry.example:5000", "private.example:5001", "kubernetes.example")
        for name, server in zip(names, self._servers, strict=True):
            self._translations[name] = f"127.0.0.1:{server.server_port}"

    @classmethod
    @contextlib.contextmanager
    def open(cls, guests: Path, folder: Path) -> "Iterator[Site]":
        site = cls(guests, folder)
        try:
            yield site
        finally:
            for server in site._servers:
                server.shutdown()
                server.server_close()

    def translate(self, text: str) -> str:
        """The corpus's names of hosts, keys and digests, as they are here."""
        text = _KEY.sub(self._translate_key, text)
        for name, value in self._translations.items():
            text = text.replace(name, value)
        return text

    def _translate_key(self, found: re.Match[str]) -> str:
        indented = [line.strip() for line in found[0].splitlines()]
        if "".join(indented) != "".join(self._registry.corpus_key.split("\n")):
            return found[0]
        lines = self._registry.key_pem.strip().splitlines()
        return "\n      ".join(lines)

    def add_files(self, folder: Path) -> None:
        """Certificates, credentials and the way to Kubernetes."""
        for name in ("server", "ca"):
            certificate, key = self._pairs[name]
            (folder / f"{name}.pem").write_bytes(certificate)
            (folder / f"{name}.key").write_bytes(key)
        host = self._translations["private.example:5001"]
        for name, word in (("docker-config", _WORD), ("docker-configbad", "wrong")):
            (folder / name).mkdir()
            auth = base64.b64encode(f"{_USER}:{word}".encode()).decode()
            text = json.dumps({"auths": {host: {"auth": auth}}})
            (folder / name / "config.json").write_text(text)
        address = f"http://{self._translations['kubernetes.example']}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))

    def give_compiled(self, folder: Path) -> None:
        """What earlier set-ups compiled: each guest is compiled once, as on a second start."""
        compiled = folder / ".lictor" / "compiled"
        compiled.mkdir(parents=True, mode=0o700)
        for path in self._compiled.glob("*.code"):
            os.link(path, compiled / path.name)

    def keep_compiled(self, folder: Path) -> None:
        for path in (folder / ".lictor" / "compiled").glob("*.code"):
            with contextlib.suppress(FileExistsError):
                os.link(path, self._compiled / path.name)

    def make_context(self, row: Mapping[str, Any]) -> ssl.SSLContext:
        """As the client of a row."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self._pairs["ca"][0].decode())
        if (row.get("client") or {}).get("maximum_version"):
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        name = row.get("client_certificate")
        if name is not None:
            with _as_file(b"".join(self._pairs[name])) as path:
                context.load_cert_chain(path)
        return context

    def write_new(self, folder: Path, *, certificate: bool, key: bool) -> None:
        if certificate:
            (folder / "server.pem").write_bytes(self._pairs["new"][0])
        if key:
            (folder / "server.key").write_bytes(self._pairs["new"][1])

    def read_served_name(self, port: int) -> str:
        text = ssl.get_server_certificate(("127.0.0.1", port))
        found = x509.load_pem_x509_certificate(text.encode()).subject
        return str(found.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


def _make_pairs() -> dict[str, tuple[bytes, bytes]]:
    """Certificates and keys by the names of their owners."""
    authority, other = _make_pair("ca"), _make_pair("other-ca")
    pairs = {"ca": authority}
    for name in ("server", "client", "new"):
        pairs[name] = _make_pair(name, authority)
    pairs["other"] = _make_pair("other", other)
    return pairs


def _make_pair(name: str, issuer: tuple[bytes, bytes] | None = None) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, issued_by = key, subject
    if issuer is not None:
        loaded = serialization.load_pem_private_key(issuer[1], None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer, issued_by = loaded, x509.load_pem_x509_certificate(issuer[0]).subject
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issued_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    words = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(_PEM), words


class _Registry:
    """Modules under /v2/: ok (signed), no, and bad (not what its manifest says)."""

    def __init__(self, guests: Path) -> None:
        self._contents: dict[str, tuple[str, bytes]] = {}
        key = ec.generate_private_key(ec.SECP256R1())
        self.key_pem = (
            key.public_key()
            .public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            .decode()
        )
        self.corpus_key = _find_key("verify-ok")
        accept, reject = ((guests / f"{name}.wasm").read_bytes() for name in ("accept", "reject"))
        self.ok = self._add("policies/ok", "v1", accept)
        self._add("policies/no", "v1", reject)
        self.bad = self._add("policies/bad", "v1", accept, served=reject)
        self._sign("policies/ok", self.ok, key)

    def describe_translations(self) -> dict[str, str]:
        text = (CORPUS / "server-answers.jsonl").read_text(encoding="utf-8")
        found = dict(re.findall(r"policies/(ok|bad)(?::v1)?@sha256:([1-9a-f][0-9a-f]{63})", text))
        return {found["ok"]: self.ok, found["bad"]: self.bad}

    def _add(self, repository: str, tag: str, module: bytes, served: bytes | None = None) -> str:
        layer = self._put_blob(repository, module, served)
        manifest = {
            "schemaVersion": 2,
            "config": self._put_blob(repository, b"{}") | {"mediaType": _CONFIG},
            "layers": [layer | {"mediaType": _LAYER}],
        }
        return self._put_manifest(repository, tag, manifest)

    def _put_blob(
        self, repository: str, content: bytes, served: bytes | None = None
    ) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        where = f"/v2/{repository}/blobs/{digest}"
        self._contents[where] = ("application/octet-stream", served or content)
        return {"digest": digest, "size": len(content)}

    def _put_manifest(self, repository: str, tag: str, manifest: Mapping[str, Any]) -> str:
        content = json.dumps(manifest).encode()
        digest = hashlib.sha256(content).hexdigest()
        for name in (tag, f"sha256:{digest}"):
            self._contents[f"/v2/{repository}/manifests/{name}"] = (_MANIFEST, content)
        return digest

    def _sign(self, repository: str, digest: str, key: ec.EllipticCurvePrivateKey) -> None:
        payload = json.dumps(
            {
                "critical": {
                    "identity": {"docker-reference": ""},
                    "image": {"docker-manifest-digest": f"sha256:{digest}"},
                    "type": "cosign container image signature",
                },
                "optional": {"env": "prod"},
            }
        ).encode()
        signature = base64.b64encode(key.sign(payload, ec.ECDSA(hashes.SHA256()))).decode()
        layer = self._put_blob(repository, payload) | {
            "mediaType": _SIGNED,
            "annotations": {"dev.cosignproject.cosign/signature": signature},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._put_blob(repository, b"{}")
            | {"mediaType": "application/vnd.oci.image.config.v1+json"},
            "layers": [layer],
        }
        self._put_manifest(repository, f"sha256-{digest}.sig", manifest)

    def answer(self, path: str, _headers: Mapping[str, str]) -> Answer:
        if path == "/v2/":
            return 200, "application/json", b"{}"
        kind, content = self._contents.get(path, ("", b""))
        if kind:
            return 200, kind, content
        unknown = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
        return 404, "application/json", json.dumps(unknown).encode()

    def answer_private(self, path: str, headers: Mapping[str, str]) -> Answer:
        wanted = base64.b64encode(f"{_USER}:{_WORD}".encode()).decode()
        if headers.get("authorization") != f"Basic {wanted}":
            return 401, "application/json", b'{"errors": [{"code": "UNAUTHORIZED"}]}'
        return self.answer(path, headers)


def _find_key(setup: str) -> str:
    for line in (CORPUS / "server-answers.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["setup"] == setup and "id" not in row:
            found = _KEY.search(row["files"]["v.yml"])
            assert found is not None
            return "\n".join(part.strip() for part in found[0].splitlines())
    raise LookupError(setup)


class _Kubernetes:
    """Two namespaces, a Deployment and a Secret."""

    def __init__(self) -> None:
        image = {
            "containers": [{"name": "c", "image": "nginx:1"}, {"name": "d", "image": "busybox"}]
        }
        self._objects: dict[str, list[dict[str, Any]]] = {
            "/api/v1/namespaces": [
                _object("v1", "Namespace", "shop", labels={"team": "a"}, managed=True),
                _object("v1", "Namespace", "closed", labels={"team": "b"}),
            ],
            "/apis/apps/v1/deployments": [
                _object("apps/v1", "Deployment", "web", "shop", {"app": "web"})
                | {"spec": {"replicas": 2, "template": {"spec": image}}}
            ],
            "/api/v1/secrets": [_object("v1", "Secret", "s", "shop")],
        }

    def answer(self, target: str, _headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        found = _DISCOVERY.get(parts.path.rstrip("/"))
        if found is not None:
            return 200, "application/json", json.dumps(found).encode()
        if query.get("watch"):
            return 200, "application/json", b""
        return self._read(unquote(parts.path), query)

    def post(self, _path: str, body: bytes) -> Answer:
        asked = json.loads(body)["spec"]
        is_admin = "admin" in asked.get("user", "")
        status = {"allowed": True} if is_admin else {"allowed": False, "reason": "no rule"}
        return 201, "application/json", json.dumps(json.loads(body) | {"status": status}).encode()

    def _read(self, path: str, query: Mapping[str, str]) -> Answer:
        if path in self._objects:
            return _list(self._objects[path], query)
        found = re.fullmatch(r"(/apis?(?:/apps)?/v1)/namespaces/([^/]+)/(\w+)(?:/(.+))?", path)
        if found is None:
            found = re.fullmatch(r"(/api/v1)()/(namespaces)/(.+)", path)
        if found is None:
            return 404, "application/json", b'{"kind": "Status", "code": 404, "message": "none"}'
        base, namespace, plural, name = found.groups()
        objects = [
            each
            for each in self._objects.get(f"{base}/{plural}", [])
            if not namespace or each["metadata"].get("namespace") == namespace
        ]
        if not name:
            return _list(objects, query)
        for each in objects:
            if each["metadata"]["name"] == name:
                return 200, "application/json", json.dumps(each).encode()
        return 404, "application/json", b'{"kind": "Status", "code": 404, "reason": "NotFound"}'


def _object(
    version: str,
    kind: str,
    name: str,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    *,
    managed: bool = False,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"managedFields": [{"manager": "x"}]} if managed else {}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _list(objects: list[dict[str, Any]], query: Mapping[str, str]) -> Answer:
    label = query.get("labelSelector", "").partition("=")
    name = query.get("fieldSelector", "").partition("=")[2]
    chosen = [
        each
        for each in objects
        if (not label[0] or each["metadata"].get("labels", {}).get(label[0]) == label[2])
        and (not name or each["metadata"]["name"] == name)
    ]
    # Only lists tell these in the corpus.
    items = [
        each | {"metadata": each["metadata"] | {"uid": f"uid-{at}", "resourceVersion": f"{at + 1}"}}
        for at, each in enumerate(chosen)
    ]
    body = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "100"}}
    return 200, "application/json", json.dumps(body | {"items": items}).encode()


def _resource(name: str, kind: str, *, namespaced: bool) -> dict[str, Any]:
    verbs = ["get", "list", "watch"]
    return {
        "name": name,
        "kind": kind,
        "singularName": kind.lower(),
        "namespaced": namespaced,
        "verbs": verbs,
    }


_APPS = {"groupVersion": "apps/v1", "version": "v1"}
_DISCOVERY: Mapping[str, Any] = {
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "groups": [{"name": "apps", "versions": [_APPS], "preferredVersion": _APPS}],
    },
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            _resource("namespaces", "Namespace", namespaced=False),
            _resource("secrets", "Secret", namespaced=True),
            _resource("pods", "Pod", namespaced=True),
        ],
    },
    "/apis/apps/v1": {
        "kind": "APIResourceList",
        "groupVersion": "apps/v1",
        "resources": [_resource("deployments", "Deployment", namespaced=True)],
    },
}


def _serve(
    answer: Callable[[str, Mapping[str, str]], Answer],
    post: Callable[[str, bytes], Answer] | None = None,
) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._reply(*answer(self.path, headers))

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            self._reply(*(post(self.path, body) if post else (405, "text/plain", b"")))

        def _reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="r"')
            if kind == _MANIFEST:
                digest = hashlib.sha256(body).hexdigest()
                self.send_header("Docker-Content-Digest", f"sha256:{digest}")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
