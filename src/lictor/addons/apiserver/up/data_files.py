"""Files of an embedded cluster: private to their owner, and used by one `lictor up` at a time."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lictor.core.errors import UsageError

_OTHERS = 0o077


def write_private(file: Path, content: bytes) -> None:
    """Write a file under a new name, and put it in place of whatever has its name.

    What is there already gives neither its mode nor its owner, and a link is not followed.
    """
    # Opened as new and with mode 0600: nobody can have prepared it.
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "wb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def tighten(file: Path) -> None:
    """Take away what others may do with a file that is there."""
    mode = file.stat().st_mode
    if mode & _OTHERS:
        file.chmod(mode & ~_OTHERS & 0o7777)


# A process that was killed leaves children that end by themselves.
_PATIENCE = 10.0
_TICK = 0.1
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def hold(lock: Path, what: str, advice: str) -> Iterator[None]:
    """Keep others out while the block runs; UsageError where someone else is in.

    Processes that are forked meanwhile hold it too: it is free when the last of them has ended.
    """
    handle = _acquire(lock, what, advice)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _acquire(lock: Path, what: str, advice: str) -> int:
    deadline = time.monotonic() + _PATIENCE
    while True:
        handle = os.open(lock, _FLAGS, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(handle)
            os.close(handle)
            if _is_alive(holder) or time.monotonic() > deadline:
                raise UsageError(f"{what} is used by {_describe(holder)}: {advice}") from None
            time.sleep(_TICK)
        else:
            if _is_there(lock, handle):
                return handle
            # Whoever held it before has removed the file since we opened it.
            os.close(handle)


def _read_holder(handle: int) -> int:
    text = os.pread(handle, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def _is_alive(pid: int) -> bool:
    return pid > 0 and Path(f"/proc/{pid}").exists()


def _is_there(lock: Path, handle: int) -> bool:
    try:
        return lock.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def _describe(pid: int) -> str:
    if not pid:
        return "another lictor up"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        # It may run in another container.
        return f"another lictor up (process {pid})"
    return f"process {pid} ({' '.join(word.decode(errors='replace') for word in words)})"
