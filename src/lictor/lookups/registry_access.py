"""Registry settings in a cluster: from flags and Secrets."""

import os
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_network
from pathlib import Path

import orjson

from lictor.core.errors import ApiError, LookupFailedError, NotFoundError, UsageError
from lictor.core.lang.networks import INSIDE, LOOPBACK, METADATA
from lictor.core.raw import Json, JsonObject
from lictor.http.addresses import AddressRules
from lictor.images.credentials import CredentialSources
from lictor.images.repository_name import Repository
from lictor.images.settings import RegistrySettings, parse_mirrors, split_list
from lictor.images.trust_roots import check_mirror
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import SECRET

PROVIDERS = ("default", "google", "amazon", "azure", "github")
# Every Pod has this variable.
_POD_VARIABLE = "KUBERNETES_SERVICE_HOST"


def read_registry_settings(flags: Flags, *, in_pod: bool | None = None) -> RegistrySettings:
    """The settings from the flags; raises UsageError for an invalid entry."""
    insecure = set(_read_registries(flags.insecure_registries))
    if flags.allow_insecure_registry:
        insecure.add("*")
    if flags.registry_ca and not os.path.isfile(flags.registry_ca):
        raise UsageError(f"--registryCA: {flags.registry_ca} is not a file")
    mirror, root = _read_trust(flags)
    mirrors = parse_mirrors(flags.registry_mirrors, "--registryMirrors")
    in_pod = _POD_VARIABLE in os.environ if in_pod is None else in_pod
    return RegistrySettings(
        trust_mirror=mirror,
        trust_root=root,
        ca_file=flags.registry_ca,
        insecure=frozenset(insecure),
        mirrors=mirrors,
        addresses=_read_addresses(flags, (mirror for _, mirror in mirrors), in_pod=in_pod),
    )


def _read_trust(flags: Flags) -> tuple[str, bytes]:
    """The TUF repository of a private Sigstore, and its first root."""
    if not flags.enable_tuf:
        return "", b""
    try:
        mirror = check_mirror(flags.tuf_mirror) if flags.tuf_mirror else ""
        root = flags.tuf_root_raw.encode() or (
            Path(flags.tuf_root).read_bytes() if flags.tuf_root else b""
        )
    except LookupFailedError as error:
        raise UsageError(f"--tufMirror: {error}") from error
    except OSError as error:
        raise UsageError(f"--tufRoot: {error}; URLs are not read, only files") from error
    return mirror, root


def _read_addresses(flags: Flags, mirrors: Iterable[Repository], *, in_pod: bool) -> AddressRules:
    blocked = tuple(split_list(flags.registry_blocklist))
    for entry in blocked:
        if "/" in entry:
            _check_network(entry)
    named = (flags.registry_allowlist, flags.insecure_registries)
    # Outside of a Pod the machine is the user's, and so are its listening ports.
    for_objects = tuple(entry for entry in INSIDE if in_pod or entry not in LOOPBACK)
    return AddressRules(
        blocked=METADATA + blocked,
        blocked_for_objects=for_objects,
        allowed=frozenset(
            [each for text in named for each in _read_registries(text)]
            + [mirror.registry for mirror in mirrors]
        ),
    )


def _read_registries(text: str) -> Iterator[str]:
    # The default port is omitted in registry names.
    return (entry.removesuffix(":443") for entry in split_list(text))


def _check_network(entry: str) -> None:
    try:
        ip_network(entry, strict=False)
    except ValueError as error:
        raise UsageError(f"--registryBlocklist: invalid CIDR {entry!r}: {error}") from error


def build_sources(flags: Flags, namespace: str, get: Callable[[str], Json]) -> CredentialSources:
    """The sources of credentials; `get` reads a path from the API server."""
    providers = tuple(split_list(flags.registry_credential_helpers))
    for provider in providers:
        if provider not in PROVIDERS:
            raise UsageError(
                f"--registryCredentialHelpers: {provider!r} is not one of {', '.join(PROVIDERS)}"
            )
    return CredentialSources(
        read_secret=lambda space, name: _read_secret(get, space, name),
        namespace=namespace,
        secrets=tuple(split_list(flags.image_pull_secrets)),
        providers=providers,
    )


def _read_secret(get: Callable[[str], Json], namespace: str, name: str) -> bytes:
    """The Docker configuration in a Secret."""
    what = f"Secret {namespace}/{name}"
    if "/" in name:
        raise LookupFailedError(f"{what}: a policy names Secrets without a namespace")
    try:
        secret = get(SECRET.path(namespace, name))
    except NotFoundError:
        raise LookupFailedError(
            f"{what} with registry credentials not found; create it with "
            "`kubectl create secret docker-registry`"
        ) from None
    except ApiError as error:
        raise LookupFailedError(
            f"{what} with registry credentials cannot be read: {error}; lictor's service "
            "accounts need `get` on it (docs/guides/verify-images.md)"
        ) from error
    return _decode(secret, what)


def _decode(secret: Json, what: str) -> bytes:
    data = secret.get("data") if isinstance(secret, dict) else None
    data = data if isinstance(data, dict) else {}
    content = _decode_entry(data, ".dockerconfigjson")
    if content is not None:
        return content
    older = _decode_entry(data, ".dockercfg")
    if older is not None:
        return b'{"auths":' + older + b"}"
    raise LookupFailedError(f"{what} is not of the type kubernetes.io/dockerconfigjson")


def _decode_entry(data: JsonObject, key: str) -> bytes | None:
    text = data.get(key)
    if not isinstance(text, str):
        return None
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return orjson.dumps(None)
