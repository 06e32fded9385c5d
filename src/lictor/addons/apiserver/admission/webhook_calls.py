"""Calls of webhooks over connections that stay open; why one failed, in Kubernetes' words."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from itertools import count
from urllib.parse import urlsplit

import orjson

from lictor.addons.apiserver.admission.webhooks import Webhook, WebhookAddress
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.core.errors import LookupFailedError, UnknownHostError
from lictor.core.raw import Json, JsonObject
from lictor.http.client import ClientResponse, HttpClient

_DISCOVERY = "discovery.k8s.io"
_OWNER = "kubernetes.io/service-name"
_MAX_KNOWN = 256
HostPort = tuple[str, int]


class ServiceAddresses:
    """Knows the addresses of Services until something about them changes."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader
        self._known: dict[tuple[str, str, int], tuple[HostPort, ...]] = {}
        self._turn = count()
        for group, plural in (("", "services"), ("", "endpoints"), (_DISCOVERY, "endpointslices")):
            reader.on_change(group, plural, self._known.clear)

    def find(self, namespace: str, name: str, port: int) -> HostPort:
        """One of the addresses, each in its turn; raises LookupFailedError where there is none."""
        key = (namespace, name, port)
        places = self._known.get(key)
        if places is None:
            places = tuple(self._resolve(*key))
            if not places:
                raise LookupFailedError(f'no endpoints available for service "{name}"')
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = places
        return places[next(self._turn) % len(places)]

    def _resolve(self, namespace: str, name: str, port: int) -> Iterator[HostPort]:
        service = self._reader.get("", "services", namespace, name)
        if service is None:
            raise LookupFailedError(f'service "{name}" not found')
        spec = read_object(service, "spec")
        if read_text(spec, "type") == "ExternalName":
            yield read_text(spec, "externalName"), port
            return
        word = _name_port(spec, name, port)
        found = [*self._read_slices(namespace, name, word)]
        yield from found or self._read_endpoints(namespace, name, word)

    def _read_slices(self, namespace: str, name: str, word: str) -> Iterator[HostPort]:
        for each in self._reader.list(_DISCOVERY, "endpointslices", namespace):
            labels = read_object(read_object(each, "metadata"), "labels")
            number = _find_port(read_list(each, "ports"), word)
            if labels.get(_OWNER) != name or number is None:
                continue
            for endpoint in read_list(each, "endpoints"):
                # Without a condition an endpoint is ready.
                if read_object(endpoint, "conditions").get("ready") is not False:
                    for address in read_list(endpoint, "addresses"):
                        yield str(address), number

    def _read_endpoints(self, namespace: str, name: str, word: str) -> Iterator[HostPort]:
        endpoints = self._reader.get("", "endpoints", namespace, name)
        for subset in read_list(endpoints, "subsets"):
            number = _find_port(read_list(subset, "ports"), word)
            if number is not None:
                for address in read_list(subset, "addresses"):
                    yield read_text(address, "ip"), number


def _name_port(spec: JsonObject, name: str, port: int) -> str:
    for each in read_list(spec, "ports"):
        if isinstance(each, dict) and each.get("port") == port:
            return read_text(each, "name")
    raise LookupFailedError(f'no service port {port} found for service "{name}"')


def _find_port(ports: list[Json], word: str) -> int | None:
    for each in ports:
        number = each.get("port") if isinstance(each, dict) else None
        if read_text(each, "name") == word and isinstance(number, int):
            return number
    return None


_CONNECTIONS = 64
_MAX_WIRES = 64
_HEADERS = (
    ("accept", "application/json, */*"),
    ("content-type", "application/json"),
    ("user-agent", "lictor"),
)
# Codes of OpenSSL: no issuer, a self-signed certificate, one in the chain, no local issuer.
_UNKNOWN_AUTHORITY = frozenset((2, 18, 19, 20))
_EXPIRED = 10
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
        self._wires: dict[tuple[str, bytes, str], HttpClient] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def call(self, hook: Webhook, body: bytes) -> bytes:
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

    async def _send(
        self, wire: HttpClient, path: str, body: bytes, hook: Webhook
    ) -> ClientResponse:
        try:
            return await self._send_once(wire, path, body, hook)
        except ConnectionError as error:
            # A kept connection may be closed by the webhook just when we use it again.
            if isinstance(error, ConnectionRefusedError):
                raise
            return await self._send_once(wire, path, body, hook)

    async def _send_once(
        self, wire: HttpClient, path: str, body: bytes, hook: Webhook
    ) -> ClientResponse:
        return await wire.send(
            "POST", path, content=body, params=None, headers=_HEADERS, limit=hook.seconds
        )

    def _find_wire(self, address: WebhookAddress, url: str) -> HttpClient:
        server_name = ""
        if address.service:
            host, port = self._addresses.find(address.namespace, address.service, address.port)
            server_name = f"{address.service}.{address.namespace}.svc"
            url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        key = (url, address.ca, server_name)
        found = self._wires.get(key)
        if found is None:
            self._close_oldest()
            found = self._wires[key] = HttpClient(
                url,
                _trust(address.ca),
                connections=_CONNECTIONS,
                server_name=server_name,
                socket_options=_NODELAY,
            )
        return found

    def _close_oldest(self) -> None:
        while len(self._wires) >= _MAX_WIRES:
            oldest = next(iter(self._wires))
            task = asyncio.get_running_loop().create_task(self._wires.pop(oldest).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _split(address: WebhookAddress) -> tuple[str, str]:
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
    """Why there is no answer, as Go reports it."""
    host = urlsplit(url).netloc
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {_explain_certificate(error)}"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if isinstance(error, UnknownHostError):
        return f"dial tcp: lookup {urlsplit(url).hostname}: no such host"
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {host}: connect: connection refused"
    if isinstance(error, ConnectionResetError):
        return "read: connection reset by peer"
    if isinstance(error, ConnectionError):
        return "EOF"
    return str(error)


def _explain_certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return "certificate signed by unknown authority"
    if error.verify_code == _EXPIRED:
        return "certificate has expired or is not yet valid"
    return error.verify_message


def _explain_status(reply: ClientResponse) -> str:
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
