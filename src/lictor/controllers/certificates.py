"""Keeps the certificate authority and the serving certificate of a webhook server in Secrets.

A new authority is first published beside the old one; the server gets a certificate of it only when
the webhook configurations contain it. So the API server never sees a certificate that it cannot
verify.
"""

import asyncio
import binascii
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography.x509 import Certificate

from lictor.controllers.context import ControllerContext
from lictor.controllers.loop import ReconcileLoop
from lictor.core.errors import LookupFailedError
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.raw import JsonObject
from lictor.http import keys
from lictor.http.keys import Algorithm, KeyPair
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.metrics import CERTIFICATE_EXPIRY, open_gauge
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import MUTATING_WEBHOOK, SECRET, VALIDATING_WEBHOOK

log = logging.getLogger(__name__)

MANAGED_LABEL = "cert.kyverno.io/managed-by"
MANAGED_BY = "kyverno"
WEBHOOKS_LABEL = "webhook.kyverno.io/managed-by=kyverno"
_CERT_MANAGER = "cert-manager.io/"
_TLS_TYPE = "kubernetes.io/tls"
_AUTHORITY_LIFETIME = timedelta(days=365)
_SERVING_LIFETIME = timedelta(days=150)
# API servers apply a changed webhook configuration with a short delay.
_SPREAD = timedelta(seconds=20)
_MOST_AUTHORITIES = 4
_INTERVAL = 900.0
_WAITING_INTERVAL = 5.0


class CertificateSettings(msgspec.Struct, frozen=True):
    """The Secrets, host names and lifetimes of one server's certificates."""

    namespace: str
    authority_secret: str
    serving_secret: str
    hosts: tuple[str, ...]
    algorithm: Algorithm = Algorithm.RSA
    renew_before: timedelta = timedelta(days=15)
    authority_lifetime: timedelta = _AUTHORITY_LIFETIME
    serving_lifetime: timedelta = _SERVING_LIFETIME
    spread: timedelta = _SPREAD


def choose_settings(flags: Flags, names: Names) -> CertificateSettings:
    """The settings for the certificates of the admission server."""
    return CertificateSettings(
        namespace=names.namespace,
        authority_secret=flags.ca_secret_name or names.authority_secret(),
        serving_secret=flags.tls_secret_name or names.serving_secret(),
        hosts=_list_hosts(names.service, names.namespace, flags.server_ip),
        algorithm=Algorithm(flags.tls_key_algorithm or Algorithm.RSA),
        renew_before=timedelta(seconds=parse_duration(flags.renew_before) / NANOSECONDS),
    )


def build_certificates_loop(context: ControllerContext) -> ReconcileLoop:
    """The loop that renews the certificates of the admission server."""
    settings = choose_settings(context.flags, context.names)
    caches = [
        context.watch(SECRET, namespace=settings.namespace, fields=f"metadata.name={secret}")
        for secret in (settings.authority_secret, settings.serving_secret)
    ]
    for cache in caches:
        cache.listen(show_expiry)
    rotation = CertificateRotation(context.client, settings, caches=caches)
    return rotation.loop


def show_expiry(change: Change) -> None:
    """Export the expiry of a Secret's certificate as a metric."""
    secret = change.object
    found = keys.read_certificates(read_entry(secret, "tls.crt"))
    if found and change.type is not ChangeType.DELETED:
        moment = found[0].not_valid_after_utc.timestamp()
        open_gauge(CERTIFICATE_EXPIRY).labels(secret["metadata"]["name"]).set(moment)


class Authority(msgspec.Struct, frozen=True):
    """Content of the authority's Secret: trusted certificates, and the key pair that signs."""

    trusted: tuple[Certificate, ...]
    signer: KeyPair | None = None


