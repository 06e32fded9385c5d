"""Settings for registries: limits of time, size and number, and TLS."""

import msgspec

from lictor.core.errors import LookupFailedError, UsageError
from lictor.http.addresses import AddressRules
from lictor.images.repository_name import HUB, Repository, parse_repository


class RegistrySettings(msgspec.Struct, frozen=True):
    """Settings of all requests; times are in seconds."""

    # One exchange, and one request with all its redirects, tokens and retries.
    exchange_seconds: float = 15.0
    connect_seconds: float = 5.0
    question_seconds: float = 30.0
    # The longest accepted Retry-After, and the number of attempts.
    longest_pause: float = 10.0
    attempts: int = 3
    # How long a tag, or its absence, is cached.
    tag_seconds: float = 0.0
    manifest_bytes: int = 4 * 1024 * 1024
    blob_bytes: int = 16 * 1024 * 1024
    # Connections to one registry and in all; and those to registries that never answered so far.
    connections_per_registry: int = 64
    connections: int = 512
    connections_to_strangers: int = 128
    connections_per_stranger: int = 8
    # Requests that may wait for a connection to one registry.
    waiting_per_registry: int = 2048
    # The cache of content by digest.
    cached_bytes: int = 64 * 1024 * 1024
    # A PEM file with authorities, besides those of the system.
    ca_file: str = ""
    # PEM authorities for one registry only, besides all others.
    authorities: tuple[tuple[str, str], ...] = ()
    # Registries without TLS, or with an unknown certificate; a star means all.
    insecure: frozenset[str] = frozenset()
    # Whether registries on loopback may lack TLS without being listed.
    plain_loopback: bool = True
    # The mirrors, by registry.
    mirrors: tuple[tuple[str, Repository], ...] = ()
    addresses: AddressRules = AddressRules()
    # The Sigstore TUF repository, and its first root, for policies that name neither.
    trust_mirror: str = ""
    trust_root: bytes = b""

    def is_insecure(self, registry: str) -> bool:
        return registry.removesuffix(":443") in self.insecure or "*" in self.insecure


def parse_mirrors(text: str, flag: str) -> tuple[tuple[str, Repository], ...]:
    """Parse `docker.io=mirror.example.com/hub, ...`: the mirrors of registries."""
    return tuple(_parse_mirror(entry, flag) for entry in split_list(text))


def _parse_mirror(entry: str, flag: str) -> tuple[str, Repository]:
    registry, _, location = entry.partition("=")
    host, _, path = location.partition("/")
    try:
        # Parsing needs a path; it is removed if there was none.
        mirror = parse_repository(f"{host}/{path or 'x'}")
        name = parse_repository(f"{registry}/x").registry
    except LookupFailedError as error:
        raise _explain(entry, flag) from error
    if not host or not registry or mirror.registry == HUB:
        raise _explain(entry, flag)
    return name, msgspec.structs.replace(mirror, path=path)


def _explain(entry: str, flag: str) -> UsageError:
    return UsageError(
        f"{flag}: {entry!r} is not a mirror: expected REGISTRY=MIRROR or REGISTRY=MIRROR/PATH, "
        "such as docker.io=mirror.example.com/hub"
    )


def split_list(text: str) -> list[str]:
    """The entries of a comma-separated list."""
    return [entry.strip() for entry in text.split(",") if entry.strip()]
