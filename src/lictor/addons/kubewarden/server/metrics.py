"""What is counted of evaluations, under Kubewarden's names; and the page that Prometheus reads."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from lictor.kubernetes import metrics
from lictor.kubernetes.metrics import METRICS
from lictor.webhook.counters import Counters, Histogram, Labels
from lictor.webhook.metrics_page import MetricsPage, add_up_slots
from lictor.webhook.slots import ProcessSlot

# Kubewarden sends it under the name that Prometheus would give it.
EVALUATIONS: Final = METRICS[metrics.EVALUATIONS].shown_name
LATENCY: Final = metrics.EVALUATION_LATENCY
LABELS: Final = METRICS[LATENCY].labels
# Upper ends, in milliseconds; as many as those of other histograms, which processes exchange.
BOUNDS: Final = (
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0,
    10000.0,
)  # fmt: skip
_LONGEST_LABEL = 200


class EvaluationMetrics:
    """The counts of one process."""

    def __init__(self) -> None:
        self.counters = Counters()

    def note(self, labels: Labels, seconds: float) -> None:
        """An evaluation, with all labels but the last."""
        histogram = self.counters.histogram(LATENCY, (*labels, ""))
        histogram.count += 1
        histogram.seconds += seconds
        histogram.buckets[bisect_left(BOUNDS, seconds * 1000)] += 1

    def note_failure(self, policy: str, why: str) -> None:
        """A policy that cannot be evaluated."""
        nothing = ("",) * (len(LABELS) - 2)
        self.counters.count(EVALUATIONS, (policy, *nothing, why[:_LONGEST_LABEL]))


def add_up(slots: Iterable[ProcessSlot]) -> Counters:
    """What all processes have counted."""
    total = add_up_slots(slots)
    for labels, histogram in total.histograms.get(LATENCY, {}).items():
        # Each is timed once.
        total.count(EVALUATIONS, labels, histogram.count)
    return total


class EvaluationsPage(MetricsPage):
    """The page with Kubewarden's metrics instead of lictor's."""

    def render(self) -> bytes:
        """The page."""
        return ("\n".join(_write_lines(add_up(self._slots))) + "\n").encode()


def _write_lines(counters: Counters) -> Iterator[str]:
    yield f"# HELP {EVALUATIONS} {METRICS[metrics.EVALUATIONS].help}"
    yield f"# TYPE {EVALUATIONS} counter"
    for labels, count in counters.counters.get(EVALUATIONS, {}).items():
        yield f"{EVALUATIONS}{{{_write_labels(labels)}}} {count:g}"
    yield f"# HELP {LATENCY} {METRICS[LATENCY].help}"
    yield f"# TYPE {LATENCY} histogram"
    for labels, histogram in counters.histograms.get(LATENCY, {}).items():
        yield from _write_histogram(_write_labels(labels), histogram)


def _write_histogram(labels: str, histogram: Histogram) -> Iterator[str]:
    total = 0
    for end, count in zip((*BOUNDS, "+Inf"), histogram.buckets, strict=True):
        total += count
        shown = end if isinstance(end, str) else f"{end:g}"
        yield f'{LATENCY}_bucket{{{labels},le="{shown}"}} {total}'
    yield f"{LATENCY}_sum{{{labels}}} {histogram.seconds * 1000:.6g}"
    yield f"{LATENCY}_count{{{labels}}} {histogram.count}"


def _write_labels(labels: Labels) -> str:
    return ",".join(
        f'{name}="{_escape(value)}"'
        for name, value in zip(LABELS, labels, strict=True)
        if value != ""
    )


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
