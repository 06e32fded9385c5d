"""Which results were sent already? Kept in the cluster or a folder for the next process.

Two records: a large one with everything, written seldom, and a small one with what came since.
"""

import asyncio
import binascii
import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from lictor.addons.web.notifications.messages import hash_result
from lictor.addons.web.records import ReportedResult
from lictor.core.errors import DataFileError
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import CONFIG_MAP

log = logging.getLogger(__name__)

# Five bytes for each result: with a hundred thousand of them, one new in ten million looks old.
_KEY_BYTES = 5
# A ConfigMap holds a mebibyte, written in base64.
MOST_REMEMBERED = 150_000
# So many keys may stand in the small record before everything is written anew.
_MOST_RECENT = 2_000
_FORMAT = 1


def identify_result(result: ReportedResult) -> int:
    """A number that identifies a violation, independent of how often scans report it.

    The message is included only if an entry names no rule: other tools distinguish entries by it.
    """
    number = result.properties.get("resultID", "") if result.properties else ""
    message = "" if result.rule else result.message
    return int.from_bytes(hash_result(result, _KEY_BYTES, number, message), "big")


def pack_keys(keys: Iterable[int]) -> bytes:
    """Keys as bytes, in order."""
    return b"".join(key.to_bytes(_KEY_BYTES, "big") for key in sorted(keys))


def unpack_keys(data: bytes) -> Iterable[int]:
    """The keys that `pack_keys` wrote."""
    for start in range(0, len(data) - _KEY_BYTES + 1, _KEY_BYTES):
        yield int.from_bytes(data[start : start + _KEY_BYTES], "big")


class _Snapshot(msgspec.Struct, frozen=True):
    """Everything that was sent, at one time."""

    format: int
    generation: int
    keys: bytes
    # More than could be kept: what is there at the next start counts as sent.
    is_cut: bool = False


class _Recent(msgspec.Struct, frozen=True):
    """What changed since the snapshot of the same generation, and what still waits to be sent."""

    format: int
    generation: int
    added: bytes
    removed: bytes
    # By target.
    waiting: dict[str, bytes]
    # Of which clusters results of which statuses were looked at.
    covered: tuple[tuple[str, str], ...]


class MemoryStore(Protocol):
    """Keeps a few records by name."""

    async def read(self, name: str) -> bytes | None:
        """A record; None where it was never written."""
        ...

    async def write(self, name: str, data: bytes) -> None:
        """Replace a record; ConflictError where someone else did so since we read it."""
        ...


