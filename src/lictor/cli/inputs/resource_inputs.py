"""The inputs that resource paths name, cut into shards: what a run judges and looks up."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from lictor.cli.inputs.inputs import KEPT_BYTES, Input, KeptInput, find_packing, open_input
from lictor.cli.inputs.resources import DocumentText, holds_word, parse_document
from lictor.cli.inputs.shard_finder import MARKED_WORDS, ShardBounds, ShardFinder
from lictor.cli.inputs.shards import Shard, read_shard
from lictor.cli.inputs.sources import SourceText, is_pattern, locate_resources
from lictor.core.errors import LictorError, LoadError
from lictor.core.files import LOGIN
from lictor.core.raw import JsonObject

# Is given the shards of an input as they are found, with its size, and gives them on.
WatchShards: TypeAlias = Callable[[Iterable[Shard], int], Iterable[Shard]]
# Payloads are in memory, and none of them is a list of others.
_PAYLOAD_BOUNDS = ShardBounds(split=sys.maxsize, document=sys.maxsize)
_DIVIDER = "-" * 70


def open_resources(
    paths: Iterable[str], say: Callable[[str], None] | None = None
) -> Iterator[Input]:
    """The inputs that paths name; if a later path cannot be read, that is reported and skipped."""
    kept = 0
    for number, path in enumerate(paths):
        try:
            located = list(locate_resources((path,)))
        except LictorError as error:
            tell_unreadable(path, number, error, say)
            continue
        for each in located:
            keep = kept < KEPT_BYTES
            try:
                opened = open_input(each, keep=keep)
            except LictorError as error:
                tell_unreadable(path, number, error, say)
                break
            # A broken archive is told in any case: what of it is missing, nobody knows.
            for given in _unpack(opened, keep=keep):
                kept += given.size if isinstance(given, KeptInput) else 0
                yield given


def _unpack(given: Input, *, keep: bool) -> Iterable[Input]:
    if find_packing(given) is None:
        return (given,)
    # Loaded when needed: few inputs are archives, and start-up counts.
    from lictor.cli.inputs.archives import unpack

    return unpack(given, keep=keep)


def tell_unreadable(
    path: str, number: int, error: LictorError, say: Callable[[str], None] | None
) -> None:
    """Report a path that cannot be read, or raise."""
    # With the first path gone nothing might be judged at all, and a folder or pattern that gives
    # nothing is the wrong one, or loses other files: no success must come of that.
    if say is None or number == 0 or os.path.isdir(path) or is_pattern(path):
        raise error
    told = f"failed to load resources: {path}. \nerror: {error}"
    say(f"\n{_DIVIDER}\n{LOGIN.sub('', told)}\n{_DIVIDER}")


class ResourceInputs:
    """Inputs and their shards. Cut once, before anything is judged."""

    def __init__(
        self,
        inputs: Iterable[Input] = (),
        bounds: ShardBounds | None = None,
        watch: WatchShards = lambda shards, _: shards,
    ) -> None:
        self._bounds = bounds or ShardBounds()
        self._watch = watch
        self.inputs: list[Input] = []
        # Of each input: empty for resources, for payloads the mode of the policies that judge them.
        self.modes: list[str] = []
        self.shards: list[Shard] = []
        # What was left out, and why.
        self.skipped: list[str] = []
        for each in inputs:
            self.add(each)

    def add(self, given: Input, mode: str = "") -> None:
        """One more input."""
        bounds = _PAYLOAD_BOUNDS if mode else self._bounds
        finder = ShardFinder(given, len(self.inputs), bounds, is_payload=bool(mode))
        self.inputs.append(given)
        self.modes.append(mode)
        self.shards += self._watch(finder.find(), given.size)
        self.skipped += finder.skipped

    @property
    def count(self) -> int:
        """The number of documents."""
        return sum(shard.count for shard in self.shards)

    def read(self, shard: Shard) -> Iterator[DocumentText]:
        """The documents of a shard. Raises LoadError where they cannot be read."""
        return read_shard(self.inputs[shard.source], shard)

    def find(self, word: bytes, ignore_case: bool = False) -> Iterator[DocumentText]:  # noqa: FBT001, FBT002
        """The documents of resources that hold a word; those that cannot be read are left out."""
        for shard in self.shards:
            if self.modes[shard.source] or shard.fault:
                continue
            if word in MARKED_WORDS and not ignore_case and word not in shard.words:
                continue
            for document in self.read(shard):
                if holds_word(document.content, word, ignore_case=ignore_case):
                    yield document

    def list_resources(self) -> Iterator[JsonObject]:
        """All resources, one by one."""
        for shard in self.shards:
            if not self.modes[shard.source]:
                for document in self.read(shard):
                    yield from parse_document(document)

    def select(self, word: bytes) -> Iterator[SourceText]:
        """The same, each as a text of its own."""
        for each in self.find(word):
            # What only may hold it is parsed: whoever asks takes nothing else.
            if word in each.content or word.decode() in _list_kinds(each):
                yield SourceText(each.path, each.content)


def _list_kinds(document: DocumentText) -> set[str]:
    """The kinds in a document; none where it is broken, which is told where it is judged."""
    try:
        return {str(each["kind"]) for each in parse_document(document)}
    except LoadError:
        return set()
