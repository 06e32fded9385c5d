"""A real shell on a pseudo-terminal: type something, press Tab, and see what stands there."""

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x1b\][^\x07]*\x07|\r")


class Shell:
    """One interactive shell."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._master, end = pty.openpty()
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "TERM": "dumb", "PS1": "ready> ", "PROMPT": "ready> "},
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        os.close(end)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, words: str, seconds: float = 90.0) -> str:
        """Everything that is shown until some words are; fails where they do not come."""
        shown = b""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ready, _, _ = select.select([self._master], [], [], 0.2)
            if ready:
                shown += os.read(self._master, 65536)
                text = _ESCAPES.sub(b"", shown).decode(errors="replace")
                if words in text:
                    return text
        raise AssertionError(f"{words!r} was not shown, but {shown!r}")
