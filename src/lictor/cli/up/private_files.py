"""Files that only their owner may read: written whole or not at all, and through no link."""

import os
import tempfile
from pathlib import Path

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
