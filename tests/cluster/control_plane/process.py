"""Programs that must end when the tests end, however those end."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A program that runs in a session of its own, its words going to a file."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def is_running(self) -> bool:
        return self.popen.poll() is None

    def stop(self, *, patience: float = 15) -> None:
        """Ask it to end, and make it end when it takes too long; its children end with it."""
        if self.is_running():
            self.popen.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(patience)
        self.kill()

    def kill(self) -> None:
        """End it and its children at once, as `kill -9` does."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def read_log(self, last: int = 4000) -> str:
        """The end of what it said."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return text[-last:]


def start_process(
    command: Sequence[str],
    *,
    name: str,
    log: Path,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start a program that the kernel kills when the thread that started it is gone."""
    guard = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
    with log.open("ab") as output:
        popen = subprocess.Popen(
            [*prefix, *guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    return Process(name, popen, log)
