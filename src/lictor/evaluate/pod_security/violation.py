"""What a check says of a pod that it does not allow, and the words it uses."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

FORBIDDEN = "Forbidden"
REQUIRED = "Required value"

# Nothing found is the empty text.
Found: TypeAlias = str | bool | int | tuple[str, ...]


class FieldError(msgspec.Struct, frozen=True):
    """One field of the pod that breaks a control."""

    path: str
    problem: str = FORBIDDEN
    found: Found = ""


class Violation(msgspec.Struct, frozen=True):
    """One check that a pod does not meet.

    `containers` names those that a report shows the images of. Paths are those in a Pod, even where
    another resource makes the pod.
    """

    check: str
    control: str
    reason: str
    detail: str
    errors: tuple[FieldError, ...] = ()
    containers: tuple[str, ...] = ()


def forbid(path: str, found: Found = "") -> FieldError:
    """An error about a field that is there but must not be, or not with this value."""
    return FieldError(path, FORBIDDEN, found)


def require(path: str) -> FieldError:
    """An error about a field that must be there."""
    return FieldError(path, REQUIRED)


def quote(names: Iterable[str]) -> str:
    """`"a", "b"`."""
    return ", ".join(f'"{name}"' for name in names)


def count_noun(noun: str, things: Sequence[object]) -> str:
    """The noun, with an `s` unless there is exactly one thing."""
    return noun if len(things) == 1 else f"{noun}s"


def name_containers(names: Sequence[str]) -> str:
    """`container "a"`, or `containers "a", "b"`."""
    return f"{count_noun('container', names)} {quote(names)}"


def name_setters(names: Sequence[str], *, pod: bool) -> str:
    """Who set something: the pod, containers, or both."""
    setters = ["pod"] if pod else []
    if names:
        setters.append(name_containers(names))
    return " and ".join(setters)
