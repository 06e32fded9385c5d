"""The page of metrics says what the program declares, and nothing is counted that is not declared."""

import re
import runpy
from pathlib import Path

import pytest

from lictor.kubernetes.metrics import METRICS, MetricType

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_metrics.py"
SOURCES = [path for path in (ROOT / "src").rglob("*.py") if path.name != "metrics.py"]
# Metrics of prometheus-client are made in one place only.
_MADE = re.compile(r"\b(?:Counter|Gauge|Histogram|Summary)\(\s*f?\"")
_NAME = re.compile(r"\"((?:kyverno|lictor|kubewarden)_[a-z_]+(?:_seconds|_bytes|_total))\"")


def test_the_tables_are_what_the_program_says() -> None:
    made = runpy.run_path(str(SCRIPT))
    written = made["PAGE"].read_text()
    assert written == made["render_page"](written), "run scripts/make_metrics.py"
    for metric in METRICS.values():
        assert written.count(f"| `{metric.shown_name}` |") == 1


def test_metrics_are_declared_before_they_are_counted() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    assert [path for path, text in texts.items() if _MADE.search(text)] == []
    known = {metric.shown_name for metric in METRICS.values()} | METRICS.keys()
    named = {name for text in texts.values() for name in _NAME.findall(text)}
    assert named - known == set()


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric) -> None:
    """Kyverno's names are as they are; ours are not to surprise anyone."""
    assert metric.help.endswith(".")
    assert len(set(metric.labels)) == len(metric.labels)
    # Known values are those of a single label.
    assert not metric.values or len(metric.labels) == 1
    if metric.name.startswith("lictor_"):
        assert not metric.name.endswith("_total")
        is_time = "timestamp" in metric.name or metric.type is MetricType.HISTOGRAM
        assert not is_time or metric.name.endswith("_seconds")
