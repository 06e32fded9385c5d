"""The server's certificate, which can be replaced while connections are open."""

import logging
import os
import ssl
from base64 import b64decode
from binascii import Error as Base64Error

from lictor.core.raw import JsonObject

log = logging.getLogger(__name__)

# Forward secrecy and authenticated encryption only, as in TLS 1.3.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class LiveCertificate:
    """A TLS context with a replaceable certificate. Open connections keep the old one."""

    def __init__(self, clients: str = "", *, refuses_strangers: bool = False) -> None:
        """`clients`: certificates of the authorities for client certificates.

        `refuses_strangers`: the handshake fails without a client certificate.
        """
        self._clients = clients
        self._refuses_strangers = refuses_strangers
        # A context may have one certificate for each type of key, and clients choose, so an old one
        # of another type would remain. Therefore each handshake gets a fresh context.
        self.context = self._build()
        self.context.sni_callback = self._hand_over
        self._current = self.context
        self._pair: tuple[bytes, bytes] | None = None

    def load(self, certificate: bytes, key: bytes) -> bool:
        """Replace the certificate; False if it is the same, or unusable."""
        if (certificate, key) == self._pair:
            return False
        fresh = self._build()
        try:
            _load(fresh, certificate, key)
            if self._pair is None:
                # A context without a certificate cannot start a handshake.
                _load(self.context, certificate, key)
        except (ssl.SSLError, OSError, ValueError) as error:
            log.error("serving certificate unusable", extra={"why": str(error)})
            return False
        self._current = fresh
        self._pair = (certificate, key)
        return True

    def load_clients(self, clients: str) -> bool:
        """Replace the authorities of clients; False if they are the same."""
        if clients == self._clients or self._pair is None:
            return False
        try:
            fresh = _build_context(clients)
            _load(fresh, *self._pair)
            if self._refuses_strangers:
                fresh.verify_mode = ssl.CERT_REQUIRED
        except (ssl.SSLError, OSError, ValueError) as error:
            log.error("client certificate authorities unusable", extra={"why": str(error)})
            return False
        self._clients = clients
        # OpenSSL takes verify_mode from the first context, and the trust store from the second.
        self._current = fresh
        return True

    def _build(self) -> ssl.SSLContext:
        context = _build_context(self._clients)
        if self._refuses_strangers:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _hand_over(self, connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = self._current


def _build_context(clients: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if clients:
        context.load_verify_locations(cadata=clients)
        # Optional: the kubelet's probes have no certificate. See `http`.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The ssl module reads from files only: this one never reaches a disk."""
    file = os.memfd_create("certificate")
    try:
        os.write(file, certificate.rstrip() + b"\n" + key.rstrip() + b"\n")
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def read_secret(secret: JsonObject) -> tuple[bytes, bytes] | None:
    """Certificate and key of a TLS Secret; None if it is incomplete."""
    data = secret.get("data")
    if not isinstance(data, dict):
        return None
    try:
        certificate = b64decode(data.get("tls.crt") or "")
        key = b64decode(data.get("tls.key") or "")
    except (Base64Error, ValueError, TypeError):
        return None
    return (certificate, key) if certificate and key else None


def make_temporary(hosts: tuple[str, ...]) -> tuple[bytes, bytes]:
    """A self-signed certificate, to serve probes before the real one is available."""
    from datetime import UTC, datetime, timedelta

    from lictor.http.keys import Algorithm, make_authority, make_serving

    now, lifetime = datetime.now(UTC), timedelta(days=365)
    authority = make_authority("lictor", Algorithm.ECDSA, now, lifetime)
    pair = make_serving(authority, hosts, Algorithm.ECDSA, now, lifetime)
    return pair.certificate_pem.encode(), pair.key_pem.encode()
