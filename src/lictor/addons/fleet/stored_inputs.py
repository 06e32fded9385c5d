"""Opens files in a worker, as inputs that are read by ranges."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from lictor.addons.fleet.addresses import InputFile, read_stored
from lictor.cli.apply_plan import is_address
from lictor.cli.inputs.archives import unpack
from lictor.cli.inputs.inputs import FileInput, Input, KeptInput, open_input
from lictor.cli.inputs.sources import fetch_url, hide_secrets, is_url
from lictor.core.errors import LoadError

# A round trip to a store costs as much as some hundred kilobytes.
_BLOCK_BYTES = 8 << 20
_BLOCKS = 2
_CHANGED = "changed while it was read: run again"


class StoredInput:
    """Implements `inputs.Input`: a file in a store. The last blocks are kept."""

    def __init__(self, file: InputFile, size: int) -> None:
        self._file = file
        self.path = file.name
        self.size = size
        self._blocks: dict[int, bytes] = {}

    def read(self, start: int, end: int) -> bytes:
        first, last = start // _BLOCK_BYTES, max(end - 1, start) // _BLOCK_BYTES
        parts = [self._read_block(number) for number in range(first, last + 1)]
        begin = first * _BLOCK_BYTES
        return b"".join(parts)[start - begin : end - begin]

    def _read_block(self, number: int) -> bytes:
        if number not in self._blocks:
            start = number * _BLOCK_BYTES
            end = min(start + _BLOCK_BYTES, self.size)
            block = read_stored(self._file, start, end)
            if len(block) != end - start:
                raise LoadError(_CHANGED, where=self.path)
            while len(self._blocks) >= _BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[number] = block
        return self._blocks[number]

    def part(self, path: str, start: int, size: int) -> Input:
        """Return a range of it under another path."""
        return PartInput(path, size, self, start)

    def hold(self, start: int, end: int) -> Input:
        """Fetch a range at once; only its bytes can be read."""
        content = read_stored(self._file, start, end)
        if len(content) != end - start:
            raise LoadError(_CHANGED, where=self.path)
        return PartInput(self.path, self.size, KeptInput(self.path, content), -start)


class PartInput(msgspec.Struct, frozen=True):
    """Implements `inputs.Input`: a range of another input, `begin` from its start.

    If `begin` is negative, the other input is a part of a larger file, read by the offsets of that
    file.
    """

    path: str
    size: int
    whole: Input
    begin: int

    def read(self, start: int, end: int) -> bytes:
        return self.whole.read(self.begin + start, self.begin + end)

    def part(self, path: str, start: int, size: int) -> Input:
        """Return a range of it under another path."""
        return PartInput(path, size, self.whole, self.begin + start)


def open_file(file: InputFile) -> Iterator[Input]:
    """Open a file, or the files in an archive."""
    return unpack(_open(file), keep=False)


def _fetch(file: InputFile) -> Input:
    try:
        return KeptInput(file.name, fetch_url(file.address).content)
    except LoadError as error:
        # The address may be a signed link, which is a secret.
        raise LoadError(hide_secrets(error.message, file.address), where=file.name) from None


def _open(file: InputFile) -> Input:
    if is_url(file.address):
        return _fetch(file)
    if is_address(file.address):
        if file.size is None:
            raise LoadError("the store does not report the size of this file", where=file.name)
        return StoredInput(file, file.size)
    try:
        found = open_input(file.address, keep=False)
    except LoadError as error:
        raise LoadError(
            f"{error.message}; workers on other machines read local paths there: give a folder "
            "that all share, or an address such as s3://",
            where=file.name,
        ) from error
    if file.size is not None and found.size != file.size:
        raise LoadError(_CHANGED, where=file.name)
    return replace(found, path=file.name) if isinstance(found, FileInput | KeptInput) else found
