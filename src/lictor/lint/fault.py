"""What is wrong with a document, by its path: lines and files are somebody else's business."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TypeAlias

import msgspec

Path: TypeAlias = tuple[str | int, ...]


class Spot(msgspec.Struct, frozen=True):
    """A place within a text: an offset in characters."""

    text: str
    offset: int


class Fault(msgspec.Struct, frozen=True):
    """Something wrong at a path; `check` is the name of the check that found it."""

    check: str
    path: Path
    message: str
    suggestion: str = ""
    spot: Spot | None = None


Faults: TypeAlias = Iterable[Fault]


def suggest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known word that is most like this one, whatever the case; empty where none is."""
    folded = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else ""


def gather(checks: Iterable[Callable[..., Faults]], *given: object) -> list[Fault]:
    """What all the checks find in the same things."""
    return [fault for check in checks for fault in check(*given)]
