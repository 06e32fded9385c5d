"""WASI preview 1 over memory alone: arguments and stdin in, stdout and stderr out, no files."""

import os
import struct
import time
from collections.abc import Callable, Mapping
from typing import Final

from lictor.addons.kubewarden.runtime.linking import HostFunction, HostFunctions
from lictor.addons.kubewarden.runtime.sandbox import ExitError, GuestRun
from lictor.core.errors import GuestError
from lictor.core.lang.wasm_records import GuestLimits, HostCalls

_MODULE: Final = "wasi_snapshot_preview1"

_OK: Final = 0
_BAD_FILE: Final = 8
_INVALID: Final = 28
_NOT_THERE: Final = 52
_NO_SEEK: Final = 70

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_MAY_READ: Final = 2
_MAY_WRITE: Final = 64
_REALTIME: Final = 0
# As many as Linux takes; a list without end would hold up the host, which nothing interrupts.
_MAX_BUFFERS: Final = 1024
_MAX_SUBSCRIPTIONS: Final = 64
_NUMBER: Final = struct.Struct("<I")
_BUFFER: Final = struct.Struct("<II")
_SUBSCRIPTION: Final = struct.Struct("<QB7xI4xQQH6x")
_EVENT: Final = struct.Struct("<QHB21x")
_CLOCK: Final = 0
_ABSOLUTE: Final = 1
_LONGEST_SLEEP: Final = 1.0
# Of what a policy wrote to stderr, which becomes a message or a line of the log.
_MESSAGE_BYTES: Final = 32 * 1024


class CommandRun(GuestRun):
    """What a program sees of its world, and what it wrote."""

    def __init__(self, limits: GuestLimits, host: HostCalls, stdin: bytes = b"") -> None:
        super().__init__(limits, host)
        self.arguments: tuple[bytes, ...] = ()
        self.stdin = stdin
        self.position = 0
        # As one text each: a list of many small pieces would take far more than may be written.
        self.stdout = bytearray()
        self.stderr = bytearray()

    def read_stderr(self) -> str:
        """What it wrote there, for people to read."""
        return self.stderr[:_MESSAGE_BYTES].decode("utf-8", "replace").strip()

    def append_input(self, content: bytes) -> None:
        """Provide more on stdin; the guest must read all of it."""
        self.stdin = self.stdin[self.position :] + content
        self.position = 0
        if len(self.stdin) > self.limits.memory_bytes:
            raise GuestError("the policy was stopped: it requests more data than it reads")


def _write_number(run: CommandRun, address: int, number: int) -> None:
    _NUMBER.pack_into(run.sandbox.view(address, 4), address, number)


def _args_sizes_get(run: CommandRun, count: int, size: int) -> int:
    _write_number(run, count, len(run.arguments))
    _write_number(run, size, sum(len(argument) + 1 for argument in run.arguments))
    return _OK


def _args_get(run: CommandRun, places: int, texts: int) -> int:
    for argument in run.arguments:
        _write_number(run, places, texts)
        run.sandbox.write(texts, argument + b"\0")
        places += 4
        texts += len(argument) + 1
    return _OK


def _environ_sizes_get(run: CommandRun, count: int, size: int) -> int:
    _write_number(run, count, 0)
    _write_number(run, size, 0)
    return _OK


def _environ_get(_run: CommandRun, _places: int, _texts: int) -> int:
    return _OK


def _clock_time_get(run: CommandRun, clock: int, _precision: int, address: int) -> int:
    now = time.time_ns() if clock == _REALTIME else time.monotonic_ns()
    run.sandbox.write(address, now.to_bytes(8, "little"))
    return _OK


def _clock_res_get(run: CommandRun, _clock: int, address: int) -> int:
    run.sandbox.write(address, (1).to_bytes(8, "little"))
    return _OK


def _random_get(run: CommandRun, address: int, length: int) -> int:
    run.take_output(length)
    run.sandbox.write(address, os.urandom(length))
    return _OK


def _fd_write(run: CommandRun, file: int, buffers: int, count: int, written: int) -> int:
    if file not in (_STDOUT, _STDERR):
        return _BAD_FILE
    if count > _MAX_BUFFERS:
        return _INVALID
    sink = run.stdout if file == _STDOUT else run.stderr
    total = 0
    for place in range(buffers, buffers + 8 * count, 8):
        address, length = _BUFFER.unpack_from(run.sandbox.view(place, 8), place)
        sink += run.read_output(address, length)
        total += length
    _write_number(run, written, total)
    return _OK


def _fd_read(run: CommandRun, file: int, buffers: int, count: int, read: int) -> int:
    if file != _STDIN:
        return _BAD_FILE
    if count > _MAX_BUFFERS:
        return _INVALID
    total = 0
    for place in range(buffers, buffers + 8 * count, 8):
        address, length = _BUFFER.unpack_from(run.sandbox.view(place, 8), place)
        piece = run.stdin[run.position : run.position + length]
        run.sandbox.write(address, piece)
        run.position += len(piece)
        total += len(piece)
    _write_number(run, read, total)
    return _OK


