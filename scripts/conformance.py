"""Compare lictor with recorded answers of Kyverno, Kubernetes, Kubewarden and OPA.

Run by `make conformance`. Exit code 1 where one differs that scripts/differences.txt does not list.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "conformance"))

from listed_differences import FILE, Listed  # noqa: E402
from shared_cases import CASES, SHARED  # noqa: E402

LICTOR = str(Path(sys.executable).parent / "lictor")
TOOLS = SHARED / "tools"
# Of YAML that kubectl and Kyverno read alike: an error with line and column, and no other value.
MOST_STRICTER = 75
# The cases of Kyverno 1.19, where they differ from those of 1.18.
NEWER = CASES / "kyverno-1.19"
LEFT_OUT = (
    "left out: gatekeeper/ and rego/ (lictor runs no Rego source), tests in clusters"
    " (make conformance-cluster)"
)
_DIFFERS = re.compile(r"^differs: (\S+) (\S+) (.*)", re.MULTILINE)
_TABLE = re.compile(r"^(\w+): (\d+)/(\d+) = ", re.MULTILINE)
_ALL = re.compile(r"^all: (\d+)/(\d+) = ", re.MULTILINE)


def run_tool(tool: str, *words: str) -> str:
    """Run one of the test tools, print its output, and return it."""
    command = [sys.executable, str(TOOLS / tool), *words]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(ended.stdout, end="", flush=True)
    if ended.returncode not in (0, 1):
        raise SystemExit(f"{tool} ended with {ended.returncode}")
    return ended.stdout


def print_differences(rows: Mapping[str, str], listed: Listed) -> bool:
    """Whether all differing rows are listed; prints the others."""
    unlisted = [f"{row} {why}" for row, why in rows.items() if row not in listed]
    return print_counts(len(rows), unlisted)


def print_counts(total: int, unlisted: list[str]) -> bool:
    """Whether nothing differs but what is listed."""
    print(f"differ: {total}, of these listed in scripts/differences.txt: {total - len(unlisted)}")
    for each in unlisted[:30]:
        print("    not listed:", each)
    return not unlisted


def check_suites() -> bool:
    """Test files of the command line, of all kinds of policies."""
    differ: dict[str, str] = {}
    for folder in (CASES, NEWER):
        told = run_tool("suite_check.py", LICTOR, str(folder), str(folder / "index.jsonl"))
        if _ALL.search(told) is None:
            raise SystemExit("suite_check.py gave no result")
        differ |= {f"{suite}/{test}": why for suite, test, why in _DIFFERS.findall(told)}
    return print_differences(differ, Listed("Tests"))


def check_golden() -> bool:
    """Patterns, conditions, queries, and whole policies on many resources; none may differ."""
    from test_golden import rows

    tables = ("patterns", "conditions", "crashes", "jmespath", "matrix")
    with tempfile.TemporaryDirectory() as name:
        golden = Path(name) / "golden"
        shutil.copytree(CASES / "golden", golden)
        for table in ("conditions", "matrix"):
            lines = (json.dumps(row) + "\n" for row in rows(table))
            (golden / f"{table}.jsonl").write_text("".join(lines))
        told = run_tool(
            "golden_check.py", LICTOR, str(golden), *tables,
            "--library", str(CASES / "policy-library"),
            "--resources", str(golden / "matrix-resources.yaml"),
        )  # fmt: skip
    rates = _TABLE.findall(told)
    return len(rates) == len(tables) and all(good == total for _, good, total in rates)


def check_admission() -> bool:
    """Responses of Kyverno's webhook, compared with `lictor serve`."""
    from test_admission_tables import GROUPS, LISTED, judge_group

    wrong: dict[str, str] = {}
    for found in (each for parts in GROUPS for each in judge_group(parts)):
        names = f"{len(found.wrong)} policies differ, {len(found.softer)} of them softer"
        print(f"{found.part}: {found.total} answers; {names}")
        wrong.update(found.wrong)
    return print_differences(wrong, LISTED)


def check_images() -> bool:
    """Signed images."""
    from image_rows import NoRegistryError, compare, served_corpus

    images = CASES / "images"
    try:
        with (
            served_corpus(images, TOOLS / "serve_registry.py"),
            tempfile.TemporaryDirectory() as name,
        ):
            found = compare(images, FILE, Path(name))
    except NoRegistryError as error:
        raise SystemExit(f"no signed images to compare: {error}") from error
    print(f"{found.total} rows")
    return print_counts(len(found.differences), list(map(str, found.unlisted)))


