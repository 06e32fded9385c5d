"""The authority of all policy servers and the certificate of each, in Secrets as Kubewarden's.

A new authority is shown to API servers beside the old one before any server has a certificate of
it: at no moment does an API server meet a certificate that it cannot verify.
"""

import asyncio
import logging
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography.x509 import Certificate

from lictor.addons.kubewarden.controller.objects import build_owner, label_common
from lictor.addons.kubewarden.family.policy_server import (
    AUTHORITY_SECRET,
    KUBEWARDEN,
    PART_OF,
    PolicyServer,
)
from lictor.controllers.certificates import read_entry
from lictor.core.raw import JsonObject
from lictor.http import keys
from lictor.http.keys import Algorithm, KeyPair
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import SECRET

log = logging.getLogger(__name__)

_AUTHORITY_LIFETIME = timedelta(days=3650)
_SERVING_LIFETIME = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=60)
# So long after a new authority was made, all API servers know it.
_SPREAD = timedelta(seconds=20)


class ServerAuthority(msgspec.Struct, frozen=True):
    """Who signs the certificates of policy servers, and whom API servers trust."""

    signer: KeyPair
    # The one before, as long as servers may have certificates of it.
    older: tuple[Certificate, ...] = ()

    @property
    def bundle(self) -> str:
        """What webhook configurations name: base64 of PEM."""
        trusted = (self.signer.certificate, *self.older)
        return b64encode(keys.write_certificates(trusted).encode()).decode()

    def is_spread(self, now: datetime) -> bool:
        """Was it made long enough ago that every API server has heard of it?"""
        made = self.signer.certificate.not_valid_before_utc + keys.CLOCK_SKEW
        return not self.older or now >= made + _SPREAD


class ServerCertificates:
    """Makes and renews the Secrets."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock

    async def keep_authority(self) -> ServerAuthority:
        """The authority, made where there is none and renewed before it ends."""
        now = self._clock()
        secret = await self._client.find(SECRET, AUTHORITY_SECRET, self._namespace)
        known = _read_authority(secret, now)
        if known is not None and not _ends_soon(known.signer.certificate, now):
            return known
        signer = await asyncio.to_thread(
            keys.make_authority, "Kubewarden CA", Algorithm.ECDSA, now, _AUTHORITY_LIFETIME
        )
        older = (known.signer.certificate,) if known is not None else ()
        entries = {"ca.crt": signer.certificate_pem, "ca.key": signer.key_pem}
        if older:
            entries["old-ca.crt"] = keys.write_certificates(older)
        metadata = {"name": AUTHORITY_SECRET, "labels": {PART_OF: KUBEWARDEN}}
        await self._write(secret, metadata, entries)
        log.info("authority of policy servers made", extra={"secret": AUTHORITY_SECRET})
        return ServerAuthority(signer, older)

    async def keep_serving(self, server: PolicyServer, authority: ServerAuthority) -> None:
        """The certificate of a server, made where there is none that API servers trust."""
        now = self._clock()
        secret = await self._client.find(SECRET, server.full_name, self._namespace)
        why = self._find_fault(server, secret, authority, now)
        if not why:
            return
        made = await asyncio.to_thread(
            keys.make_serving,
            authority.signer,
            self._list_hosts(server),
            Algorithm.ECDSA,
            now,
            _SERVING_LIFETIME,
        )
        metadata: JsonObject = {
            "name": server.full_name,
            "labels": label_common(server),
            "ownerReferences": [build_owner(server)],
        }
        entries = {"tls.crt": made.certificate_pem, "tls.key": made.key_pem}
        await self._write(secret, metadata, entries)
        told = {"secret": server.full_name, "why": why}
        log.info("certificate of a policy server made", extra=told)

    def _find_fault(
        self,
        server: PolicyServer,
        secret: JsonObject | None,
        authority: ServerAuthority,
        now: datetime,
    ) -> str:
        found = keys.read_certificates(read_entry(secret, "tls.crt"))
        key = keys.read_key(read_entry(secret, "tls.key"))
        if not found or key is None or not keys.belongs(key, found[0]):
            return "there is none that can be read"
        leaf = found[0]
        if set(self._list_hosts(server)) - keys.list_hosts(leaf):
            return "it is for other names"
        if _ends_soon(leaf, now):
            return "it ends soon"
        if keys.is_issued_by(leaf, authority.signer.certificate):
            return ""
        trusted = any(keys.is_issued_by(leaf, each) for each in authority.older)
        if trusted and not authority.is_spread(now):
            return ""
        return "there is a newer authority"

    def _list_hosts(self, server: PolicyServer) -> tuple[str, ...]:
        return (f"{server.full_name}.{self._namespace}.svc",)

    async def _write(
        self, secret: JsonObject | None, metadata: JsonObject, entries: dict[str, str]
    ) -> None:
        body: JsonObject = {
            "metadata": {**metadata, "namespace": self._namespace},
            "type": "Opaque",
            "data": {key: b64encode(text.encode()).decode() for key, text in entries.items()},
        }
        if secret is None:
            await self._client.create(SECRET, body)
            return
        # With the version that was read: of two who do this at once, one wins.
        kept = {**secret["metadata"], **metadata}
        kind = secret.get("type") or "Opaque"
        await self._client.replace(SECRET, {**body, "metadata": kept, "type": kind})


def _read_authority(secret: JsonObject | None, now: datetime) -> ServerAuthority | None:
    found = keys.read_certificates(read_entry(secret, "ca.crt"))
    key = keys.read_key(read_entry(secret, "ca.key"))
    if not found or key is None or not keys.belongs(key, found[0]):
        return None
    if not keys.is_valid_at(found[0], now):
        return None
    older = keys.read_certificates(read_entry(secret, "old-ca.crt"))
    return ServerAuthority(
        KeyPair(found[0], key), tuple(each for each in older if keys.is_valid_at(each, now))
    )


def _ends_soon(certificate: Certificate, now: datetime) -> bool:
    return certificate.not_valid_after_utc - _RENEW_BEFORE <= now