class CertificateRotation:
    """Creates and renews the certificates in both Secrets."""

    def __init__(
        self,
        client: Client,
        settings: CertificateSettings,
        *,
        caches: Iterable[Cache] = (),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self.loop = ReconcileLoop(
            "certmanager-controller", self.reconcile, interval=_INTERVAL, caches=caches
        )

    async def reconcile(self) -> None:
        """Check both Secrets, and renew what must be renewed."""
        authority = await self._keep_authority()
        await self._keep_serving(authority)

    async def _keep_authority(self) -> Authority:
        settings, now = self._settings, self._clock()
        secret = await self._client.find(SECRET, settings.authority_secret, settings.namespace)
        authority = read_authority(secret, now)
        why = self._find_authority_fault(authority, now)
        if not why:
            await self._drop_expired(secret, authority)
            return authority
        if secret is not None and not is_managed(secret):
            return _accept_foreign(authority, settings.authority_secret, why)
        signer = await asyncio.to_thread(
            keys.make_authority,
            f"*.{settings.namespace}.svc",
            settings.algorithm,
            now,
            settings.authority_lifetime,
        )
        trusted = (signer.certificate, *authority.trusted)[:_MOST_AUTHORITIES]
        await self._write(secret, settings.authority_secret, trusted, signer)
        log.info("authority made", extra={"secret": settings.authority_secret, "why": why})
        return Authority(trusted, signer)

    async def _drop_expired(self, secret: JsonObject | None, authority: Authority) -> None:
        found = keys.read_certificates(read_entry(secret, "tls.crt"))
        if secret is None or authority.signer is None or not is_managed(secret):
            return
        if len(found) > len(authority.trusted):
            name = self._settings.authority_secret
            await self._write(secret, name, authority.trusted, authority.signer)

    def _find_authority_fault(self, authority: Authority, now: datetime) -> str:
        signer = authority.signer
        if signer is None:
            return "there is no usable certificate authority with its key"
        if keys.find_algorithm(signer.certificate) != self._settings.algorithm:
            return f"its key is not {self._settings.algorithm}"
        before = _limit(self._settings.renew_before, self._settings.authority_lifetime)
        if signer.certificate.not_valid_after_utc - before <= now:
            return "it expires soon"
        return ""

    async def _keep_serving(self, authority: Authority) -> None:
        settings, now = self._settings, self._clock()
        secret = await self._client.find(SECRET, settings.serving_secret, settings.namespace)
        broken = find_fault(secret, authority, settings.hosts, now)
        why = broken or self._find_serving_wish(secret, authority, now)
        if not why:
            return
        if secret is not None and not is_managed(secret):
            if broken:
                raise LookupFailedError(
                    f"Secret {settings.serving_secret}: {broken}; it is not ours to renew "
                    f"(label {MANAGED_LABEL})"
                )
            return
        if authority.signer is None:
            raise LookupFailedError(
                f"Secret {settings.authority_secret}: no key to sign a serving certificate with"
            )
        if not broken and not await self._is_spread(authority, authority.signer, now):
            # The server's certificate is still trusted: wait.
            self.loop.wake_later(_WAITING_INTERVAL)
            return
        serving = await asyncio.to_thread(
            keys.make_serving,
            authority.signer,
            settings.hosts,
            settings.algorithm,
            now,
            settings.serving_lifetime,
        )
        await self._write(secret, settings.serving_secret, (serving.certificate,), serving)
        log.info("serving certificate made", extra={"secret": settings.serving_secret, "why": why})

    def _find_serving_wish(
        self, secret: JsonObject | None, authority: Authority, now: datetime
    ) -> str:
        """Why a certificate that still works should be replaced."""
        leaf = keys.read_certificates(read_entry(secret, "tls.crt"))[0]
        before = _limit(self._settings.renew_before, self._settings.serving_lifetime)
        if leaf.not_valid_after_utc - before <= now:
            return "it expires soon"
        if keys.find_algorithm(leaf) != self._settings.algorithm:
            return f"its key is not {self._settings.algorithm}"
        signer = authority.signer
        if signer is not None and not keys.is_issued_by(leaf, signer.certificate):
            return "there is a newer authority"
        return ""

    async def _is_spread(self, authority: Authority, signer: KeyPair, now: datetime) -> bool:
        """Do all webhook configurations contain the newest authority?"""
        newest = signer.certificate
        made_at = newest.not_valid_before_utc + keys.CLOCK_SKEW
        older = {item for item in authority.trusted if item != newest}
        if older and now < made_at + self._settings.spread:
            return False
        for kind in (VALIDATING_WEBHOOK, MUTATING_WEBHOOK):
            for configuration in await self._client.list(kind, labels=WEBHOOKS_LABEL):
                if not _all_trust(configuration, newest, older):
                    return False
        return True

    async def _write(
        self,
        secret: JsonObject | None,
        name: str,
        certificates: tuple[Certificate, ...],
        pair: KeyPair,
    ) -> None:
        settings = self._settings
        if secret is not None and secret.get("type") != _TLS_TYPE:
            # The type of a Secret is immutable.
            await self._client.delete(SECRET, name, settings.namespace)
            secret = None
        body = build_secret(settings.namespace, name, certificates, pair)
        if secret is None:
            await self._client.create(SECRET, body)
        else:
            # With the version that was read: of two concurrent writers, one wins.
            await self._client.replace(SECRET, {**body, "metadata": secret["metadata"]})


def build_secret(
    namespace: str, name: str, certificates: tuple[Certificate, ...], pair: KeyPair
) -> JsonObject:
    """A Secret with certificates, and the key of the first."""
    entries = {"tls.crt": keys.write_certificates(certificates), "tls.key": pair.key_pem}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {MANAGED_LABEL: MANAGED_BY}},
        "type": _TLS_TYPE,
        "data": {key: b64encode(text.encode()).decode() for key, text in entries.items()},
    }


