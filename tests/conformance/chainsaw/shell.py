"""Commands and scripts of a test: run inside the cluster's network, killed when they take too long."""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Outcome:
    """How a command ended; `error` is None where it ended well."""

    stdout: str
    stderr: str
    error: str | None


def run_command(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], seconds: float
) -> Outcome:
    """Run a command in a session of its own, so that its children end with it."""
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Outcome("", "", str(error))
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        return Outcome(stdout, stderr, "signal: killed")
    return Outcome(stdout, stderr, _describe(process.returncode))


def _describe(code: int) -> str | None:
    if code == 0:
        return None
    return f"exit status {code}" if code > 0 else f"signal: {signal.Signals(-code).name.lower()}"


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """`$NAME` and `${NAME}` of the variables that a test sets; others become empty, as in Go."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)
