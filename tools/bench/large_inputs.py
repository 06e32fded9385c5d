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
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from measuring import Measured, measure

LICTOR = str(Path(sys.executable).parent / "lictor")
FORMS = ("yaml", "jsonl", "json", "tar", "tar.gz", "zip", "stdin")
# So many different Pods are written again and again, under other names.
_BASE_PODS = 5000


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
    from lictor.cli.inputs.document_reader import DocumentReader
    from lictor.cli.inputs.inputs import open_input

    return DocumentReader([open_input(str(source))]).list_resources()


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


def measure_forms(
    shared: Path, forms: Sequence[str], megabytes: int, policies: str
) -> Iterator[tuple[str, Measured, int]]:
    """Each form, what it cost, and the number of Pods."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR") or "/var/tmp") as name:
        source = Path(name) / "pods.yaml"
        count = make_yaml(shared, source, megabytes)
        for form in forms:
            target = make_form(form, source)
            stdin = target if form == "stdin" else None
            command = [LICTOR, "apply", str(shared / "bench" / policies), "-r"]
            yield form, measure([*command, "-" if stdin else str(target)], given=stdin), count
            if target != source:
                target.unlink()


def describe(measured: Measured, count: int) -> str:
    """What a Pod cost, and the memory of all processes."""
    memory = measured.memory
    return (
        f"{measured.cpu / count * 1e6:.0f} us a Pod; largest process {memory.process:.0f} MB, "
        f"all {memory.resident:.0f} MB resident, {memory.proportional:.0f} MB proportional"
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
    summaries = set()
    for form, measured, count in measure_forms(
        arguments.shared, forms, arguments.megabytes, arguments.policies
    ):
        summaries.add(measured.summary)
        name = f"apply, {arguments.megabytes} MB of Pods, {form}"
        print(
            f"{name:34} {measured.cpu:7.2f} CPU-s {measured.wall:7.2f} s  {describe(measured, count)}",
            flush=True,
        )
    print(f"    {' | '.join(summaries)}  {'' if len(summaries) == 1 else 'DIFFER'}")


if __name__ == "__main__":
    main()