def read_entry(secret: JsonObject | None, *names: str) -> str:
    """The first existing one of these entries of a Secret, as text."""
    entries = (secret or {}).get("data") or {}
    for name in names:
        try:
            text = b64decode(entries.get(name) or "", validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, TypeError):
            continue
        if text:
            return text
    return ""


def read_authority(secret: JsonObject | None, now: datetime) -> Authority:
    """Trusted certificates, the newest first, and the signer; without expired ones."""
    found = keys.read_certificates(read_entry(secret, "tls.crt", "rootCA.crt"))
    valid = [item for item in found if keys.is_valid_at(item, now)]
    trusted = tuple(sorted(valid, key=lambda item: item.not_valid_before_utc, reverse=True))
    key = keys.read_key(read_entry(secret, "tls.key"))
    signers = [item for item in trusted if key is not None and keys.belongs(key, item)]
    return Authority(trusted, KeyPair(signers[0], key) if signers and key is not None else None)


def is_managed(secret: JsonObject) -> bool:
    """Whether lictor manages this Secret, not someone else (cert-manager)."""
    metadata = secret["metadata"]
    if any(name.startswith(_CERT_MANAGER) for name in metadata.get("annotations") or ()):
        return False
    return (metadata.get("labels") or {}).get(MANAGED_LABEL) == MANAGED_BY


def find_fault(
    secret: JsonObject | None, authority: Authority, hosts: tuple[str, ...], now: datetime
) -> str:
    """Why a serving certificate is unusable; empty if it is usable."""
    if secret is None:
        return "there is none"
    found = keys.read_certificates(read_entry(secret, "tls.crt"))
    key = keys.read_key(read_entry(secret, "tls.key"))
    if not found or key is None:
        return "it cannot be read"
    leaf = found[0]
    if not keys.belongs(key, leaf):
        return "key and certificate do not belong together"
    if not keys.is_valid_at(leaf, now):
        return "it is not valid now"
    chain = (*authority.trusted, *found[1:])
    if not any(keys.is_issued_by(leaf, item) for item in chain):
        return "no trusted authority has signed it"
    missing = sorted(set(hosts) - keys.list_hosts(leaf))
    return f"it is not for {', '.join(missing)}" if missing else ""


def _accept_foreign(authority: Authority, name: str, why: str) -> Authority:
    """An externally managed authority: it may lack the key, but not the certificate."""
    if not authority.trusted:
        raise LookupFailedError(
            f"Secret {name}: {why}; it is not ours to renew (label {MANAGED_LABEL})"
        )
    return authority


def _all_trust(configuration: JsonObject, newest: Certificate, older: set[Certificate]) -> bool:
    """False if a webhook has an older authority of lictor, but not yet the newest."""
    for webhook in configuration.get("webhooks") or ():
        bundle = (webhook.get("clientConfig") or {}).get("caBundle")
        known = set(keys.read_certificates(read_entry({"data": {"bundle": bundle}}, "bundle")))
        if known & older and newest not in known:
            return False
    return True


def _limit(renew_before: timedelta, lifetime: timedelta) -> timedelta:
    # A period longer than the lifetime would renew all the time.
    return min(renew_before, lifetime / 2)


def _list_hosts(service: str, namespace: str, server: str) -> tuple[str, ...]:
    hosts = (service, f"{service}.{namespace}", f"{service}.{namespace}.svc")
    if not server:
        return hosts
    host = server.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    return (host, *hosts)
