"""Records from plain JSON, where several threads may be the first to ask for the same type."""

import threading
from typing import TypeVar

import msgspec

from lictor.core.raw import Json

_Record = TypeVar("_Record")

# What msgspec learns of a type when it is first used must not be seen half done by another thread:
# the process would die of it.
_LEARNING = threading.Lock()
_LEARNED: set[object] = set()


def convert_record(body: Json, record: type[_Record]) -> _Record:
    """The record; raises msgspec.ValidationError as msgspec.convert() does."""
    if record in _LEARNED:
        return msgspec.convert(body, record)
    with _LEARNING:
        try:
            return msgspec.convert(body, record)
        finally:
            _LEARNED.add(record)
