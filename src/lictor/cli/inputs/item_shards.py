"""Cuts documents into shards that hold many resources: JSON values in a row, and large lists."""

from collections.abc import Iterator
from typing import Final

from lictor.cli.inputs.inputs import COPY_BYTES, Input
from lictor.cli.inputs.json_values import JsonCursor, JsonFault
from lictor.cli.inputs.resources import DocumentSpan
from lictor.cli.inputs.shard_finder import ShardMaker
from lictor.cli.inputs.shards import Shard, ShardForm
from lictor.cli.inputs.yaml_items import OTHER_BREAK, ItemWalk, find_item_list, is_list
from lictor.core.raw import Json

# So much may be read for nothing: each broken value could be read to the end of what is held, and
# the next one begin in the line after. A sound list is read twice.
_MAX_WASTED: Final = 64 << 20
_WASTE_PER_BYTE: Final = 4
_NO_JSON: Final = "expected a JSON value"
_FIRST_WINDOW: Final = 1 << 10


def split_yaml_list(maker: ShardMaker, start: int, end: int) -> Iterator[Shard]:
    """Shards of the items of a list in YAML; a document that is none stays whole."""
    counted, items = maker.counted, find_item_list(maker.given, start, end)
    if items is not None:
        walk = ItemWalk(maker.given, items, end)
        shards = list(maker.group(walk.list_items(), ShardForm.YAML_ITEMS))
        if walk.is_list():
            yield from shards
            return
        maker.counted = counted
    yield maker.make_whole(start, end)


def split_values(maker: ShardMaker, start: int, end: int) -> Iterator[Shard]:
    """Shards of JSON values that follow each other; a large one may be a list."""
    cursor = JsonCursor(maker.given, start, end)
    run: list[DocumentSpan] = []
    while following := cursor.peek():
        begin = cursor.offset
        if following == "#":
            yield from maker.group(run, ShardForm.JSON_VALUES)
            run = []
            yield _pass_comments(maker, cursor, end)
            continue
        try:
            if cursor.read_value(maker.bounds.split) is None:
                # By itself a null would be an empty document; here it stands behind content.
                raise JsonFault(_NO_JSON, begin)
        except JsonFault:
            yield from maker.group(run, ShardForm.JSON_VALUES)
            run = []
            if cursor.wasted > _MAX_WASTED + _WASTE_PER_BYTE * (begin - start):
                yield maker.make_fault(begin, end, "too much that is broken: the rest is not read")
                return
            cursor.seek(begin)
            yield from _split_list(maker, cursor, end)
            continue
        run.append(DocumentSpan(begin, cursor.offset))
        if cursor.offset - run[0].start >= maker.shard_bytes:
            yield from maker.group(run, ShardForm.JSON_VALUES)
            run = []
    yield from maker.group(run, ShardForm.JSON_VALUES)


def _split_list(maker: ShardMaker, cursor: JsonCursor, end: int) -> Iterator[Shard]:
    """Shards of a large JSON value, and go past it; a broken one ends where the next begins."""
    starts, start, counted = cursor.peek(), cursor.offset, maker.counted
    around, shards = dict[str, Json](), list[Shard]()
    is_clear = True
    try:
        for name in cursor.list_members():
            # Of two members of one name the last one counts: then nothing is taken apart.
            is_clear = is_clear and name not in around
            if name == "items" and cursor.peek() == "[":
                around[name] = []
                items = _SoundItems(cursor, maker.bounds.document)
                shards += maker.group(items.read(), ShardForm.JSON_VALUES)
                items.check()
            else:
                value = cursor.read_value(maker.bounds.document)
                # All of them together could be as large as the input.
                around[name] = value if isinstance(value, str) else None
    except JsonFault as fault:
        is_clear = False
        resumed = _find_next_value(maker.given, max(start, fault.offset - 1), end)
        cursor.seek(resumed)
        if shards:
            yield from shards
            yield maker.make_fault(fault.offset, resumed, fault.message)
            return
    if is_clear and is_list(around) and around.get("items") == []:
        yield from shards
        return
    maker.counted = counted
    if starts == "{":
        yield maker.make_whole(start, cursor.offset)
    else:
        yield maker.make_fault(start, cursor.offset, _NO_JSON)


def _pass_comments(maker: ShardMaker, cursor: JsonCursor, end: int) -> Shard:
    """Comments between JSON values, as a shard of no resources; and go past them."""
    start, is_sound = cursor.offset, True
    while cursor.peek() == "#" and is_sound:
        begin = cursor.offset
        after = min(_find(maker.given, begin, end, b"\n") + 1, end)
        line = maker.given.read(begin, min(after, begin + maker.bounds.document))
        # Behind another line end stands content, for YAML.
        is_sound = OTHER_BREAK.search(line) is None
        cursor.seek(after)
    if is_sound:
        return maker.make_whole(start, cursor.offset)
    return maker.make_fault(start, cursor.offset, _NO_JSON)


class _SoundItems:
    """The items before a fault: they are not lost by it."""

    def __init__(self, cursor: JsonCursor, limit: int) -> None:
        self._items = cursor.list_items(limit)
        self._fault: JsonFault | None = None

    def read(self) -> Iterator[DocumentSpan]:
        try:
            yield from self._items
        except JsonFault as fault:
            self._fault = fault

    def check(self) -> None:
        """Raise the fault."""
        if self._fault is not None:
            raise self._fault


def _find_next_value(given: Input, start: int, end: int) -> int:
    """Where the next line begins that begins with a brace; the end where there is none."""
    return min(_find(given, start, end, b"\n{") + 1, end)


def _find(given: Input, start: int, end: int, wanted: bytes) -> int:
    """Where one or two characters stand next; the end where they do not."""
    position, window = start, _FIRST_WINDOW
    while position < end:
        after = min(position + window, end)
        found = given.read(position, min(after + 1, end)).find(wanted)
        if found >= 0:
            return position + found
        # Small at first: it is mostly the next line, and there may be many of them.
        position, window = after, min(window * 2, COPY_BYTES)
    return end
