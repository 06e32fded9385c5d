"""Compiles the attestors of a policy to trusted signers."""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError, LookupFailedError
from lictor.core.lang.image_reference import list_named_registries
from lictor.core.model.policy import VerifyImages
from lictor.core.model.signatures import (
    Attestor,
    AttestorSet,
    Certificates,
    CtLog,
    Keyless,
    Rekor,
    SecretReference,
    StaticKeys,
)
from lictor.core.ports import Lookups, RegistryAccess
from lictor.core.records import convert_record
from lictor.core.signatures.keys import split_keys
from lictor.core.signatures.records import (
    CosignAttestor,
    Identity,
    LogTrust,
    SignatureLocation,
    TrustedCertificate,
    TrustedIdentity,
    TrustedKey,
    TrustedNotary,
)

_KUBERNETES: Final = "k8s://"
_KEY_FIELD: Final = "cosign.pub"
_MAX_NESTING: Final = 20
BUNDLE: Final = "SigstoreBundle"
NOTARY: Final = "Notary"


class SecretKey(msgspec.Struct, frozen=True):
    """Public keys in a Secret, which is read later."""

    secret: SecretReference
    # What the keys are trusted for.
    template: TrustedKey


class UnusableAttestor(msgspec.Struct, frozen=True):
    """An attestor whose signatures are never accepted, and why."""

    reason: str


TrustedSigner: TypeAlias = CosignAttestor | TrustedNotary | SecretKey | UnusableAttestor


class WantedSigner(msgspec.Struct, frozen=True):
    """A required signer, and the location of the signatures."""

    # The field in the policy: `.attestors[0].entries[0].keys`.
    field: str
    signer: TrustedSigner
    location: SignatureLocation
    annotations: Mapping[str, str] = {}


class Quorum(msgspec.Struct, frozen=True):
    """A number of these must have signed."""

    members: "tuple[WantedSigner | Quorum, ...]"
    required: int


def compile_attestor_sets(
    sets: tuple[AttestorSet, ...], block: VerifyImages, namespace: str, field: str = ""
) -> tuple[Quorum, ...]:
    """Every set must be satisfied; `namespace` is that of the policy, empty if it has none."""
    compiler = _Compiler(block, namespace)
    return tuple(
        compiler.compile_set(each, f"{field}.attestors[{index}]", 0)
        for index, each in enumerate(sets)
    )


def compile_signer(entry: Attestor, namespace: str) -> tuple[str, TrustedSigner]:
    """The field that names the signer, and the trusted signer."""
    return _Compiler(VerifyImages(), namespace).compile_signer(entry)


class _Compiler(msgspec.Struct, frozen=True):
    block: VerifyImages
    namespace: str

    def compile_set(self, wanted: AttestorSet, field: str, depth: int) -> Quorum:
        if depth > _MAX_NESTING:
            raise CompileError("attestors are nested too deeply", where=field)
        members = tuple(
            self._compile_entry(entry, f"{field}.entries[{index}]", depth)
            for index, entry in enumerate(_expand_keys(wanted.entries))
        )
        required = wanted.count or len(members)
        # A count of zero or less would be satisfied by an unsigned image.
        if required < 1:
            raise CompileError("expected at least one required signer", where=field)
        return Quorum(members, required)

    def _compile_entry(self, entry: Attestor, field: str, depth: int) -> WantedSigner | Quorum:
        if entry.attestor is not None:
            try:
                nested = convert_record(entry.attestor, AttestorSet)
            except msgspec.ValidationError as error:
                raise CompileError(str(error), where=f"{field}.attestor") from error
            return self.compile_set(nested, f"{field}.attestor", depth + 1)
        kind, signer = self.compile_signer(entry)
        return WantedSigner(
            f"{field}{kind}",
            signer,
            self._locate(entry),
            entry.annotations or self.block.annotations,
        )

    def _locate(self, entry: Attestor) -> SignatureLocation:
        return SignatureLocation(
            access=read_access(self.block, self.namespace, entry.repository),
            repository=entry.repository or self.block.repository,
            oci11=self.block.cosign_oci11,
        )

    def compile_signer(self, entry: Attestor) -> tuple[str, TrustedSigner]:
        if self.block.type == NOTARY:
            return _compile_notary(entry)
        if entry.keys is not None:
            return ".keys", self._compile_keys(entry.keys)
        if entry.certificates is not None:
            return ".certificates", _compile_certificates(entry.certificates, entry)
        if entry.keyless is not None:
            return ".keyless", self._compile_keyless(entry.keyless)
        return "", UnusableAttestor("no signer is given")

    def _compile_keys(self, keys: StaticKeys) -> TrustedKey | SecretKey:
        trusted = TrustedKey(
            public_key=keys.public_keys or keys.kms,
            hash_name=keys.signature_algorithm,
            log=_read_log(keys.rekor, keys.ctlog),
        )
        secret = _read_secret(keys)
        if secret is None:
            return trusted
        if self.namespace and secret.namespace != self.namespace:
            raise CompileError(
                f"a Policy of namespace {self.namespace} may not read a Secret of namespace "
                f"{secret.namespace}"
            )
        return SecretKey(secret, trusted)

    def _compile_keyless(self, keyless: Keyless) -> TrustedIdentity | UnusableAttestor:
        identity = Identity(
            issuer=keyless.issuer,
            issuer_regexp=keyless.issuer_reg_exp,
            subject=keyless.subject,
            subject_regexp=keyless.subject_reg_exp,
            wildcards=self.block.type != BUNDLE,
        )
        log = _read_log(keyless.rekor, keyless.ctlog)
        if self.block.type == BUNDLE:
            if not (identity.issuer or identity.issuer_regexp) or not (
                identity.subject or identity.subject_regexp
            ):
                return UnusableAttestor(f"type {BUNDLE} needs both an issuer and a subject")
            if log.ignore_certificate_log:
                return UnusableAttestor(
                    f"type {BUNDLE} excludes ctlog.ignoreSCT: nothing would prove when the "
                    "certificate was used; remove ignoreSCT"
                )
        return TrustedIdentity(
            identities=(identity,),
            roots=keyless.roots or self.block.roots,
            borrows_intermediates=self.block.type == BUNDLE,
            extensions=keyless.additional_extensions,
            log=log,
        )


