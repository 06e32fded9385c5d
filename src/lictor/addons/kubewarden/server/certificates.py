"""Certificate, key and client authorities of a policy server from files, anew when they change."""

import asyncio
import logging
import ssl
from pathlib import Path

from lictor.addons.kubewarden.server.options import PolicyServerOptions
from lictor.core.errors import LoadError
from lictor.core.files import look_at
from lictor.http.serving_certificate import LiveCertificate

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0


class CertificateFiles:
    """The files, and the TLS context that follows them."""

    def __init__(self, certificate: Path, key: Path, authorities: tuple[Path, ...]) -> None:
        """Read them; LoadError where they are no certificate, key and authorities."""
        self._certificate = certificate
        self._key = key
        self._authorities = authorities
        self._seen = self._look()
        clients = self._read_clients()
        self.live = LiveCertificate(clients, refuses_strangers=bool(authorities))
        if not self.live.load(_read(certificate), _read(key)):
            raise LoadError("not a certificate and its private key", where=f"{certificate}, {key}")

    async def follow(self) -> None:
        """Take over what changes, once it fits together; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._reload()

    def _reload(self) -> None:
        try:
            pair = _read(self._certificate), _read(self._key)
            clients = self._read_clients()
        except LoadError as error:
            log.error("certificates not taken, those from before stay", extra={"why": str(error)})
            return
        # A certificate whose key has not come yet does not load, and nothing changes until it does.
        if self.live.load(*pair):
            log.info("serving certificate taken into use")
        if self.live.load_clients(clients):
            log.info("authorities of clients taken into use")

    def _look(self) -> list[tuple[int, ...]]:
        return [look_at(str(file)) for file in (self._certificate, self._key, *self._authorities)]

    def _read_clients(self) -> str:
        return "\n".join(map(_read_authorities, self._authorities))


def open_certificates(options: PolicyServerOptions) -> CertificateFiles | None:
    """None where the server speaks plain HTTP."""
    if options.certificate is None or options.key is None:
        return None
    return CertificateFiles(options.certificate, options.key, options.client_authorities)


def _read_authorities(file: Path) -> str:
    try:
        text = _read(file).decode("ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (ValueError, ssl.SSLError) as error:
        raise LoadError("holds no certificates in PEM", where=str(file)) from error
    return text


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=str(file)) from error
