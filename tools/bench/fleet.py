"""`apply --engine ray` beside one machine: the same results, also when a worker dies, and how much faster.

    python tools/bench/fleet.py [--python .venv-ray/bin/python]
    python tools/bench/fleet.py --snapshots         what docs/guides/fleet.md says that a fleet costs

Ray lives in an environment of its own, which `make test-ray` makes. CPU seconds are those of the
process that asks and of what it started and waited for: with Ray, without the workers.
"""

import argparse
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bars
from bars import Row

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-ray" / "bin" / "python"
_BARS = (bars.RAY_EQUAL, bars.RAY_KILLED, bars.RAY_FASTER)
# What Ray calls a process that judges.
_JUDGING = "_JudgeActor.judge"
_BEGAN = re.compile(rb',"time":"[^"]*"')


@dataclass(frozen=True)
class Applied:
    """How a run ended, a hash of what it printed, and how long it took."""

    code: int
    digest: str
    seconds: float
    cpu: float
    killed: int = 0
    is_empty: bool = False

    def differs(self, other: "Applied") -> bool:
        """Is it anything else than the same results? Where nothing was printed, there are none."""
        same = (self.code, self.digest) == (other.code, other.digest)
        return not same or self.is_empty


def apply(command: Sequence[str], *, kill: bool = False) -> Applied:
    """Run `apply`; with `kill`, one worker is killed once it judges."""
    started, killed = time.perf_counter(), 0
    # By default, Ray lets its workers give way to everything else on the machine.
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT / "src")}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT
        )
        if kill:
            killed = _kill_worker(process)
        _, status, usage = os.wait4(process.pid, 0)
        code = process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        out.seek(0)
        digest, size = _hash_lines(out), out.tell()
    return Applied(code, digest, seconds, usage.ru_utime + usage.ru_stime, killed, not size)


def _hash_lines(lines: Iterable[bytes]) -> str:
    """What was printed; rows of results also tell when the run began, which is no result."""
    digest = hashlib.blake2b()
    for line in lines:
        digest.update(_BEGAN.sub(b"", line))
    return digest.hexdigest()


def _kill_worker(process: "subprocess.Popen[bytes]") -> int:
    """Wait until a worker judges, and for a moment; then kill it. How many were killed?"""
    over = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, process.pid, over) is None:
        for worker in list_workers(process.pid)[:1]:
            # In the middle of its work, not at its beginning.
            time.sleep(1)
            if worker in list_workers(process.pid):
                os.kill(worker, signal.SIGKILL)
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
    told = f"this machine alone {alone.seconds:.0f} s, {alone.cpu:.0f} CPU-s"
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


def show_costs(policies: Path, folder: Path, python: Path, clusters: int) -> None:
    """The worked example of docs/guides/fleet.md: a thousand snapshots, and what a fleet costs then."""
    make = [str(python), str(ROOT / "examples" / "fleet" / "make_snapshots.py")]
    subprocess.run(
        [*make, "snapshots", "--clusters", str(clusters), "--objects", "100"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    count = clusters * 100
    words = ["apply", str(policies), "-r", f"{folder}/snapshots/*/*.json"]
    words += ["--cluster-from", "snapshots/{cluster}/*.json", "--output-format", "jsonl"]
    words += ["--output-file", f"parquet={folder}/rows.parquet"]
    base = [str(python), "-m", "lictor", *words]
    local = apply(base)
    by_ray = apply([*base, "--engine", "ray", "--parallel", "2"])
    bare = apply([str(python), "-m", "lictor", *words[:6]])
    same = "the same rows" if not by_ray.differs(local) else "OTHER ROWS"
    print(f"{clusters} snapshots, local: {local.cpu:.0f} CPU-s, {local.seconds:.0f} s")
    print(f"  ray, two workers: {by_ray.cpu:.0f} CPU-s to collect, {by_ray.seconds:.0f} s; {same}")
    print(f"  local, the counts alone: {bare.cpu:.0f} CPU-s, {bare.seconds:.0f} s")
    for line in describe_costs(bare.cpu / count, by_ray.cpu / count):
        print(f"  {line}")


def describe_costs(judging: float, collecting: float, *, price: float = 0.05) -> Iterator[str]:
    """What 100 million objects cost, from the CPU seconds of one."""
    hours = [each * 1e8 / 3600 for each in (judging, collecting)]
    yield f"judging 100 million objects: {judging * 1e3:.2f} ms each, {hours[0]:.0f} CPU-hours"
    yield f"collecting every result: {collecting * 1e3:.2f} ms each, {hours[1]:.0f} CPU-hours"
    yield f"at {price:.2f} USD an hour: {sum(hours) * price:.2f} USD"


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--python", type=Path, default=PYTHON)
    parser.add_argument("--snapshots", action="store_true")
    parser.add_argument("--clusters", type=int, default=1000, help="with --snapshots")
    given = parser.parse_args()
    inputs = given.shared.absolute() / "bench"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        if given.snapshots:
            show_costs(inputs / "policies", Path(name), given.python, given.clusters)
            return 0
        pods = Path(name) / "pods.yaml"
        make = [sys.executable, str(inputs / "make_pods.py"), str(given.pods)]
        pods.write_bytes(subprocess.run(make, capture_output=True, check=True).stdout)
        print(f"{given.pods} Pods")
        for row in bench(inputs / "policies", pods, given.python):
            bars.show(row)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
