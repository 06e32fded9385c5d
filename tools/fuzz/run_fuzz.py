"""The long run of the fuzzer: `run.py --examples N`, over all processors, ended by the first bugs.

Every input is made from a seed of two numbers, so that a failure can be tried again by
`run.py --again TARGET SEED`. A worker that dies (a fault in a C library, a loop that no signal
ends) is a failure too: its last words, kept in shared memory, name the input.
"""

import argparse
import faulthandler
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.sharedctypes import Synchronized

from targets import Target, all_targets
from trial import Failure, make_parts, show_parts, try_input, watch_time

_BATCH = 200
_MAX_FAILURES = 20
# No signal ends a loop inside a C library; this does, and prints where.
_STUCK_SECONDS = 60
_MAX_MEMORY = 4 << 30


@dataclass
class Tally:
    """What happened so far."""

    tried: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    # By where they broke: one of each kind is enough to tell.
    failures: dict[str, Failure] = field(default_factory=dict)

    def add(self, failure: Failure) -> None:
        self.failed[failure.target] += 1
        self.failures.setdefault(failure.fault, failure)


def plan(targets: tuple[Target, ...], examples: int) -> Iterator[tuple[int, int, int]]:
    """Batches of inputs as target, first and last number, mixed so that all targets go along."""
    shares = sum(target.share for target in targets)
    counts = [-(-examples * target.share // shares) for target in targets]
    for start in range(0, max(counts), _BATCH):
        for index, count in enumerate(counts):
            if start < count:
                yield index, start, min(start + _BATCH, count)


def _work(pipe: Connection, seed: int, place: "Synchronized[int]") -> None:
    targets = all_targets()
    watch_time()
    # What asks for more memory than this gets an error, not the whole machine.
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    while (batch := pipe.recv()) is not None:
        index, start, end = batch
        failures = []
        for number in range(start, end):
            place.value = index << 32 | number
            faulthandler.dump_traceback_later(_STUCK_SECONDS, exit=True)
            failure = try_input(targets[index], f"{seed}-{number}")
            if failure is not None:
                failures.append(failure)
        faulthandler.cancel_dump_traceback_later()
        pipe.send((targets[index].name, end - start, failures))


class Worker:
    """A process that tries inputs, and where it stands."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.place: Synchronized[int] = multiprocessing.Value("q", 0)
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(
            target=_work, args=(theirs, seed, self.place), daemon=True
        )
        self.process.start()
        theirs.close()

    def last_words(self, targets: tuple[Target, ...]) -> Failure:
        self.process.join()
        target = targets[self.place.value >> 32]
        seed = f"{self.seed}-{self.place.value & 0xFFFFFFFF}"
        reason = f"the process ended with {self.process.exitcode}"
        return Failure(target.name, seed, reason, show_parts(make_parts(target, seed)))


def _hear(worker: Worker, tally: Tally) -> Worker:
    """Take down what a worker has to tell; where it died, another one takes its place."""
    try:
        name, count, failures = worker.pipe.recv()
    except EOFError:
        tally.add(worker.last_words(all_targets()))
        return Worker(worker.seed)
    tally.tried[name] += count
    for failure in failures:
        tally.add(failure)
    return worker


def run(examples: int, seed: int, minutes: float, processes: int) -> Tally:
    """Try so many inputs, at most so many minutes long, and give what happened."""
    tally = Tally()
    batches = plan(all_targets(), examples)
    end = time.monotonic() + minutes * 60 if minutes else float("inf")
    workers = [Worker(seed) for _ in range(processes)]
    for worker in workers:
        worker.pipe.send(next(batches, None))
    while workers:
        ready = wait([worker.pipe for worker in workers])
        for worker in [worker for worker in workers if worker.pipe in ready]:
            workers.remove(worker)
            heard = _hear(worker, tally)
            over = time.monotonic() > end or len(tally.failures) >= _MAX_FAILURES
            batch = None if over else next(batches, None)
            heard.pipe.send(batch)
            if batch is not None:
                workers.append(heard)
    return tally


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def try_again(name: str, seed: str) -> int:
    """One input once more, with all that can be said about it."""
    target = next(target for target in all_targets() if target.name == name)
    _say(show_parts(make_parts(target, seed)))
    watch_time()
    failure = try_input(target, seed)
    _say(failure.reason if failure is not None else "all is well")
    return 0 if failure is None else 1


def _print_tally(tally: Tally, seconds: float) -> None:
    for failure in tally.failures.values():
        _say(f"{failure}\n")
    for target in all_targets():
        count = tally.tried[target.name]
        _say(f"{target.name:24} {count:8} inputs {tally.failed[target.name]:4} failures")
    total = sum(tally.tried.values())
    _say(
        f"{'total':24} {total:8} inputs {sum(tally.failed.values()):4} failures in {seconds:.0f} s"
    )


def main() -> int:
    """Read arguments, run, report."""
    parser = argparse.ArgumentParser(description="Try many inputs; fail where one breaks something")
    parser.add_argument("--examples", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0, help="0 takes one from the clock")
    parser.add_argument("--minutes", type=float, default=0, help="stop after this time")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--again", nargs=2, metavar=("TARGET", "SEED"), help="try one input again")
    arguments = parser.parse_args()
    if arguments.again:
        return try_again(*arguments.again)
    seed = arguments.seed or int(time.time())
    _say(f"seed {seed}")
    started = time.monotonic()
    tally = run(arguments.examples, seed, arguments.minutes, arguments.processes)
    _print_tally(tally, time.monotonic() - started)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
