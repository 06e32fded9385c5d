"""JSON Pointers (RFC 6901): text into steps, and steps through maps and lists."""

import re
from typing import Final

import msgspec

from lictor.errors import CompileError, EvaluationError
from lictor.raw import Json

# Nothing nests deeper; and each step can make a list of its own.
_MAX_STEPS = 200
_INDEX = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)

# What stands nowhere; null is a value of its own.
MISSING: Final = object()


class Step(msgspec.Struct, frozen=True):
    """One step of a path: a key, and the same as an index where it reads as a number."""

    key: str
    index: int | None


def parse_pointer(text: str) -> tuple[Step, ...]:
    """Cut a pointer into steps. Kyverno lets the first segment be anything; so do we."""
    if text.count("/") > _MAX_STEPS:
        raise CompileError(f"a path of more than {_MAX_STEPS} steps leads nowhere")
    return tuple([_parse_step(part) for part in text.split("/")[1:]])


def _parse_step(part: str) -> Step:
    index = int(part) if _INDEX.fullmatch(part) else None
    return Step(part.replace("~1", "/").replace("~0", "~"), index)


def escape_key(key: Json) -> str:
    """Write a key as a segment of a pointer."""
    if not isinstance(key, str):
        raise EvaluationError(f"{key!r} cannot be the key of a JSON object")
    return key.replace("~", "~0").replace("/", "~1")


def find_position(values: list[Json], step: Step) -> int | None:
    """Give the position of an element that is there; negative indices count from the end."""
    index = step.index
    if index is None or not -len(values) <= index < len(values):
        return None
    return index % len(values)


def get_child(container: Json, step: Step) -> Json:
    """Go one step down; MISSING where there is nothing."""
    if isinstance(container, dict):
        return container.get(step.key, MISSING)
    if isinstance(container, list):
        position = find_position(container, step)
        return MISSING if position is None else container[position]
    return MISSING


def follow(document: Json, steps: tuple[Step, ...]) -> Json:
    """Go all steps down; MISSING where there is nothing."""
    for step in steps:
        document = get_child(document, step)
        if document is MISSING:
            return MISSING
    return document
