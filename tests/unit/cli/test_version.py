"""`version` says what pyproject.toml says, and costs next to nothing."""

import json
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

from lictor.core.release import REFERENCES, VERSION, render_version

ROOT = Path(__file__).parents[3]


def test_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_shape():
    lines = render_version().splitlines()
    assert [line.split(":")[0] for line in lines] == ["Version", "Time", "Git commit ID"]


def test_same_answer_with_and_without_click():
    quick = subprocess.run(
        [sys.executable, "-m", "lictor", "version"], capture_output=True, check=True
    )
    slow = subprocess.run(
        [sys.executable, "-m", "lictor", "-v", "2", "version"], capture_output=True, check=True
    )
    assert quick.stdout == slow.stdout == render_version().encode()


def test_nothing_heavy_is_imported():
    script = (
        "import sys; sys.argv = ['lictor', 'version']\n"
        "from lictor.__main__ import main\n"
        "main()\n"
        "print([m for m in ('click', 'msgspec', 'orjson', 'yaml', 're2', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def measure(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_costs_at_most_twice_an_empty_program():
    # The least of several runs, in turns: load on the machine only ever adds.
    pairs = [(measure("-m", "lictor", "version"), measure("-c", "pass")) for _ in range(10)]
    assert min(cost for cost, _ in pairs) <= 2 * min(base for _, base in pairs)


def test_releases_that_it_follows():
    command = [sys.executable, "-m", "lictor", "version", "-o", "json"]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert (printed["version"], printed["references"]) == (VERSION, REFERENCES)
    readme = (ROOT / "README.md").read_text()
    assert all(f"{release}" in readme for release in REFERENCES.values())
