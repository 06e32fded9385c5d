"""What a repair gives: the document as it should be, and what was wrong with it."""

import msgspec

from lictor.raw import Json


class Repair(msgspec.Struct, frozen=True):
    """A repaired document; the same one where nothing was wrong."""

    document: Json
    messages: tuple[str, ...]
