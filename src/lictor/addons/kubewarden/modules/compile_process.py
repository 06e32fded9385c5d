"""Compiles one module in a process that may be ended: from standard input to standard output.

Compilers of machine code take time and memory that depend on what they are given; a module that was
made to take all of both must not take them from the process that answers requests.
"""

import contextlib
import importlib.util
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from lictor.core.errors import ModuleError

_REFUSED = 3
_LONGEST_MESSAGE = 2000
_FILES = 64
_GROUP = Path("/sys/fs/cgroup")
# A module of a few MiB takes so much.
_LEAST_MEMORY = 256 * 2**20


def compile_apart(content: bytes, seconds: float, memory_bytes: int) -> bytes:
    """The machine code of a module; ModuleError where it is none, or takes too much."""
    memory_bytes = limit_memory(memory_bytes)
    command = [sys.executable, "-P", "-m", __name__, str(int(seconds) + 1), str(memory_bytes)]
    try:
        done = subprocess.run(  # noqa: S603  (this interpreter, and numbers)
            command, input=content, capture_output=True, timeout=seconds, check=False, env=_choose()
        )
    except subprocess.TimeoutExpired:
        raise ModuleError(f"the module was not compiled within {seconds:g} s") from None
    if done.returncode == 0 and done.stdout:
        return done.stdout
    if done.returncode == _REFUSED:
        raise ModuleError(done.stderr.decode(errors="replace"))
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise ModuleError(f"the module takes more than {seconds:g} s, or the machine, to compile")
    mebibytes = memory_bytes // 2**20
    raise ModuleError(
        f"the module cannot be compiled: the compiler failed ({done.returncode}); it may take "
        f"{mebibytes} MiB"
    )


def limit_memory(most: int, group: Path = _GROUP) -> int:
    """No more than the container has left: where that is gone, all its processes end."""
    try:
        limit, current = (
            int((group / name).read_text()) for name in ("memory.max", "memory.current")
        )
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # What was read from files is given up when the memory is wanted.
        left = limit - current + int(statistics["inactive_file"])
    except (OSError, ValueError, KeyError):
        # No limit, or an old kernel.
        return most
    return min(most, max(left, _LEAST_MEMORY))


def _choose() -> dict[str, str]:
    """The environment: empty except for few threads, each of which would reserve memory."""
    # Where this very code and the compiler were found, however that came about.
    specs = [importlib.util.find_spec(name) for name in ("lictor", "wasmtime")]
    files = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    folders = dict.fromkeys(str(Path(file).parents[1]) for file in files)
    return {
        "PYTHONPATH": os.pathsep.join(folders),
        "MALLOC_ARENA_MAX": "2",
        "RAYON_NUM_THREADS": "4",
    }


def main(seconds: int, memory_bytes: int) -> NoReturn:
    """What the process does."""
    from lictor.addons.kubewarden.runtime.engine import compile_module, make_engine, serialize

    content = sys.stdin.buffer.read()
    # After everything is imported: only the work itself counts.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds * 4, seconds * 4))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    # What the process has that started this one is for its own requests.
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with contextlib.suppress(OSError):
        # Should the memory end all the same, this is the process to do without.
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        compiled = serialize(compile_module(content, make_engine()))
    except ModuleError as error:
        sys.stderr.write(str(error)[:_LONGEST_MESSAGE])
        sys.exit(_REFUSED)
    sys.stdout.buffer.write(compiled)
    sys.stdout.buffer.flush()
    sys.exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
