"""What is tried: each target makes an input, runs a part of the house on it, and judges that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strategies.source import Source

from lictor.core.errors import LictorError

Parts = Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """A part of the house under trial. `share` is its part of all inputs, in relation to others."""

    name: str
    share: int
    make: Callable[[Source], Parts]
    run: Callable[..., object]
    # What it may raise besides nothing; any other exception is a bug.
    allowed: tuple[type[Exception], ...] = (LictorError,)


def all_targets() -> tuple[Target, ...]:
    """Every target there is."""
    from engine_targets import ENGINE_TARGETS
    from lang_targets import LANG_TARGETS
    from load_targets import LOAD_TARGETS

    return (*LANG_TARGETS, *LOAD_TARGETS, *ENGINE_TARGETS)
