"""Go's time layouts, which describe a format by an example, split into parts."""

import re
from enum import Enum, auto
from functools import lru_cache

import msgspec


class LayoutPart(Enum):
    """The meaning of a part of a layout."""

    YEAR = auto()
    MONTH = auto()
    MONTH_NAME = auto()
    WEEKDAY = auto()
    DAY = auto()
    DAY_OF_YEAR = auto()
    HOUR = auto()
    HOUR12 = auto()
    MINUTE = auto()
    SECOND = auto()
    FRACTION = auto()
    HALF = auto()
    OFFSET = auto()
    ZONE_NAME = auto()
    END = auto()


class Chunk(msgspec.Struct, frozen=True):
    """One part and the literal text before it.

    `width` is the minimum number of digits or letters (of an offset: of fields). `padded` marks the
    second spelling of a part: spaces for zeros, an optional fraction, `Z` for UTC, lower case.
    """

    prefix: str
    part: LayoutPart
    width: int = 0
    padded: bool = False
    colons: bool = False
    before_fraction: bool = False


_SHAPES: dict[str, tuple[LayoutPart, int, bool]] = {
    "2006": (LayoutPart.YEAR, 4, False),
    "06": (LayoutPart.YEAR, 2, False),
    "01": (LayoutPart.MONTH, 2, False),
    "1": (LayoutPart.MONTH, 1, False),
    "January": (LayoutPart.MONTH_NAME, 0, False),
    "Jan": (LayoutPart.MONTH_NAME, 3, False),
    "Monday": (LayoutPart.WEEKDAY, 0, False),
    "Mon": (LayoutPart.WEEKDAY, 3, False),
    "02": (LayoutPart.DAY, 2, False),
    "_2": (LayoutPart.DAY, 1, True),
    "2": (LayoutPart.DAY, 1, False),
    "002": (LayoutPart.DAY_OF_YEAR, 3, False),
    "__2": (LayoutPart.DAY_OF_YEAR, 1, True),
    "15": (LayoutPart.HOUR, 1, False),
    "03": (LayoutPart.HOUR12, 2, False),
    "3": (LayoutPart.HOUR12, 1, False),
    "04": (LayoutPart.MINUTE, 2, False),
    "4": (LayoutPart.MINUTE, 1, False),
    "05": (LayoutPart.SECOND, 2, False),
    "5": (LayoutPart.SECOND, 1, False),
    "PM": (LayoutPart.HALF, 2, False),
    "pm": (LayoutPart.HALF, 2, True),
    "MST": (LayoutPart.ZONE_NAME, 3, False),
}
_PIECE = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|002|0[1-6]|15|1|2006|__2|_2(?!006)|2|3|4|5|PM|pm"
    r"|[-Z]07(?:0000|:00:00|00|:00)?|[.,](?:0+|9+)(?![0-9])"
)


@lru_cache(maxsize=256)
def split_layout(layout: str) -> tuple[Chunk, ...]:
    """Split a layout into chunks; text after the last part is the prefix of END."""
    pieces = list(_PIECE.finditer(layout))
    chunks, start = [], 0
    for index, piece in enumerate(pieces):
        following = pieces[index + 1][0] if index + 1 < len(pieces) else ""
        chunks.append(_read_piece(layout[start : piece.start()], piece[0], following))
        start = piece.end()
    return (*chunks, Chunk(layout[start:], LayoutPart.END))


def _read_piece(prefix: str, piece: str, following: str) -> Chunk:
    shape = _SHAPES.get(piece)
    if shape is not None:
        part, width, padded = shape
        return Chunk(prefix, part, width, padded, before_fraction=following[:1] in (".", ","))
    if piece[0] in ".,":
        return Chunk(prefix, LayoutPart.FRACTION, len(piece) - 1, padded=piece[1] == "9")
    digits = piece[1:].replace(":", "")
    return Chunk(
        prefix, LayoutPart.OFFSET, len(digits) // 2, padded=piece[0] == "Z", colons=":" in piece
    )
