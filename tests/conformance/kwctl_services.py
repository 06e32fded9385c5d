"""What kwctl's rows speak to, on loopback: registries, a web server of its own CA, an API server."""

import base64
import datetime
import hashlib
import http.server
import ipaddress
import json
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
CONFIG_TYPE = "application/vnd.wasm.config.v1+json"
LAYER_TYPE = "application/vnd.wasm.content.layer.v1+wasm"
_ROUTE = re.compile(r"/v2/(?P<name>.+)/(?P<what>manifests|blobs|referrers|tags)/(?P<rest>.+)")
_NAMESPACES = {"shop": {"team": "a"}, "closed": {"team": "b"}}
_CONTAINERS = [{"image": "nginx:1", "name": "c"}, {"image": "busybox", "name": "d"}]


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class Registry:
    """A registry in memory; with `credentials`, only for those who know them."""

    credentials: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def put(self, name: str, tag: str, manifest: Mapping[str, Any]) -> str:
        """Store a manifest under a tag and its digest, which is returned."""
        content = json.dumps(manifest).encode()
        self.manifests[name, tag] = self.manifests[name, digest_of(content)] = content
        return digest_of(content)

    def put_blob(self, content: bytes, media_type: str) -> dict[str, Any]:
        self.blobs[digest_of(content)] = content
        return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}

    def put_module(self, name: str, tag: str, module: bytes) -> str:
        return self.put(
            name,
            tag,
            {
                "schemaVersion": 2,
                "config": self.put_blob(b"{}", CONFIG_TYPE),
                "layers": [self.put_blob(module, LAYER_TYPE)],
            },
        )

    def answer(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        if self.credentials and headers.get("authorization") != f"Basic {self.credentials}":
            return 401, {"WWW-Authenticate": 'Basic realm="test"'}, b"{}"
        parts = urlsplit(path)
        if parts.path in ("/v2", "/v2/"):
            return 200, {}, b"{}"
        found = _ROUTE.fullmatch(parts.path)
        if found is None:
            return 404, {}, b""
        name, what, rest = found["name"], found["what"], found["rest"]
        if method in ("POST", "PUT", "PATCH"):
            return self._take(name, what, rest, parse_qs(parts.query), body)
        content = self.blobs.get(rest) if what == "blobs" else self.manifests.get((name, rest))
        if content is None:
            return 404, {}, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
        kind = MANIFEST if what == "manifests" else "application/octet-stream"
        return 200, {"Content-Type": kind, "Docker-Content-Digest": digest_of(content)}, content

    def _take(
        self, name: str, what: str, rest: str, query: Mapping[str, list[str]], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if what == "manifests":
            if rest.startswith("sha256:") and rest != digest_of(body):
                return 400, {}, b'{"errors":[{"code":"DIGEST_INVALID"}]}'
            self.manifests[name, rest] = self.manifests[name, digest_of(body)] = body
            return 201, {"Docker-Content-Digest": digest_of(body)}, b""
        if "digest" not in query:
            return 202, {"Location": f"/v2/{name}/blobs/uploads/1"}, b""
        if query["digest"][0] != digest_of(body):
            return 400, {}, b'{"errors":[{"code":"DIGEST_INVALID"}]}'
        self.blobs[digest_of(body)] = body
        return 201, {}, b""


@dataclass
class WebServer:
    """Files by name."""

    files: dict[str, bytes] = field(default_factory=dict)

    def answer(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        content = self.files.get(path.lstrip("/"))
        return (404, {}, b"not here") if content is None else (200, {}, content)


class ApiServer:
    """Two namespaces, one Deployment, and nobody who may do anything."""

    def answer(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(path)
        answer = self._find(parts.path, parse_qs(parts.query), body)
        kind = {"Content-Type": "application/json"}
        if answer is None:
            status = {"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"}
            return 404, kind, json.dumps(status | {"message": "not found"}).encode()
        return 200, kind, json.dumps(answer).encode()

    def _find(self, path: str, query: Mapping[str, list[str]], body: bytes) -> Any:
        named = re.fullmatch(r"/api/v1/namespaces/(\w+)", path)
        if named and named[1] in _NAMESPACES:
            # As one that has never been listed.
            return _namespace(named[1]) | {
                "metadata": {
                    "name": named[1],
                    "labels": _NAMESPACES[named[1]],
                    "managedFields": [{"manager": "x"}],
                }
            }
        if path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
            return json.loads(body) | {"status": {"allowed": False, "reason": "no rule"}}
        if path == "/api/v1/namespaces":
            wanted = dict(each.split("=") for each in query.get("labelSelector", ()))
            found = {name: _NAMESPACES[name] for name in _NAMESPACES}
            kept = [name for name, has in found.items() if wanted.items() <= has.items()]
            return _list("v1", "NamespaceList", [_namespace(name) for name in kept])
        return _describe_api().get(path)


def _describe_api() -> dict[str, Any]:
    groups = [_group("apps"), _group("authorization.k8s.io")]
    reviews = {"subjectaccessreviews": ("SubjectAccessReview", False)}
    return {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.3"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        "/api/v1": _resources("v1", {"namespaces": ("Namespace", False)}),
        "/apis/apps/v1": _resources("apps/v1", {"deployments": ("Deployment", True)}),
        "/apis/authorization.k8s.io/v1": _resources("authorization.k8s.io/v1", reviews),
        "/apis/apps/v1/deployments": _list("apps/v1", "DeploymentList", [_deployment()]),
    }


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(version: str, kinds: Mapping[str, tuple[str, bool]]) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "create"]
    listed = [
        {"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": verbs}
        for name, (kind, namespaced) in kinds.items()
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": listed}


def _list(version: str, kind: str, items: list[Any]) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"resourceVersion": "7"},
        "items": items,
    }


def _namespace(name: str) -> dict[str, Any]:
    place = list(_NAMESPACES).index(name)
    metadata = {
        "name": name,
        "labels": _NAMESPACES[name],
        "uid": f"uid-{place}",
        "resourceVersion": str(place + 1),
        "managedFields": [{"manager": "x"}],
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _deployment() -> dict[str, Any]:
    metadata = {
        "name": "web",
        "namespace": "shop",
        "labels": {"app": "web"},
        "uid": "uid-0",
        "resourceVersion": "1",
    }
    spec = {"replicas": 2, "template": {"spec": {"containers": _CONTAINERS}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@contextmanager
def serve(
    service: Registry | WebServer | ApiServer, context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """The address of a service, for as long as the block lasts."""

    class _Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, extra, content = service.answer(self.command, self.path, body, headers)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **extra}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = _reply  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = _QuietServer(("127.0.0.1", 0), _Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients that do not trust a certificate hang up; that is what some rows are about."""


@dataclass(frozen=True)
class Signer:
    """A key that signs as cosign does."""

    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    @property
    def public(self) -> str:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()

    def sign(
        self, registry: Registry, name: str, digest: str, annotations: Mapping[str, str]
    ) -> None:
        """Put a signature beside the artifact with this digest."""
        payload = json.dumps(
            {
                "critical": {
                    "identity": {"docker-reference": name},
                    "image": {"docker-manifest-digest": digest},
                    "type": "cosign container image signature",
                },
                "optional": dict(annotations),
            }
        ).encode()
        signature = self.key.sign(payload, ec.ECDSA(hashes.SHA256()))
        layer = registry.put_blob(payload, SIMPLE_SIGNING) | {
            "annotations": {
                "dev.cosignproject.cosign/signature": base64.b64encode(signature).decode()
            }
        }
        config = registry.put_blob(b'{"rootfs":{}}', "application/vnd.oci.image.config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
        registry.put(name, f"{digest.replace(':', '-')}.sig", manifest)


def make_authority(folder: Path) -> ssl.SSLContext:
    """A CA in `ca.pem` of the folder, and a server's side of TLS that it vouches for."""
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca of a test")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "files.example")])
    ca = _certificate(ca_name, ca_name, ca_key.public_key())
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = _certificate(name, ca_name, key.public_key()).add_extension(
        alternative, critical=False
    )
    encoding = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(encoding))
    pair = folder / ".files.pem"
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pair.write_bytes(private + server.sign(ca_key, hashes.SHA256()).public_bytes(encoding))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    return context


def _certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
