"""The certificate that the server shows, changed while connections are open."""

import logging
import os
import ssl
from base64 import b64decode
from binascii import Error as Base64Error

from lictor.core.raw import JsonObject

log = logging.getLogger(__name__)

# Forward secrecy and authenticated encryption only; TLS 1.3 has nothing else.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class LiveCertificate:
    """A TLS context whose certificate can change. Connections that are open keep the old one."""

    def __init__(self, clients: str = "", *, refuses_strangers: bool = False) -> None:
        """`clients`: certificates of authorities that clients' certificates must be signed by.

        `refuses_strangers`: who shows none does not even get through the handshake.
        """
        self._clients = clients
        self._refuses_strangers = refuses_strangers
        # A context may hold one certificate for each kind of key and clients choose, so that an old
        # one of another kind would stay. Each handshake is therefore handed to a fresh context.
        self.context = self._build()
        self.context.sni_callback = self._hand_over
        self._current = self.context
        self._pair: tuple[bytes, bytes] | None = None

    def load(self, certificate: bytes, key: bytes) -> bool:
        """Show another certificate from now on; False where it is the same, or unusable."""
        if (certificate, key) == self._pair:
            return False
        fresh = self._build()
        try:
            _load(fresh, certificate, key)
            if self._pair is None:
                # Until a context has any certificate, it cannot even begin a handshake.
                _load(self.context, certificate, key)
        except (ssl.SSLError, OSError, ValueError) as error:
            log.error("serving certificate unusable", extra={"why": str(error)})
            return False
        self._current = fresh
        self._pair = (certificate, key)
        return True

    def load_clients(self, clients: str) -> bool:
        """Heed other authorities of clients from now on; False where they are the same."""
        if clients == self._clients or self._pair is None:
            return False
        try:
            fresh = _build_context(clients)
            _load(fresh, *self._pair)
            if self._refuses_strangers:
                fresh.verify_mode = ssl.CERT_REQUIRED
        except (ssl.SSLError, OSError, ValueError) as error:
            log.error("authorities of clients unusable", extra={"why": str(error)})
            return False
        self._clients = clients
        # OpenSSL takes whether to ask from the first context, and whom to trust from the second.
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
        # Not required: the kubelet asks after our health without one. See `http`.
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
    """Certificate and key of a TLS Secret; None where it is not whole."""
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
    """A certificate that nobody trusts: to be alive before the real one is there."""
    from datetime import UTC, datetime, timedelta

    from lictor.http.keys import Algorithm, make_authority, make_serving

    now, lifetime = datetime.now(UTC), timedelta(days=365)
    authority = make_authority("lictor", Algorithm.ECDSA, now, lifetime)
    pair = make_serving(authority, hosts, Algorithm.ECDSA, now, lifetime)
    return pair.certificate_pem.encode(), pair.key_pem.encode()
