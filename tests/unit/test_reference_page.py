"""The page with every flag and setting says what the program says, and no metric lacks its line."""

import re
import runpy
from pathlib import Path

import msgspec
import pytest

from lictor.cli.controller_flags import IGNORED, REASONS
from lictor.cluster.flags import Flags
from lictor.cluster.settings import Settings
from lictor.serve.metrics import HELP, LABELS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_reference.py"
METRICS = (ROOT / "docs" / "metrics.md").read_text()
# How metrics of the controllers are named where they are made.
_MADE = re.compile(r"(?:Counter|Gauge|Histogram)\(\s*f?\"((?:kyverno|lictor)_[a-z_]*)")


def test_the_page_is_what_the_program_says() -> None:
    made = runpy.run_path(str(SCRIPT))
    written = made["PAGE"].read_text()
    assert written == made["render_page"](), "run scripts/make_reference.py"


def test_nothing_is_missing() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    flags = [field.encode_name for field in msgspec.structs.fields(Flags)]
    assert [name for name in flags if f"`--{name}`" not in text] == []
    assert [name for name in IGNORED if f"`{name}`" not in text] == []
    assert REASONS.keys() == IGNORED.keys()
    settings = [f.encode_name for f in msgspec.structs.fields(Settings) if f.name != "problems"]
    # Two of them stand in one entry.
    assert text.count("\n| `") > len(flags) + len(settings) - 1


@pytest.mark.parametrize("name", sorted(HELP.keys() | LABELS.keys()))
def test_metrics_of_admission_are_told(name: str) -> None:
    assert f"`{name}`" in METRICS


def test_metrics_of_controllers_are_told() -> None:
    files = (ROOT / "src/lictor/control").rglob("*.py")
    begins = {begin for file in files for begin in _MADE.findall(file.read_text())}
    assert len(begins) >= 5
    assert [begin for begin in begins if f"`{begin}" not in METRICS] == []