def read_access(block: VerifyImages, namespace: str, repository: str = "") -> RegistryAccess:
    """The registry credentials; `repository`: of the signatures."""
    wanted = block.image_registry_credentials
    named = list_named_registries((*block.image_references, block.repository, repository))
    if wanted is None:
        return RegistryAccess(namespace=namespace, named=named)
    return RegistryAccess(
        providers=tuple(wanted.providers),
        secrets=tuple(wanted.secrets),
        namespace=namespace,
        allow_insecure=wanted.allow_insecure_registry,
        named=named,
    )


def _expand_keys(entries: tuple[Attestor, ...]) -> Iterator[Attestor]:
    """Several keys in one text are separate attestors."""
    for entry in entries:
        if entry.keys is None:
            yield entry
            continue
        for key in split_keys(entry.keys.public_keys):
            yield replace(entry, keys=replace(entry.keys, public_keys=key))


def _read_secret(keys: StaticKeys) -> SecretReference | None:
    if keys.public_keys:
        written = keys.public_keys.strip()
        namespace, slash, name = written.removeprefix(_KUBERNETES).partition("/")
        is_secret = written.startswith(_KUBERNETES) and slash and name
        return SecretReference(name, namespace) if is_secret else None
    return keys.secret


def _read_log(rekor: Rekor | None, ctlog: CtLog | None) -> LogTrust:
    rekor, ctlog = rekor or Rekor(), ctlog or CtLog()
    return LogTrust(
        public_keys=rekor.pubkey,
        ignore_log=rekor.ignore_tlog,
        certificate_log_keys=ctlog.pubkey,
        ignore_certificate_log=ctlog.ignore_sct,
        timestamp_chain=ctlog.tsa_cert_chain,
        url=rekor.url,
    )


def _compile_certificates(wanted: Certificates, entry: Attestor) -> TrustedCertificate:
    return TrustedCertificate(
        certificate=wanted.cert,
        chain=wanted.cert_chain,
        hash_name=entry.signature_algorithm,
        log=_read_log(wanted.rekor, wanted.ctlog),
    )


def _compile_notary(entry: Attestor) -> tuple[str, TrustedSigner]:
    if entry.certificates is None:
        return "", UnusableAttestor("Notary needs certificates: set certificates")
    wanted = entry.certificates
    certificates = "\n".join(filter(None, (wanted.cert, wanted.cert_chain)))
    stamps = wanted.ctlog.tsa_cert_chain if wanted.ctlog is not None else ""
    return ".certificates", TrustedNotary(certificates, stamps)


def read_secret_keys(wanted: SecretKey, lookups: Lookups) -> tuple[TrustedKey, ...]:
    """The current keys of the Secret."""
    where = f"Secret {wanted.secret.namespace}/{wanted.secret.name}"
    found = lookups.resource("v1", "Secret", wanted.secret.namespace, wanted.secret.name)
    data = found.get("data") if found is not None else None
    if not isinstance(data, dict):
        raise LookupFailedError(f"{where} with the public key not found")
    text = data.get(_KEY_FIELD)
    try:
        keys = b64decode(text, validate=True).decode() if isinstance(text, str) else ""
    except (Base64Error, UnicodeDecodeError) as error:
        raise LookupFailedError(f"{where}: {_KEY_FIELD} is not base64") from error
    if not keys:
        raise LookupFailedError(f"{where} has no field {_KEY_FIELD} with a public key")
    return tuple(replace(wanted.template, public_key=key) for key in split_keys(keys))
