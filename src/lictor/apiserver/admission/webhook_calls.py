"""Calls of webhooks over connections that stay open; why one failed, in Kubernetes' words."""

import asyncio
import socket
import ssl
from urllib.parse import urlsplit

import orjson

from lictor.apiserver.admission.service_addresses import ServiceAddresses
from lictor.apiserver.admission.webhooks import Address, Hook
from lictor.apiserver.reading import ObjectReader, read_text
from lictor.cluster.wire import Reply, Wire
from lictor.errors import LookupFailedError

_CONNECTIONS = 64
_MAX_WIRES = 64
_HEADERS = (
    ("accept", "application/json, */*"),
    ("content-type", "application/json"),
    ("user-agent", "lictor"),
)
_NODELAY = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)
_WORDS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be "
    "processing the request",
}


class WebhookCaller:
    """Connections to all webhooks. Belongs to one event loop."""

    def __init__(self, reader: ObjectReader) -> None:
        self._addresses = ServiceAddresses(reader)
        # Where it leads, whom it trusts and by which name.
        self._wires: dict[tuple[str, bytes, str], Wire] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def call(self, hook: Hook, body: bytes) -> bytes:
        """Send a review; raises LookupFailedError where no answer came in time."""
        address = hook.address
        url, path = _split(address)
        try:
            wire = self._find_wire(address, url)
            async with asyncio.timeout(hook.seconds):
                reply = await self._send(wire, f"{path}?timeout={hook.seconds}s", body, hook)
        except (OSError, LookupFailedError) as error:
            where = f"{url}{path}?timeout={hook.seconds}s"
            raise LookupFailedError(f'Post "{where}": {_explain(error, url)}') from error
        if reply.status_code != 200:
            raise LookupFailedError(_explain_status(reply))
        return reply.content

    async def close(self) -> None:
        """End all connections."""
        for wire in self._wires.values():
            await wire.close()
        self._wires.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _send(self, wire: Wire, path: str, body: bytes, hook: Hook) -> Reply:
        try:
            return await self._send_once(wire, path, body, hook)
        except ConnectionError as error:
            # A kept connection may be closed by the webhook just when we use it again.
            if isinstance(error, ConnectionRefusedError):
                raise
            return await self._send_once(wire, path, body, hook)

    async def _send_once(self, wire: Wire, path: str, body: bytes, hook: Hook) -> Reply:
        return await wire.send(
            "POST", path, content=body, params=None, headers=_HEADERS, limit=hook.seconds
        )

    def _find_wire(self, address: Address, url: str) -> Wire:
        server_name = ""
        if address.service:
            host, port = self._addresses.find(address.namespace, address.service, address.port)
            server_name = f"{address.service}.{address.namespace}.svc"
            url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        key = (url, address.ca, server_name)
        found = self._wires.get(key)
        if found is None:
            self._make_room()
            found = self._wires[key] = Wire(
                url,
                _trust(address.ca),
                connections=_CONNECTIONS,
                server_name=server_name,
                socket_options=_NODELAY,
            )
        return found

    def _make_room(self) -> None:
        while len(self._wires) >= _MAX_WIRES:
            oldest = next(iter(self._wires))
            task = asyncio.get_running_loop().create_task(self._wires.pop(oldest).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _split(address: Address) -> tuple[str, str]:
    """The webhook's URL up to its path, and the path."""
    if address.service:
        host = f"{address.service}.{address.namespace}.svc"
        return f"https://{host}:{address.port}", "/" + address.path.lstrip("/")
    parts = urlsplit(address.url)
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"


def _trust(ca: bytes) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise LookupFailedError(
            "unable to load root certificates: unable to parse bytes as PEM block"
        ) from error
    # Authorities of clusters often lack extensions that newer Pythons insist on; Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _explain(error: Exception, url: str) -> str:
    """Why there is no answer, as Go says it."""
    host = urlsplit(url).netloc
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {_explain_certificate(error)}"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {urlsplit(url).hostname}: no such host"
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {host}: connect: connection refused"
    if isinstance(error, ConnectionResetError):
        return "read: connection reset by peer"
    if isinstance(error, ConnectionError):
        return "EOF"
    return str(error)


def _explain_certificate(error: ssl.SSLCertVerificationError) -> str:
    told = error.verify_message
    if "self-signed" in told or "self signed" in told or "unable to get" in told:
        return "certificate signed by unknown authority"
    if "expired" in told:
        return "certificate has expired or is not yet valid"
    return told


def _explain_status(reply: Reply) -> str:
    try:
        status = orjson.loads(reply.content)
    except orjson.JSONDecodeError:
        status = None
    if read_text(status, "kind") == "Status" and read_text(status, "message"):
        return read_text(status, "message")
    known = _WORDS.get(reply.status_code)
    if known is not None:
        return known
    is_text = reply.headers.get("content-type", "text/").startswith("text/")
    text = orjson.dumps(reply.text.strip() if is_text else "unknown").decode()
    return f"an error on the server ({text}) has prevented the request from succeeding"
