"""One function of CEL: its name, its signature, and the Python that answers it."""

from collections.abc import Callable

import msgspec

from lictor.lang.cel.kinds import Kind, parse_kind
from lictor.raw import Json

Implementation = Callable[..., Json]


class Overload(msgspec.Struct, frozen=True):
    """One way to call a function; the first parameter of a member is what stands before the dot."""

    name: str
    parameters: tuple[Kind, ...]
    result: Kind
    implementation: Implementation
    is_member: bool = False

    @property
    def identity(self) -> str:
        """A name of its own for the checker."""
        way = "member" if self.is_member else "global"
        return f"{way} {self.name} {', '.join(map(str, self.parameters))}"


def function(name: str, signature: str, implementation: Implementation) -> Overload:
    """Declare `name(…)`; the signature reads `string, list<string> -> bool`."""
    parameters, result = _read_signature(signature)
    return Overload(name, parameters, result, implementation)


def member(name: str, signature: str, implementation: Implementation) -> Overload:
    """Declare `x.name(…)`; the first type of the signature is that of `x`."""
    parameters, result = _read_signature(signature)
    return Overload(name, parameters, result, implementation, is_member=True)


def _read_signature(signature: str) -> tuple[tuple[Kind, ...], Kind]:
    given, _, result = signature.partition("->")
    return tuple(parse_kind(text) for text in _split_types(given.strip())), parse_kind(
        result.strip()
    )


def _split_types(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]] if text else []
