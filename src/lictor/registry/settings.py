"""How registries are asked: limits on time, size and number, and who may be asked at all."""

import msgspec


class RegistrySettings(msgspec.Struct, frozen=True):
    """What holds for every question; times are in seconds."""

    # One exchange, and one question with all its redirects, tokens and repetitions.
    exchange_seconds: float = 15.0
    connect_seconds: float = 5.0
    question_seconds: float = 30.0
    # For how long a tag, or its absence, is believed without asking again.
    tag_seconds: float = 0.0
    manifest_bytes: int = 4 * 1024 * 1024
    blob_bytes: int = 16 * 1024 * 1024
    # Connections to one registry and in all; and those to registries that never answered so far.
    connections_per_registry: int = 64
    connections: int = 512
    connections_to_strangers: int = 128
    # Questions that may wait for a connection to one registry.
    waiting_per_registry: int = 2048
    # Content that is kept by its digest.
    cached_bytes: int = 64 * 1024 * 1024
