"""Print every bar of lictor with its figure, whether it holds, and what Kyverno needs.

    python tools/bench/bench.py [--peer PROGRAM] [--all] [--strict] [--only apply,scan]

CPU seconds are user plus system time of a command and all its processes; memory is that of all its
processes, where shared pages count once. Machines differ: compare the columns with each other, not
with those of another machine. `--peer` names Kyverno's command line, which then does the same work;
without it, what is known of v1.18.2 is shown. `--all` adds what takes minutes. With `--strict`, the
exit code is 1 where a bar was missed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import admission
import bars
import large_inputs
import many_policies
from bars import Bar, Row
from measuring import Measured, measure
from peer import NoPeerError, Peer

LICTOR = str(Path(sys.executable).parent / "lictor")
SUMMARY = "pass: 23919, fail: 11224, warn: 0, error: 0, skip: 1857"
_LATER = "--all measures it"


@dataclass(frozen=True)
class Run:
    """What one run of the benches works with."""

    shared: Path
    folder: Path
    peer: Peer
    is_all: bool
    requests: int
    megabytes: int

    @property
    def inputs(self) -> Path:
        return self.shared / "bench"

    def make_pods(self, count: int) -> Path:
        """A file with so many Pods."""
        made = self.folder / f"pods-{count}.yaml"
        if not made.exists():
            make = [sys.executable, str(self.inputs / "make_pods.py"), str(count)]
            # Not through this process: what it once had counts as memory of those that it starts.
            with made.open("wb") as file:
                subprocess.run(make, stdout=file, check=True)
        return made


def compare(
    run: Run, bar: Bar, arguments: Sequence[str], *, repeat: int = 3, expected: str = "pass: "
) -> Row:
    """A command of both programs."""
    ours = measure([LICTOR, *arguments], repeat=repeat)
    theirs = run.peer.compare(bar.name, arguments, ours)
    note = f"Kyverno counts {theirs.summary}, we {ours.summary}"
    differs = arguments[0] == "apply" and theirs.summary not in ("", ours.summary)
    return bar.judge(
        ours.figures,
        peer=theirs.text,
        fault=ours.find_fault(expected),
        note=note if differs else ours.summary,
    )


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


# --- sections


def bench_version(run: Run) -> Iterator[Row]:
    """What starting costs; it needs no inputs."""
    bare = measure([sys.executable, "-c", "pass"], repeat=10)
    ours = measure([LICTOR, "version"], repeat=10)
    theirs = run.peer.compare(bars.VERSION.name, ["version"], ours, repeat=5)
    figures = {**ours.figures, "times python -c pass": ours.cpu / bare.cpu}
    yield bars.VERSION.judge(figures, peer=theirs.text, fault=ours.find_fault("Version"))


def bench_start(run: Run) -> Iterator[Row]:
    """`version`, and one policy on one Pod."""
    yield from bench_version(run)
    policy = str(run.inputs / "policies" / "disallow-latest-tag.yaml")
    arguments = ["apply", policy, "-r", str(run.make_pods(1))]
    yield compare(run, bars.ONE, arguments, repeat=5, expected="pass: 2, fail: 0")


def bench_apply(run: Run) -> Iterator[Row]:
    """38 policies on ever more Pods, policies in CEL, and `test`."""
    policies = str(run.inputs / "policies")
    arguments = ["apply", policies, "-r", str(run.make_pods(1000))]
    yield compare(run, bars.APPLY, arguments, expected=SUMMARY)
    yield from _bench_many_pods(run, policies)
    vpol = ["apply", str(run.inputs / "vpol"), "-r", str(run.make_pods(1000))]
    # It takes Kyverno six minutes.
    quick = run if run.is_all else Run(**{**vars(run), "peer": Peer()})
    yield compare(quick, bars.CEL, vpol, expected="pass: 12402, fail: 3598")
    library = run.shared / "conformance" / "policy-library"
    if library.is_dir():
        arguments = ["test", str(library)]
        yield compare(run, bars.LIBRARY, arguments, repeat=2, expected="and 0 tests failed")
    else:
        yield bars.LIBRARY.skip(f"{library} is not here")


def _bench_many_pods(run: Run, policies: str) -> Iterator[Row]:
    """The cost of a Pod must stay the same."""
    some = measure([LICTOR, "apply", policies, "-r", str(run.make_pods(20_000))])
    each = some.cpu / 20_000
    yield Bar("apply 38 policies, 20,000 Pods").judge(
        some.figures, fault=some.find_fault(), note=_per_pod(some, 20_000)
    )
    many = measure([LICTOR, "apply", policies, "-r", str(run.make_pods(100_000))])
    figures = {**many.figures, "times a Pod of 20,000": many.cpu / 100_000 / each}
    yield bars.FLAT.judge(figures, fault=many.find_fault(), note=_per_pod(many, 100_000))


def _per_pod(measured: Measured, count: int) -> str:
    return f"{measured.cpu / count * 1e3:.2f} ms a Pod; {measured.summary}"


def bench_policies(run: Run) -> Iterator[Row]:
    """Ever more policies on 100 Pods: most for other namespaces, or all for everyone."""
    pods = str(run.make_pods(100))
    for count, bar in ((1000, bars.THOUSAND_POLICIES), (3000, bars.THREE_THOUSAND_POLICIES)):
        for everywhere in (False, True):
            policies = run.folder / f"policies-{count}-{everywhere}"
            source = run.inputs / "policies"
            many_policies.write_policies(source, policies, count, everywhere=everywhere)
            arguments = ["apply", str(policies), "-r", pods]
            if everywhere:
                found = measure([LICTOR, *arguments])
                name = f"apply {count:,} policies for everyone, 100 Pods"
                yield Bar(name).judge(found.figures, fault=found.find_fault(), note=found.summary)
            else:
                yield compare(run, bar, arguments)


def bench_large(run: Run) -> Iterator[Row]:
    """Large files in every form by one policy, and by all."""
    limits = {"MB": bars.GIGABYTE.most["MB"]}
    one, expected = "policies/disallow-latest-tag.yaml", "pass: "
    for form, measured, count in large_inputs.measure_forms(
        run.shared, large_inputs.FORMS, run.megabytes, one
    ):
        bar = Bar(f"apply 1 policy, {run.megabytes} MB, {form}", limits)
        yield _judge_large(bar, measured, count, expected)
        # All forms hold the same Pods.
        expected = measured.summary
    size = 1024 if run.is_all else run.megabytes
    for _, measured, count in large_inputs.measure_forms(run.shared, ["yaml"], size, "policies"):
        bar = bars.GIGABYTE if run.is_all else Bar(f"apply 38 policies, {size} MB, yaml", limits)
        yield _judge_large(bar, measured, count)
    if not run.is_all:
        yield bars.GIGABYTE.skip(_LATER)


def _judge_large(bar: Bar, measured: Measured, count: int, expected: str = "pass: ") -> Row:
    told = large_inputs.describe(measured, count)
    return bar.judge(measured.figures, fault=measured.find_fault(expected), note=told)


def bench_admission(run: Run) -> Iterator[Row]:
    """Requests over HTTPS, by 18 policies and by the same among 3,000."""
    review = run.inputs / "review-allowed.json"
    found = admission.measure(run.inputs / "pss", review, run.requests, 8, 19443)
    yield admission.judge(found)
    many = run.folder / "admission-policies"
    many_policies.write_policies(run.inputs / "pss", many, 3000)
    cost = admission.measure_cost(many, review, run.requests, 8, 19449)
    # The 18 alone once more, beside it in time: the machine may have become slower.
    few = admission.measure_cost(run.inputs / "pss", review, run.requests, 8, 19447)
    figures = {
        "ms of CPU": cost.milliseconds,
        "MB": cost.megabytes,
        "times that of the 18": cost.milliseconds / few.milliseconds,
    }
    note = f"the 18 alone {few.milliseconds:.3f} ms, {few.megabytes:.0f} MB"
    yield bars.ADMISSION_AMONG_MANY.judge(figures, note=note)


def bench_changes(run: Run) -> Iterator[Row]:
    """One policy among 3,000 changes while requests come in."""
    import policy_changes

    yield from policy_changes.bench(run.shared)


def bench_scan(run: Run) -> Iterator[Row]:
    """The background scan of 10,000 Pods on a control plane."""
    import scan

    yield from scan.bench(run.inputs / "policies")


def bench_fleet(run: Run) -> Iterator[Row]:
    """`apply --engine ray`."""
    import fleet

    # It runs in the folder of the project.
    yield from fleet.bench((run.inputs / "policies").absolute(), run.make_pods(100_000))


@dataclass(frozen=True)
class Section:
    """A part of the table, and the bars in it, which are shown where it is not run."""

    bench: Callable[[Run], Iterator[Row]]
    bars: tuple[Bar, ...]
    is_slow: bool = False


SECTIONS = {
    "start": Section(bench_start, (bars.VERSION, bars.ONE)),
    "apply": Section(bench_apply, (bars.APPLY, bars.FLAT, bars.CEL, bars.LIBRARY)),
    "policies": Section(bench_policies, (bars.THOUSAND_POLICIES, bars.THREE_THOUSAND_POLICIES)),
    "large": Section(bench_large, (bars.GIGABYTE,)),
    "admission": Section(bench_admission, (bars.ADMISSION, bars.ADMISSION_AMONG_MANY)),
    "changes": Section(bench_changes, (bars.CHANGE_IN_FORCE, bars.CHANGE_LATENCY), is_slow=True),
    "scan": Section(
        bench_scan, (bars.FIRST_SCAN, bars.SCAN_OF_CHANGE, bars.SCAN_SHARED), is_slow=True
    ),
    "fleet": Section(bench_fleet, (bars.RAY_EQUAL, bars.RAY_KILLED, bars.RAY_FASTER), is_slow=True),
}


def bench_section(section: Section, run: Run) -> Iterator[Row]:
    """Its rows; a section that breaks misses the bars that it has not shown."""
    shown: set[str] = set()
    try:
        for row in section.bench(run):
            shown.add(row.name)
            yield row
    except Exception as error:  # noqa: BLE001  (the other sections are measured all the same)
        traceback.print_exc()
        for bar in section.bars:
            if bar.name not in shown:
                yield bar.judge({}, fault=f"failed: {error}"[:200])


# --- the table


def list_rows(run: Run, chosen: Sequence[str]) -> Iterator[Row]:
    """The rows of the chosen sections; of the others, what their bars are."""
    for name, section in SECTIONS.items():
        if name in chosen:
            yield from bench_section(section, run)
        else:
            why = _LATER if section.is_slow else f"--only {name} measures it"
            yield from (bar.skip(why) for bar in section.bars)


def count_missed(rows: Iterator[Row]) -> int:
    """Show the rows; how many bars were missed."""
    states: dict[str, int] = {}
    for row in rows:
        bars.show(row)
        states[row.state] = states.get(row.state, 0) + 1
    missed, silent = states.get("MISSED", 0), states.get("not measured", 0)
    print(f"bars: {states.get('holds', 0)} hold, {missed} missed, {silent} not measured")
    return missed


def parse_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--peer", default="", metavar="PROGRAM", help="Kyverno's command line")
    parser.add_argument("--all", action="store_true", help="also what takes minutes")
    parser.add_argument("--strict", action="store_true", help="exit code 1 where a bar is missed")
    parser.add_argument("--only", default="", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--megabytes", type=int, default=64, help="of each large input")
    parser.add_argument("--requests", type=int, default=100_000)
    given = parser.parse_args()
    unknown = [name for name in given.only.split(",") if name and name not in SECTIONS]
    if unknown:
        parser.error(f"--only {unknown[0]}: it is none of {', '.join(SECTIONS)}")
    return given


def choose(given: argparse.Namespace) -> list[str]:
    """The sections to run."""
    if given.only:
        return [name for name in given.only.split(",") if name]
    return [name for name, section in SECTIONS.items() if given.all or not section.is_slow]


def main() -> int:
    """Print the table."""
    given = parse_arguments()
    try:
        peer = Peer(given.peer)
    except NoPeerError as error:
        print(f"bench: {error}")
        return 2
    print(f"calibration loop {calibrate():.3f} CPU-s on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as name:
        run = Run(given.shared, Path(name), peer, given.all, given.requests, given.megabytes)
        if not run.inputs.is_dir():
            print(f"bench: {run.inputs} is not here, nor what to measure with; --shared DIR")
            count_missed(bench_version(run))
            return 2 if given.strict else 0
        missed = count_missed(list_rows(run, choose(given)))
    return 1 if given.strict and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
