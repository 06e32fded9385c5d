"""Converts plain JSON to records, safely when several threads are the first to use a type."""

import threading
from typing import TypeVar

import msgspec

from lictor.core.raw import Json

_Record = TypeVar("_Record")

# msgspec builds its information about a type on first use. If another thread sees it half built,
# the process crashes.
_LEARNING = threading.Lock()
_LEARNED: set[object] = set()


def convert_record(body: Json, record: type[_Record]) -> _Record:
    """Convert to the record; raises msgspec.ValidationError as msgspec.convert() does."""
    if record in _LEARNED:
        return msgspec.convert(body, record)
    with _LEARNING:
        try:
            return msgspec.convert(body, record)
        finally:
            _LEARNED.add(record)
