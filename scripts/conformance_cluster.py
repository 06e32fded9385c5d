"""Run Kyverno's cluster conformance tests with lictor in its place.

    python scripts/conformance_cluster.py [--cluster real] [--folders validate,mutate] [--test PATH]

On a real control plane, or on the cluster inside lictor (--cluster embedded).

Prints a line for each test as it ends, then a table per folder and the reason of each failure.
"""

import argparse
import json
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "conformance")]

from chainsaw.case import Case, find_cases  # noqa: E402
from chainsaw.expectation import is_expected, read_index  # noqa: E402
from chainsaw.groups import Group, find_group  # noqa: E402
from chainsaw.runner import FAILED, Result  # noqa: E402
from chainsaw.session import Manner, Session, open_session  # noqa: E402
from chainsaw.signed_images import NOT_HERE, SignedImages  # noqa: E402
from chainsaw.table import show_failures, show_line, show_table  # noqa: E402
from control_plane.embedded import EmbeddedCluster  # noqa: E402
from control_plane.install import NotReadyError  # noqa: E402
from control_plane.local import LocalCluster  # noqa: E402
from control_plane.plane import ControlPlane  # noqa: E402
from control_plane.programs import NoControlPlaneError, find_programs  # noqa: E402

Open = Callable[[], LocalCluster]
Batch = tuple[Group, list[Case]]
Waiting = queue.SimpleQueue[Batch]


def print_line(line: str) -> None:
    """A line at once, also into a pipe."""
    print(line, flush=True)


