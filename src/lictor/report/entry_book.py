"""Entries of reports, made once and used for every object of which the same is said."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

import msgspec
import orjson

from lictor.model.result import PolicyRef, Result
from lictor.raw import JsonObject
from lictor.report.resource_report import build_entry

# Messages may name the object, so that there are as many as there are objects.
_MOST = 2048

SortKey: TypeAlias = tuple[str, str, str, str]
_Key: TypeAlias = tuple[int, str, str, str]


class Line(msgspec.Struct, frozen=True, eq=False):
    """An entry without its time, with what is needed to put it in order and to compare it."""

    policy: PolicyRef
    body: JsonObject
    key: SortKey
    digest: bytes


class EntryBook:
    """Finds the line that a result makes. May be used by several threads at once."""

    def __init__(self, *, background: bool) -> None:
        self._background = background
        self._lines: dict[_Key, Line] = {}

    def find(self, result: Result) -> Line:
        """The line of a result; a new one only where nothing like it was said before."""
        if result.properties or result.exceptions or result.generated or result.target is not None:
            return self._build(result)
        key = id(result.policy), result.rule, result.status, result.message
        line = self._lines.get(key)
        # The policy is compared too: an address is used again once an old policy is gone.
        if line is not None and line.policy is result.policy:
            return line
        if len(self._lines) >= _MOST:
            self._lines.clear()
        line = self._lines[key] = self._build(result)
        return line

    def _build(self, result: Result) -> Line:
        body = build_entry(result, background=self._background, timestamp=0)
        del body["timestamp"]
        text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        key = (body["policy"], body.get("rule", ""), body["source"], body["result"])
        return Line(result.policy, body, key, blake2b(text, digest_size=8).digest())


def sort_lines(lines: Iterable[Line]) -> list[Line]:
    """In the order in which a report shows them."""
    return sorted(lines, key=_read_key)


def _read_key(line: Line) -> SortKey:
    return line.key


def hash_lines(lines: Iterable[Line]) -> int:
    """Equal where reports say the same, whenever they were made; 64 bits, 0 for nothing."""
    digests = b"".join(line.digest for line in lines)
    return int.from_bytes(blake2b(digests, digest_size=8).digest(), "big") if digests else 0


def stamp_lines(lines: Iterable[Line], timestamp: int) -> list[JsonObject]:
    """Entries for a report, all of the same time."""
    moment = {"seconds": timestamp, "nanos": 0}
    return [{**line.body, "timestamp": moment} for line in lines]
