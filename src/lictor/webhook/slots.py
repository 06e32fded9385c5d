"""Memory that processes share: when each was last alive, what it has counted, whether all end."""

import mmap
import os
import socket
import struct
import time
import weakref
from tempfile import mkstemp

_HEAD = struct.Struct("<dQQ")
# After the head: whether the process is ready, and whether it should be replaced.
_STATE = struct.Struct("<??")
_DATA = _HEAD.size + 8
_MOST_TRACE = 256 * 1024
# Pages that are never written cost nothing.
_SIZE = 16 * 1024 * 1024


class SharedFlag:
    """A flag from one process to all others. Created before processes are forked."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    def set(self) -> None:
        self._memory[0] = 1

    @property
    def is_set(self) -> bool:
        return self._memory[0] == 1


class ProcessSlot:
    """The place of one process. Made before processes are forked; one writes, all read."""

    def __init__(self, size: int = _SIZE, probe_socket: socket.socket | None = None) -> None:
        # Where the parent can reach this process, and no other.
        self.probe_socket = probe_socket
        # Where faulthandler writes if the process crashes.
        self.trace, name = mkstemp()
        os.unlink(name)
        weakref.finalize(self, os.close, self.trace)
        self._memory = mmap.mmap(-1, size)
        self._room = size - _DATA

    def beat(self) -> None:
        """Note that this process is alive."""
        struct.pack_into("<d", self._memory, 0, time.monotonic())

    @property
    def last_beat(self) -> float:
        """When the process was last alive; 0 before it ever was."""
        moment: float = struct.unpack_from("<d", self._memory, 0)[0]
        return moment

    def tell(self, *, is_ready: bool, has_grown: bool) -> None:
        """Note whether requests can be evaluated here, and whether too much memory is in use."""
        _STATE.pack_into(self._memory, _HEAD.size, is_ready, has_grown)

    @property
    def is_ready(self) -> bool:
        return bool(_STATE.unpack_from(self._memory, _HEAD.size)[0])

    @property
    def has_grown(self) -> bool:
        return bool(_STATE.unpack_from(self._memory, _HEAD.size)[1])

    def write(self, data: bytes) -> bool:
        """Store data for other processes; False if it is too large."""
        if len(data) > self._room:
            return False
        beat, turn, _ = _HEAD.unpack_from(self._memory)
        # An odd turn means that the content is being written.
        _HEAD.pack_into(self._memory, 0, beat, turn | 1, 0)
        self._memory[_DATA : _DATA + len(data)] = data
        _HEAD.pack_into(self._memory, 0, beat, (turn | 1) + 1, len(data))
        return True

    def read(self, tries: int = 5) -> bytes:
        """What was laid down last; nothing where the writer is never done."""
        for _ in range(tries):
            _, turn, length = _HEAD.unpack_from(self._memory)
            data = self._memory[_DATA : _DATA + min(length, self._room)]
            if turn % 2 == 0 and _HEAD.unpack_from(self._memory)[1] == turn:
                return data
            time.sleep(0.001)
        return b""

    def take_trace(self) -> bytes:
        """What the process that had this slot wrote when it crashed."""
        found = os.pread(self.trace, _MOST_TRACE, 0)
        os.ftruncate(self.trace, 0)
        os.lseek(self.trace, 0, os.SEEK_SET)
        return found

    def clear(self) -> None:
        """Make the place free for another process."""
        _HEAD.pack_into(self._memory, 0, 0.0, 0, 0)
        self.tell(is_ready=False, has_grown=False)