def parse_arguments() -> argparse.Namespace:
    """What to run, and how."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--cluster", choices=("real", "embedded"), default="real")
    parser.add_argument("--folders", default="", help="folders, with commas; all by default")
    parser.add_argument("--test", action="append", default=[], help="path of one test")
    parser.add_argument("--exclude", action="append", default=[], help="path not to run")
    parser.add_argument("--only-passing-index", action="store_true", help="only what counts")
    parser.add_argument("--jobs", type=int, default=1, help="clusters side by side")
    parser.add_argument("--longest", type=float, help="no operation waits longer, in seconds")
    parser.add_argument("--delays", action="store_true", help="wait before each clean-up")
    parser.add_argument(
        "--controllers", default="", help="run these too, with commas: background,reports,cleanup"
    )
    parser.add_argument("--images", action="store_true", help="serve images that tests name")
    parser.add_argument("--keep", action="store_true", help="keep the cluster until interrupted")
    parser.add_argument("--json", type=Path, help="write a line of JSON for each test")
    return parser.parse_args()


def read_manner(arguments: argparse.Namespace) -> Manner:
    """The arguments of a session."""
    controllers = [name for name in arguments.controllers.split(",") if name]
    images = SignedImages() if arguments.images else None
    return Manner(arguments.longest, arguments.delays, controllers, images)


def main() -> int:
    """Choose the tests, run them, report."""
    arguments = parse_arguments()
    conformance = arguments.shared / "conformance"
    root = conformance / "kyverno-chainsaw"
    if not root.is_dir():
        print_line(f"conformance-cluster: {root} is not here; nothing to run")
        return 0
    try:
        open_cluster = choose_cluster(arguments.cluster)
    except NoControlPlaneError as absent:
        print_line(f"conformance-cluster: {absent}")
        return 0
    index = read_index(conformance / "chainsaw-index.jsonl")
    cases = choose_cases(root, arguments)
    for case in [case for case in cases if arguments.images and case.path in NOT_HERE]:
        print_line(f"left out: {case.path}: {NOT_HERE[case.path]}")
        cases.remove(case)
    expected = {case.path: is_expected(case, index, has_images=arguments.images) for case in cases}
    if arguments.only_passing_index:
        cases = [case for case in cases if expected[case.path]]
    missing = [name for name in arguments.test if not (root / name.strip("/")).is_dir()]
    if missing or not cases:
        print_line(f"conformance-cluster: no such tests {' '.join(missing)}")
        return 2
    results = run_all(open_cluster, cases, expected, arguments)
    print_line("\n" + show_table(results, expected))
    print_line("\n" + show_failures(results, expected))
    return 0


def choose_cluster(kind: str) -> Open:
    """How a cluster of this kind is made."""
    return (
        EmbeddedCluster if kind == "embedded" else partial(ControlPlane, find_programs(print_line))
    )


def choose_cases(root: Path, arguments: argparse.Namespace) -> list[Case]:
    """The tests that were named, or all."""
    named = [name.strip("/") for name in arguments.folders.split(",") if name]
    left_out = tuple(path.strip("/") for path in arguments.exclude)
    cases = find_cases(root, [*named, *(test.strip("/") for test in arguments.test)])
    return [case for case in cases if not (left_out and case.path.startswith(left_out))]


def make_batches(cases: Sequence[Case]) -> list[Batch]:
    """Tests that run on lictor with the same flags together, folder by folder."""

    def place(case: Case) -> tuple[str, str]:
        return find_group(case).name, case.group

    ordered = sorted(cases, key=place)
    batches = [list(batch) for _, batch in groupby(ordered, key=place)]
    return [(find_group(batch[0]), batch) for batch in batches]


def run_all(
    open_cluster: Open,
    cases: Sequence[Case],
    expected: dict[str, bool],
    arguments: argparse.Namespace,
) -> list[Result]:
    """Run all batches on the requested number of clusters; results by path."""
    waiting: Waiting = queue.SimpleQueue()
    for batch in make_batches(cases):
        waiting.put(batch)
    results: list[Result] = []
    lock = threading.Lock()
    output = arguments.json.open("w", encoding="utf-8") if arguments.json else None

    def print_result(result: Result) -> None:
        with lock:
            results.append(result)
            print_line(show_line(result, expected=expected[result.path]))
            if output:
                row = {**asdict(result), "expected": expected[result.path]}
                output.write(json.dumps(row) + "\n")
                output.flush()

    workers = [
        threading.Thread(
            target=work, args=(open_cluster, waiting, print_result, arguments), daemon=True
        )
        for _ in range(min(arguments.jobs, waiting.qsize()))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        # With a limit, so that a signal is seen.
        while worker.is_alive():
            worker.join(0.5)
    return sorted(results, key=lambda result: result.path)


def work(
    open_cluster: Open,
    waiting: Waiting,
    print_result: Callable[[Result], None],
    arguments: argparse.Namespace,
) -> None:
    """Take batches until there are no more. A cluster that broke is replaced by a new one."""
    while (batch := take(waiting)) is not None:
        try:
            run_batches(open_cluster, batch, waiting, print_result, arguments)
        except NotReadyError as error:
            print_line(f"{error}\nlictor does not start; nothing more can run here")
            while batch is not None:
                fail_all(batch, print_result, "lictor did not start")
                batch = take(waiting)
        except Exception as error:  # noqa: BLE001
            print_line(f"the cluster broke, a new one follows: {type(error).__name__}: {error}")


def take(waiting: Waiting) -> Batch | None:
    """The next batch, if there is one."""
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def fail_all(batch: Batch, print_result: Callable[[Result], None], reason: str) -> None:
    """All tests that are left of a batch failed, for one reason."""
    while batch[1]:
        print_result(Result(batch[1].pop(0).path, FAILED, 0.0, reason))


def run_batches(
    open_cluster: Open,
    first: Batch,
    waiting: Waiting,
    print_result: Callable[[Result], None],
    arguments: argparse.Namespace,
) -> None:
    """A cluster for this batch and those after it."""
    with open_cluster() as plane:
        print_line(f"cluster: {plane.kubeconfig} {' '.join(plane.network.prefix)}")
        with open_session(plane, first[0], print_line, read_manner(arguments)) as session:
            batch: Batch | None = first
            while batch is not None:
                run_batch(session, batch, waiting, print_result)
                batch = take(waiting)
            while arguments.keep:
                time.sleep(1)


def run_batch(
    session: Session, batch: Batch, waiting: Waiting, print_result: Callable[[Result], None]
) -> None:
    """Run the tests of a batch; what has run leaves its list."""
    left = batch[1]
    try:
        for result in session.run(list(left)):
            print_result(result)
            left.pop(0)
    except NotReadyError as error:
        print_line(str(error))
        fail_all(batch, print_result, "lictor did not start")
    except Exception as error:
        # The test that ran is to blame; those after it get a new cluster.
        print_result(Result(left.pop(0).path, FAILED, 0.0, f"the cluster broke: {error}"))
        if left:
            waiting.put(batch)
        raise


if __name__ == "__main__":
    # So that `with` blocks and atexit end what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
