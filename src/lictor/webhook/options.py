"""The options of a server."""

import socket
from pathlib import Path

import msgspec

from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.http.limits import MAX_REVIEW
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.webhook.file_policies import FilePolicies
from lictor.webhook.slots import ProcessSlot, SharedFlag

MAX_IN_FLIGHT = 512


class ServeOptions(msgspec.Struct, frozen=True):
    """From the command line."""

    flags: Flags
    names: Names
    workers: int = 0
    # Policies from here, and no cluster.
    policies: tuple[Path, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    # Whose certificates clients must show; empty: all clients are accepted.
    client_authorities: str = ""
    max_body: int = MAX_REVIEW
    max_in_flight: int = MAX_IN_FLIGHT
    # A port for metrics that is bound already, instead of the one that the flags name.
    metrics: socket.socket | None = None
    # Without a turn of its loop for so many seconds, a process is replaced.
    patience: float = 8.0

    @property
    def shutdown_delay(self) -> float:
        """Seconds in which a server that ends goes on answering."""
        return parse_duration(self.flags.shutdown_delay) / NANOSECONDS


class Inherited(msgspec.Struct, frozen=True):
    """What the parent made for all its children."""

    listener: socket.socket
    metrics: socket.socket | None
    # All processes' places, for the page that adds them up.
    slots: tuple[ProcessSlot, ...]
    # A certificate to begin with, and whether it is good enough to be ready.
    certificate: bytes
    key: bytes
    is_temporary: bool
    memory_limit: int
    # Set where all processes end, and clients need time to go elsewhere.
    is_ending: SharedFlag
    # Read and compiled once for all, where they come from files.
    policies: FilePolicies | None = None
    # The Unix socket of the process that tries policies; empty: each process tries them itself.
    trials_address: str = ""
    # The Unix socket of the process that evaluates slow requests; empty where there is none.
    slow_address: str = ""
    # Is this that process? Then the listener is that socket.
    is_for_slow: bool = False
