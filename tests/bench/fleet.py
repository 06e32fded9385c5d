"""`apply --engine ray` beside one machine: the same results, also when a worker dies, and how much faster.

    python tests/bench/fleet.py [--python .venv-ray/bin/python]

Ray lives in an environment of its own, which `make test-ray` makes.
"""

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bars
from bars import Row

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-ray" / "bin" / "python"
_BARS = (bars.RAY_EQUAL, bars.RAY_KILLED, bars.RAY_FASTER)
# What Ray calls a process that judges.
_JUDGING = "_JudgeActor.judge"


@dataclass(frozen=True)
class Applied:
    """How a run ended, a hash of what it printed, and how long it took."""

    code: int
    digest: str
    seconds: float
    killed: int = 0

    def differs(self, other: "Applied") -> bool:
        return (self.code, self.digest) != (other.code, other.digest)


def apply(command: Sequence[str], *, kill: bool = False) -> Applied:
    """Run `apply`; with `kill`, one worker is killed once it judges."""
    started, killed = time.perf_counter(), 0
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT / "src")}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT
        )
        if kill:
            killed = _kill_worker(process)
        code = process.wait()
        seconds = time.perf_counter() - started
        out.seek(0)
        digest = hashlib.file_digest(out, "blake2b").hexdigest()
    return Applied(code, digest, seconds, killed)


def _kill_worker(process: "subprocess.Popen[bytes]") -> int:
    """Wait until a worker judges, and for a moment; then kill it. How many were killed?"""
    while process.poll() is None:
        workers = list_workers(process.pid)
        if workers:
            # In the middle of its work, not at its beginning.
            time.sleep(3)
            os.kill(workers[0], signal.SIGKILL)
            return 1
        time.sleep(0.05)
    return 0


def list_workers(parent: int) -> list[int]:
    """The processes below this one that judge now."""
    found = subprocess.run(
        ["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in found.stdout.splitlines()[1:]]
    parents = {int(pid): int(above) for pid, above, _ in rows}
    judging = [int(pid) for pid, _, name in rows if _JUDGING in name]
    return [worker for worker in judging if _is_below(worker, parent, parents)]


def _is_below(process: int, parent: int, parents: dict[int, int]) -> bool:
    while process and process != parent:
        process = parents.get(process, 0)
    return process == parent


def bench(policies: Path, pods: Path, python: Path = PYTHON) -> Iterator[Row]:
    """The rows of the table."""
    if not python.exists():
        why = f"{python} is not here: make test-ray makes it"
        yield from (bar.skip(why) for bar in _BARS)
        return
    base = [str(python), "-m", "lictor", "apply", str(policies), "-r", str(pods)]
    alone = apply(base)
    two = apply([*base, "--engine", "ray", "--parallel", "2"])
    told = f"this machine alone {alone.seconds:.0f} s"
    figures = {"s": two.seconds, "wrong": float(two.differs(alone))}
    yield bars.RAY_EQUAL.judge(figures, note=f"two workers; {told}")
    hurt = apply([*base, "--engine", "ray", "--parallel", "2"], kill=True)
    figures = {"s": hurt.seconds, "wrong": float(hurt.differs(alone)), "killed": float(hurt.killed)}
    yield bars.RAY_KILLED.judge(figures)
    one = apply([*base, "--engine", "ray", "--parallel", "1"])
    yield bars.RAY_FASTER.judge(
        {"times as fast": one.seconds / two.seconds},
        fault="one worker says something else" if one.differs(alone) else "",
        note=f"{one.seconds:.0f} s and {two.seconds:.0f} s, with the start of Ray",
    )


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--python", type=Path, default=PYTHON)
    given = parser.parse_args()
    inputs = given.shared.absolute() / "bench"
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        make = [sys.executable, str(inputs / "make_pods.py"), str(given.pods)]
        subprocess.run(make, stdout=file, stderr=subprocess.DEVNULL, check=True)
        for row in bench(inputs / "policies", Path(file.name), given.python):
            bars.show(row)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
