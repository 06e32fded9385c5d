"""Memory and CPU of `apply` on large inputs, in every form: a file, JSON lines, a List, archives.

Each line shows the largest process (resident memory) and the sum over all processes at one moment:
resident memory, where pages that forked processes share count in each of them, and proportional
memory, where they count once.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LICTOR = str(Path(sys.executable).parent / "lictor")
BAR_MEGABYTES = 150
FORMS = ("yaml", "jsonl", "json", "tar", "tar.gz", "zip", "stdin")
# So many different Pods are written again and again, under other names.
_BASE_PODS = 5000
_LOOK_SECONDS = 0.1


@dataclass
class Memory:
    """The most that was seen at one moment, in megabytes."""

    process: float = 0.0
    resident: float = 0.0
    proportional: float = 0.0

    def look(self, parent: int) -> None:
        resident = proportional = 0.0
        for process in (parent, *_list_children(parent)):
            found = _read_rollup(process)
            self.process = max(self.process, found.get("Rss:", 0.0))
            resident += found.get("Rss:", 0.0)
            proportional += found.get("Pss:", 0.0)
        self.resident = max(self.resident, resident)
        self.proportional = max(self.proportional, proportional)


def _list_children(parent: int) -> list[int]:
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    except OSError:
        return []
    return [int(each) for each in text.split()]


def _read_rollup(process: int) -> dict[str, float]:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {each[0]: int(each[1]) / 1024 for each in fields if each[0] in ("Rss:", "Pss:")}


@dataclass(frozen=True)
class Measured:
    """What one run cost."""

    cpu: float
    wall: float
    memory: Memory
    summary: str


def measure(command: list[str], given: Path | None = None) -> Measured:
    """Run a command, with a file as its standard input if there is one."""
    memory, over = Memory(), threading.Event()
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out, open(given or os.devnull, "rb") as stdin:
        process = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=subprocess.DEVNULL)

        def watch() -> None:
            while not over.wait(_LOOK_SECONDS):
                memory.look(process.pid)

        watcher = threading.Thread(target=watch)
        watcher.start()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        over.set()
        watcher.join()
        wall = time.perf_counter() - started
        out.seek(max(out.seek(0, os.SEEK_END) - 1000, 0))
        lines = out.read().decode(errors="replace").strip().splitlines()
    # The kernel saw every moment, we only some.
    memory.process = max(memory.process, usage.ru_maxrss / 1024)
    return Measured(
        usage.ru_utime + usage.ru_stime, wall, memory, lines[-1].strip() if lines else ""
    )


def make_yaml(shared: Path, target: Path, megabytes: int) -> int:
    """Write Pods as YAML until the file has that size; gives their number."""
    make = [sys.executable, str(shared / "bench" / "make_pods.py"), str(_BASE_PODS)]
    base = subprocess.run(make, capture_output=True, check=True).stdout
    count = 0
    with target.open("wb") as file:
        while file.tell() < megabytes << 20:
            count += 1
            file.write(base.replace(b'"pod-', b'"pod-%d-' % count))
    return count * _BASE_PODS


def _list_pods(source: Path) -> Iterator[object]:
    """The Pods of a file, document by document."""
    from lictor.offline.inputs import open_input
    from lictor.offline.resource_inputs import ResourceInputs

    return ResourceInputs([open_input(str(source))]).list_resources()


def make_form(form: str, source: Path) -> Path:
    """The same Pods in another form."""
    target = source.with_suffix(f".{form}")
    match form:
        case "jsonl":
            with target.open("w") as file:
                file.writelines(f"{json.dumps(pod)}\n" for pod in _list_pods(source))
        case "json":
            _write_list(source, target)
        case "tar" | "tar.gz":
            with tarfile.open(target, "w:gz" if form == "tar.gz" else "w") as archive:
                archive.add(source, source.name)
        case "zip":
            with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.write(source, source.name)
        case _:
            return source
    return target


def _write_list(source: Path, target: Path) -> None:
    """As `kubectl get -A -o json` writes it."""
    with target.open("w") as file:
        file.write('{\n    "apiVersion": "v1",\n    "items": [')
        for number, pod in enumerate(_list_pods(source)):
            text = json.dumps(pod, indent=4).replace("\n", "\n        ")
            file.write(f"{',' if number else ''}\n        {text}")
        file.write('\n    ],\n    "kind": "List",\n    "metadata": {"resourceVersion": ""}\n}\n')


def bench_forms(shared: Path, forms: list[str], megabytes: int, policies: str) -> None:
    """One line for each form."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR") or "/var/tmp") as name:
        source = Path(name) / "pods.yaml"
        count = make_yaml(shared, source, megabytes)
        summaries = set()
        for form in forms:
            target = make_form(form, source)
            stdin = target if form == "stdin" else None
            command = [LICTOR, "apply", str(shared / "bench" / policies), "-r"]
            measured = measure([*command, "-" if stdin else str(target)], stdin)
            summaries.add(measured.summary)
            show(f"apply, {megabytes} MB of Pods, {form}", measured, count)
            if target != source:
                target.unlink()
        print(
            f"    {count} Pods  {' | '.join(summaries)}  {'' if len(summaries) == 1 else 'DIFFER'}"
        )


def show(name: str, measured: Measured, count: int) -> None:
    """One line of the table."""
    memory = measured.memory
    print(
        f"{name:34} {measured.cpu:7.2f} CPU-s {measured.wall:7.2f} s {memory.process:6.0f} MB"
        f"  bar {BAR_MEGABYTES} MB  {measured.cpu / count * 1e6:.0f} us a Pod, all processes "
        f"{memory.resident:.0f} MB resident, {memory.proportional:.0f} MB proportional",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--policies", default="policies/disallow-latest-tag.yaml")
    arguments = parser.parse_args()
    forms = arguments.forms.split(",")
    bench_forms(arguments.shared, forms, arguments.megabytes, arguments.policies)


if __name__ == "__main__":
    main()
