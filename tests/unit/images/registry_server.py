"""A registry on loopback that answers what a test puts into it, and remembers what it was asked."""

import hashlib
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from urllib.parse import parse_qs

import orjson

from lictor.core.raw import Json

# What a handler answers: status, headers, body. None: as if there were no handler.
Answer = tuple[int, Mapping[str, str], bytes]
Handler = Callable[[str, Mapping[str, str]], Answer | None]


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class RegistryServer:
    """Paths under /v2/ and their content; `handle` may answer before them."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        context: ssl.SSLContext | None = None,
        family: socket.AddressFamily = socket.AF_INET,
    ) -> None:
        outer = self
        self.contents: dict[str, bytes] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.handle: Handler = lambda _path, _headers: None
        self.handle_post: Callable[[str, bytes], Answer] = lambda _path, _body: (405, {}, b"")
        self.handle_put: Callable[[str, bytes, Mapping[str, str]], Answer] = (
            lambda _path, _body, _headers: (405, {}, b"")
        )
        # Types of manifests, by path.
        self.content_types: dict[str, str] = {}
        self._lock = threading.Lock()

        class _Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                self._reply(*outer.answer(self.path, headers))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self._reply(*outer.handle_post(self.path, body))

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                self._reply(*outer.handle_put(self.path, body, headers))

            def _reply(self, status: int, extra: Mapping[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **extra}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class _Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256
            address_family = family

            def handle_error(self, *_: object) -> None:
                pass

        self._server = _Server((host, 0), _Handler)
        if context is not None:
            # The handshake happens when the connection is first read, on its own thread.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self.port = self._server.server_address[1]
        self.name = f"localhost:{self.port}"

    def __enter__(self) -> "RegistryServer":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        with self._lock:
            self.asked.append((path, headers))
        found = self.handle(path, headers)
        if found is not None:
            return found
        content = self.contents.get(path)
        if content is None:
            return 404, {}, b'{"errors":[{"code":"UNKNOWN"}]}'
        return 200, {"Docker-Content-Digest": "sha256:" + "0" * 64}, content

    def take_pushes(self) -> None:
        """Keep what is pushed from now on, as a registry does: blobs in one piece, manifests."""

        def begin(path: str, body: bytes) -> Answer:
            if not path.endswith("/blobs/uploads/") or body:
                return 404, {}, b""
            return 202, {"Location": f"{path}7?_state=abc"}, b""

        def finish(path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
            name, _, query = path.partition("?")
            if name.endswith("/blobs/uploads/7"):
                digest = parse_qs(query).get("digest", [""])[0]
                if digest != digest_of(body) or "_state=abc" not in query:
                    return 400, {}, b'{"errors":[{"code":"DIGEST_INVALID"}]}'
                self.contents[f"{name.removesuffix('uploads/7')}{digest}"] = body
                return 201, {}, b""
            return self._take_manifest(name, body, headers)

        self.handle_post, self.handle_put = begin, finish

    def _take_manifest(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        place, _, reference = path.rpartition("/manifests/")
        document = orjson.loads(body)
        for blob in (document["config"], *document["layers"]):
            if len(self.contents.get(f"{place}/blobs/{blob['digest']}", b"")) != blob["size"]:
                return 400, {}, b'{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN"}]}'
        for name in (reference, digest_of(body)):
            self.contents[f"{place}/manifests/{name}"] = body
            self.content_types[f"{place}/manifests/{name}"] = headers["content-type"]
        return 201, {}, b""

    def put_manifest(self, repository: str, document: Json, tag: str = "") -> str:
        """Keep a manifest under its digest, and under a tag where one is given."""
        content = orjson.dumps(document)
        digest = digest_of(content)
        self.contents[f"/v2/{repository}/manifests/{digest}"] = content
        if tag:
            self.contents[f"/v2/{repository}/manifests/{tag}"] = content
        return digest

    def put_blob(self, repository: str, content: bytes) -> str:
        digest = digest_of(content)
        self.contents[f"/v2/{repository}/blobs/{digest}"] = content
        return digest

    def put_image(self, repository: str, tag: str, config: Json) -> str:
        """An image without layers."""
        blob = orjson.dumps(config)
        digest = self.put_blob(repository, blob)
        descriptor = {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest,
            "size": len(blob),
        }
        return self.put_manifest(repository, {"config": descriptor, "layers": []}, tag)