class NotifiedResults:
    """The results that were sent or need not be, and those that are gone since."""

    def __init__(self, store: MemoryStore | None, forget_after: float) -> None:
        self._store = store
        self._forget_after = forget_after
        self.covered: set[tuple[str, str]] = set()
        # What the last one who sent had not sent yet, by target.
        self.left_over: dict[str, set[int]] = {}
        self.is_cut = False
        self._keys: set[int] = set()
        # When they went, the oldest first.
        self._gone: dict[int, float] = {}
        self._added: set[int] = set()
        self._removed: set[int] = set()
        self._generation = 0

    def __contains__(self, key: int) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    async def load(self) -> None:
        """Read what is kept; a record that cannot be read counts as none, and is logged."""
        if self._store is None:
            return
        snapshot = _decode(await self._store.read("snapshot"), _Snapshot)
        recent = _decode(await self._store.read("recent"), _Recent)
        if snapshot is None or recent is None:
            # A first start, or half a memory: nothing that is there is new.
            return
        self._generation = max(snapshot.generation, recent.generation)
        self._keys = set(unpack_keys(snapshot.keys))
        if snapshot.generation == recent.generation:
            self._keys.update(unpack_keys(recent.added))
            self._keys.difference_update(unpack_keys(recent.removed))
            self._added = set(unpack_keys(recent.added))
            self._removed = set(unpack_keys(recent.removed))
        self.is_cut = snapshot.is_cut
        if not self.is_cut:
            self.covered = set(recent.covered)
        self.left_over = {name: set(unpack_keys(keys)) for name, keys in recent.waiting.items()}

    def add(self, key: int) -> None:
        """It is sent, or waits to be."""
        self._gone.pop(key, None)
        if key in self._keys:
            return
        if len(self._keys) >= MOST_REMEMBERED and not self._drop_oldest():
            if not self.is_cut:
                log.warning("more results than can be remembered", extra={"most": MOST_REMEMBERED})
            self.is_cut = True
            return
        self._keys.add(key)
        self._removed.discard(key)
        self._added.add(key)

    def note_gone(self, key: int, now: float) -> None:
        """No report contains it any more; it is remembered for a while, as reports come and go."""
        if key in self._keys:
            self._gone.pop(key, None)
            self._gone[key] = now

    def note_back(self, key: int) -> None:
        """A report contains it again."""
        self._gone.pop(key, None)

    def start_over(self, present: Mapping[int, int], now: float) -> None:
        """What is remembered and not there is gone from now on."""
        for key in self._keys:
            if key not in present:
                self._gone.setdefault(key, now)

    def forget(self, now: float) -> bool:
        """Forget what has been gone for long; True where there was something."""
        before = len(self._keys)
        while self._gone:
            key, since = next(iter(self._gone.items()))
            if now - since < self._forget_after:
                break
            self._discard(key)
        return len(self._keys) != before

    def _drop_oldest(self) -> bool:
        if not self._gone:
            return False
        self._discard(next(iter(self._gone)))
        return True

    def _discard(self, key: int) -> None:
        self._gone.pop(key, None)
        self._keys.discard(key)
        self._added.discard(key)
        self._removed.add(key)

    async def save(self, waiting: Mapping[str, Iterable[int]]) -> int:
        """Write what is new; the number of bytes that were written."""
        if self._store is None:
            return 0
        written = 0
        if not self._generation or len(self._added) + len(self._removed) > _MOST_RECENT:
            written += await self._save_snapshot(self._store)
        recent = _Recent(
            _FORMAT,
            self._generation,
            pack_keys(self._added),
            pack_keys(self._removed),
            {name: pack_keys(keys) for name, keys in waiting.items() if keys},
            tuple(sorted(self.covered)),
        )
        data = msgspec.msgpack.encode(recent)
        await self._store.write("recent", data)
        return written + len(data)

    async def _save_snapshot(self, store: MemoryStore) -> int:
        generation = self._generation + 1
        keys = pack_keys(self._keys)
        added, removed = self._added, self._removed
        # What comes while this is written belongs to the next record.
        self._added, self._removed = set(), set()
        data = msgspec.msgpack.encode(_Snapshot(_FORMAT, generation, keys, self.is_cut))
        try:
            await store.write("snapshot", data)
        except BaseException:
            self._added = (added - self._removed) | self._added
            self._removed = (removed - self._added) | self._removed
            raise
        self._generation = generation
        return len(data)


_Kept = TypeVar("_Kept", _Snapshot, _Recent)


def _decode(data: bytes | None, kind: type[_Kept]) -> _Kept | None:
    if data is None:
        return None
    try:
        found = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        log.warning("the record of sent results cannot be read: current results count as sent")
        return None
    return found if found.format == _FORMAT else None


class ConfigMapStore:
    """Records in ConfigMaps, one each, for all replicas."""

    def __init__(self, client: Client, namespace: str, prefix: str) -> None:
        self._client = client
        self._namespace = namespace
        self._prefix = prefix
        # The versions of the last read or write: a conflict means that the lead was lost.
        self._known: dict[str, JsonObject | None] = {}

    def _name(self, name: str) -> str:
        return f"{self._prefix}-notifications-{name}"

    async def read(self, name: str) -> bytes | None:
        found = await self._client.find(CONFIG_MAP, self._name(name), self._namespace)
        self._known[name] = found
        data = (found or {}).get("binaryData")
        text = data.get("record") if isinstance(data, dict) else None
        try:
            return b64decode(text, validate=True) if isinstance(text, str) else None
        except binascii.Error:
            return b""

    async def write(self, name: str, data: bytes) -> None:
        known = self._known.get(name)
        body = known or {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name(name), "namespace": self._namespace},
        }
        body = {**body, "binaryData": {"record": b64encode(data).decode()}}
        write = self._client.replace if known else self._client.create
        self._known[name] = await write(CONFIG_MAP, body)


class FolderStore:
    """Records in files of a folder, for one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self, name: str) -> bytes | None:
        return await asyncio.to_thread(self._read, name)

    async def write(self, name: str, data: bytes) -> None:
        await asyncio.to_thread(self._write, name, data)

    def _read(self, name: str) -> bytes | None:
        try:
            return (self._folder / f"notifications-{name}").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataFileError(f"{self._folder} cannot be read: {error.strerror}") from error

    def _write(self, name: str, data: bytes) -> None:
        path = self._folder / f"notifications-{name}"
        draft = path.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(data)
            draft.replace(path)
        except OSError as error:
            raise DataFileError(f"{self._folder} cannot be written: {error.strerror}") from error
