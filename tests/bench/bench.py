"""Print lictor's speed beside a fixed calibration loop and beside Kyverno's figures.

Machines differ: compare the columns with each other, not with those of another machine. CPU seconds
are user plus system time of the command and all its children.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import admission
import large_inputs
import many_policies

LICTOR = str(Path(sys.executable).parent / "lictor")
# What Kyverno v1.18.2 needs for the same work: CPU seconds and megabytes.
KYVERNO = {
    "apply 1000": (32.0, 235),
    "apply one": (1.0, 160),
    "version": (0.10, 60),
    "test": (44.0, 216),
    "1000 policies": (15.0, 0),
    "3000 policies": (43.0, 0),
}
SUMMARY = "pass: 23919, fail: 11224, warn: 0, error: 0, skip: 1857"


@dataclass(frozen=True)
class Measured:
    """What one command cost."""

    cpu: float
    wall: float
    megabytes: float
    output: str


def measure(command: Sequence[str], *, repeat: int = 1) -> Measured:
    """Run a command a few times; the cheapest run counts, as noise only adds."""
    return min((_measure_once(command) for _ in range(repeat)), key=lambda m: m.cpu)


def _measure_once(command: Sequence[str]) -> Measured:
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        wall = time.perf_counter() - started
        out.seek(0)
        text = out.read().decode(errors="replace")
    # On Linux, ru_maxrss of a waited-for child is in kilobytes.
    return Measured(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024, text)


def calibrate() -> float:
    """CPU seconds of a fixed loop: how fast is this interpreter on this machine right now?"""
    before = resource.getrusage(resource.RUSAGE_SELF)
    table = {str(i): i for i in range(1000)}
    total = 0
    for _ in range(2000):
        for key in ("1", "10", "100", "999"):
            total += table[key] + len(json.dumps({"a": [key, total % 7]}))
    after = resource.getrusage(resource.RUSAGE_SELF)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def show(name: str, measured: Measured, bar: str, kyverno: tuple[float, int] | None) -> None:
    """One line of the table."""
    theirs = f"{kyverno[0]:7.2f} CPU-s" if kyverno else ""
    theirs += f" {kyverno[1]:4d} MB" if kyverno and kyverno[1] else ""
    print(
        f"{name:34} {measured.cpu:7.3f} CPU-s {measured.wall:7.3f} s {measured.megabytes:6.0f} MB"
        f"  bar {bar:14} kyverno {theirs}",
        flush=True,
    )


def bench_apply(shared: Path, folder: Path, counts: Sequence[int]) -> None:
    """`apply` of 38 policies on ever more Pods; the cost of a Pod must stay the same."""
    policies = str(shared / "bench" / "policies")
    for count in counts:
        pods = folder / f"pods-{count}.yaml"
        make = [sys.executable, str(shared / "bench" / "make_pods.py"), str(count)]
        pods.write_bytes(subprocess.run(make, capture_output=True, check=True).stdout)
        measured = measure(
            [LICTOR, "apply", policies, "-r", str(pods)], repeat=3 if count <= 1000 else 1
        )
        known = KYVERNO["apply 1000"] if count == 1000 else None
        bar = "1.6 CPU-s" if count == 1000 else "flat, 120 MB"
        show(f"apply 38 policies, {count} Pods", measured, bar, known)
        summary = measured.output.strip().splitlines()[-1].strip() if measured.output else ""
        right = summary == SUMMARY if count == 1000 else None
        print(f"    {summary}  {'' if right is None else 'as Kyverno' if right else 'DIFFERS'}")


def bench_many_policies(shared: Path, folder: Path) -> None:
    """`apply` of ever more policies on 100 Pods: most for other namespaces, or all for everyone."""
    pods = folder / "pods-100.yaml"
    make = [sys.executable, str(shared / "bench" / "make_pods.py"), "100"]
    pods.write_bytes(subprocess.run(make, capture_output=True, check=True).stdout)
    bars = {1000: "0.9 CPU-s", 3000: "2.5 CPU-s 150 MB"}
    for everywhere in (False, True):
        for count, bar in bars.items():
            policies = folder / f"policies-{count}-{everywhere}"
            source = shared / "bench" / "policies"
            many_policies.write_policies(source, policies, count, everywhere=everywhere)
            measured = measure([LICTOR, "apply", str(policies), "-r", str(pods)], repeat=3)
            what = "all for everyone" if everywhere else "most of one team"
            known = None if everywhere else KYVERNO[f"{count} policies"]
            show(f"apply {count} policies, {what}", measured, "none" if everywhere else bar, known)
            print(f"    {measured.output.strip().splitlines()[-1].strip()}")


def bench_many_on_admission(shared: Path, requests: int) -> None:
    """Admission by 18 policies, and by the same among 3,000 of which the others do not concern
    the request.
    """
    bench = shared / "bench"
    review = bench / "review-allowed.json"
    with tempfile.TemporaryDirectory() as name:
        many_policies.write_policies(bench / "pss", Path(name), 3000)
        few = admission.measure_cost(bench / "pss", review, requests, 8, 19447)
        many = admission.measure_cost(Path(name), review, requests, 8, 19449)
    print(
        f"{'admission, 18 of 3000 policies':34} {many.milliseconds:7.3f} ms of CPU a request"
        f" {many.megabytes:6.0f} MB  bar 1.3 times that of the 18 alone,"
        f" is {many.milliseconds / few.milliseconds:.2f} times {few.milliseconds:.3f} ms"
        f" ({few.megabytes:.0f} MB)",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--counts", default="1000,20000,100000")
    parser.add_argument("--megabytes", type=int, default=64, help="of each large input")
    parser.add_argument("--requests", type=int, default=100_000)
    arguments = parser.parse_args()
    print(f"calibration loop {calibrate():.3f} CPU-s on {os.cpu_count()} cores")
    bare = measure([sys.executable, "-c", "pass"], repeat=10)
    print(f"python -c pass   {bare.cpu:.3f} CPU-s")
    show(
        "version",
        measure([LICTOR, "version"], repeat=10),
        f"{2 * bare.cpu:.3f} CPU-s",
        KYVERNO["version"],
    )
    if not (arguments.shared / "bench").is_dir():
        print(f"bench: {arguments.shared / 'bench'} is not here; only the start-up was measured")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = folder / "one.yaml"
        make = [sys.executable, str(arguments.shared / "bench" / "make_pods.py"), "1"]
        one.write_bytes(subprocess.run(make, capture_output=True, check=True).stdout)
        policy = str(arguments.shared / "bench" / "policies" / "disallow-latest-tag.yaml")
        measured = measure([LICTOR, "apply", policy, "-r", str(one)], repeat=5)
        show("apply 1 policy, 1 Pod", measured, "0.13 CPU-s", KYVERNO["apply one"])
        bench_apply(arguments.shared, folder, [int(c) for c in arguments.counts.split(",")])
        bench_many_policies(arguments.shared, folder)
    policy = "policies/disallow-latest-tag.yaml"
    large_inputs.bench_forms(
        arguments.shared, list(large_inputs.FORMS), arguments.megabytes, policy
    )
    bench = arguments.shared / "bench"
    admission.show(
        admission.measure(
            bench / "pss", bench / "review-allowed.json", arguments.requests, 8, 19443
        )
    )
    bench_many_on_admission(arguments.shared, arguments.requests)


if __name__ == "__main__":
    main()