def _fd_fdstat_get(run: CommandRun, file: int, address: int) -> int:
    if file > _STDERR:
        return _BAD_FILE
    rights = _MAY_READ if file == _STDIN else _MAY_WRITE
    run.sandbox.write(address, struct.pack("<BxHxxxxQQ", 0, 0, rights, 0))
    return _OK


def _fd_filestat_get(run: CommandRun, file: int, address: int) -> int:
    if file > _STDERR:
        return _BAD_FILE
    run.sandbox.write(address, bytes(64))
    return _OK


def _touch_open_file(_run: CommandRun, file: int, *_values: int) -> int:
    return _OK if file <= _STDERR else _BAD_FILE


def _fd_seek(_run: CommandRun, file: int, *_values: int) -> int:
    return _NO_SEEK if file <= _STDERR else _BAD_FILE


def _poll_oneoff(run: CommandRun, wanted: int, events: int, count: int, happened: int) -> int:
    """Wait for the first of what is wanted; files are always ready."""
    if not 0 < count <= _MAX_SUBSCRIPTIONS:
        return _INVALID
    content = run.sandbox.read(wanted, _SUBSCRIPTION.size * count)
    ready, waits = [], []
    for data, kind, clock, timeout, _, flags in _SUBSCRIPTION.iter_unpack(content):
        if kind == _CLOCK:
            now = time.time_ns() if clock == _REALTIME else time.monotonic_ns()
            wait = timeout - now if flags & _ABSOLUTE else timeout
            waits.append((wait, data))
        else:
            ready.append(_EVENT.pack(data, 0, kind))
    if not ready:
        first = min(waits)
        _sleep(run, first[0] / 1e9)
        ready.append(_EVENT.pack(first[1], 0, _CLOCK))
    run.sandbox.write(events, b"".join(ready))
    _write_number(run, happened, len(ready))
    return _OK


def _sleep(run: CommandRun, seconds: float) -> None:
    # Nothing wakes the host: no longer than the guest may run.
    left = max(0.0, run.time_left())
    time.sleep(max(0.0, min(seconds, left, _LONGEST_SLEEP)))
    run.check_time()


def _proc_exit(_run: CommandRun, code: int) -> int | None:
    raise ExitError(code)


def _sched_yield(_run: CommandRun) -> int:
    return _OK


def _no_such_file(_run: CommandRun, *_values: int) -> int:
    return _BAD_FILE


def _not_offered(_run: CommandRun, *_values: int) -> int:
    return _NOT_THERE


_FUNCTIONS: Final[Mapping[str, tuple[str, Callable[..., int]]]] = {
    "args_get": ("ii", _args_get),
    "args_sizes_get": ("ii", _args_sizes_get),
    "environ_get": ("ii", _environ_get),
    "environ_sizes_get": ("ii", _environ_sizes_get),
    "clock_res_get": ("ii", _clock_res_get),
    "clock_time_get": ("iIi", _clock_time_get),
    "random_get": ("ii", _random_get),
    "sched_yield": ("", _sched_yield),
    "poll_oneoff": ("iiii", _poll_oneoff),
    "fd_read": ("iiii", _fd_read),
    "fd_write": ("iiii", _fd_write),
    "fd_close": ("i", _touch_open_file),
    "fd_datasync": ("i", _touch_open_file),
    "fd_sync": ("i", _touch_open_file),
    "fd_fdstat_get": ("ii", _fd_fdstat_get),
    "fd_fdstat_set_flags": ("ii", _touch_open_file),
    "fd_fdstat_set_rights": ("iII", _touch_open_file),
    "fd_filestat_get": ("ii", _fd_filestat_get),
    "fd_seek": ("iIii", _fd_seek),
    "fd_tell": ("ii", _fd_seek),
    "proc_raise": ("i", _not_offered),
    **dict.fromkeys(("fd_prestat_get", "fd_renumber", "sock_shutdown"), ("ii", _no_such_file)),
    **dict.fromkeys(
        (
            "fd_prestat_dir_name",
            "path_create_directory",
            "path_remove_directory",
            "path_unlink_file",
            "sock_accept",
        ),
        ("iii", _no_such_file),
    ),
    **dict.fromkeys(("fd_pread", "fd_pwrite", "fd_readdir"), ("iiiIi", _no_such_file)),
    **dict.fromkeys(("path_filestat_get", "path_symlink", "sock_send"), ("iiiii", _no_such_file)),
    **dict.fromkeys(("path_readlink", "path_rename", "sock_recv"), ("iiiiii", _no_such_file)),
    "fd_advise": ("iIIi", _no_such_file),
    "fd_allocate": ("iII", _no_such_file),
    "fd_filestat_set_size": ("iI", _no_such_file),
    "fd_filestat_set_times": ("iIIi", _no_such_file),
    "path_filestat_set_times": ("iiiiIIi", _no_such_file),
    "path_link": ("iiiiiii", _no_such_file),
    "path_open": ("iiiiiIIii", _no_such_file),
}

WASI_FUNCTIONS: Final[HostFunctions] = {
    (_MODULE, name): HostFunction(parameters, "i", run)
    for name, (parameters, run) in _FUNCTIONS.items()
} | {(_MODULE, "proc_exit"): HostFunction("i", "", _proc_exit)}