def check_servers() -> bool:
    """Policies in WebAssembly: answers of policy-server."""
    from kubewarden_guests import build_guests
    from policy_server_rows import compare

    with tempfile.TemporaryDirectory() as name:
        found = compare(build_guests(), FILE, Path(name))
    print(f"{found.total} rows; not run here: {len(found.skipped)}")
    return print_counts(len(found.differences), list(map(str, found.unlisted)))


def check_commands() -> bool:
    """Policies in WebAssembly: command lines of kwctl."""
    from kubewarden_guests import build_guests
    from kwctl_rows import compare

    with tempfile.TemporaryDirectory() as name:
        found = compare(Path(name), build_guests(), FILE)
    print(f"{found.total} rows; not run here: {len(found.skipped)}")
    return print_counts(len(found.differences), list(map(str, found.unlisted)))


def check_by_tests() -> bool:
    """Rego in WebAssembly, host calls, artifacts of modules, `convert`: by tests of the project."""
    names = ("rego_wasm", "host_calls_corpus", "module_artifacts", "convert_shared")
    files = [f"tests/conformance/test_{name}.py" for name in names]
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    return subprocess.run(command, check=False, cwd=ROOT).returncode == 0


def check_yaml() -> bool:
    """Texts as kubectl and Kyverno read them; what these read differently may be read as either."""
    misses = _check_corpus("yaml_check.py", "yaml")
    kinds: dict[str, list[str]] = {}
    for miss in misses:
        kinds.setdefault(miss["id"], []).append(miss["miss"].partition(":")[0])
    both = {name: found[0] for name, found in kinds.items() if len(found) == 2}
    alike = {miss["id"] for miss in misses if miss["kubectl"] == miss["kyverno"]}
    strict = [name for name, kind in both.items() if kind == "stricter" and name in alike]
    print(f"stricter where both references agree: {len(strict)}, at most {MOST_STRICTER}")
    others = {name: kind for name, kind in both.items() if kind != "stricter"}
    return print_differences(others, Listed("Loading")) and len(strict) <= MOST_STRICTER


def check_cel() -> bool:
    """Expressions: all agree with Kubernetes and Kyverno."""
    program = ("--program", f"{sys.executable} -m lictor")
    misses = _check_corpus("cel_check.py", "cel", program)
    differ = {miss["id"]: miss["expression"] for miss in misses}
    return print_differences(differ, Listed("CEL"))


def _check_corpus(
    tool: str, name: str, program: Sequence[str] = ("--adapter", "today")
) -> list[Mapping[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "misses.jsonl"
        run_tool(tool, str(CASES / name), *program, "--show", "0", "--misses", str(path))
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# Those that take longest begin first.
PARTS: Mapping[str, Callable[[], bool]] = {
    "suites": check_suites,
    "golden": check_golden,
    "servers": check_servers,
    "cel": check_cel,
    "commands": check_commands,
    "tests": check_by_tests,
    "admission": check_admission,
    "images": check_images,
    "yaml": check_yaml,
}


def run_part(name: str) -> bool:
    """One part in a separate process; its output is printed when it has ended."""
    started = time.monotonic()
    command = [sys.executable, __file__, "--only", name, "--here"]
    ended = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    verdict = "ok" if ended.returncode == 0 else "DIFFERS"
    title = f"== {name}: {PARTS[name].__doc__} {verdict}, {time.monotonic() - started:.0f} s"
    print(f"{title}\n{ended.stdout}", end="", flush=True)
    return ended.returncode == 0


def main() -> int:
    """Run the parts, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not CASES.is_dir():
        print(f"conformance: {CASES} is not here; nothing to compare with")
        return 0
    names = arguments.only.split(",")
    if arguments.here:
        return 0 if all(PARTS[name]() for name in names) else 1
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        outcomes = dict(zip(names, pool.map(run_part, names), strict=True))
    print(LEFT_OUT)
    bad = [name for name, is_fine in outcomes.items() if not is_fine]
    print(
        f"conformance: {', '.join(bad) or 'nothing'} differs and is not in scripts/differences.txt"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
