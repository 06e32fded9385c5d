"""How long does a call take? Warm up, take samples, and report their statistics."""

import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import orjson

_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
# The share of the resampled means that is between the two reported bounds.
_CONFIDENCE = 0.95


class BenchPlan(msgspec.Struct, frozen=True):
    """How long to measure, and how often."""

    warm_up_seconds: float = 3.0
    measurement_seconds: float = 5.0
    samples: int = 100
    resamples: int = 1_000


class Measurement(msgspec.Struct, frozen=True):
    """Seconds that one call took."""

    label: str
    iterations: int
    elapsed: float
    # One for each sample.
    seconds: tuple[float, ...]
    # The bounds of the confidence interval of the mean.
    mean_bounds: tuple[float, float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.seconds)


class WarmUp(msgspec.Struct, frozen=True):
    """What the calls took before anything was measured."""

    label: str
    iterations: int
    mean: float
    planned: float


def warm_up(label: str, call: Callable[[], object], plan: BenchPlan) -> WarmUp:
    """Call for as long as the plan requires, and once at least."""
    begin, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - begin < plan.warm_up_seconds:
        call()
        count += 1
    mean = (time.perf_counter() - begin) / count
    return WarmUp(label, count, mean, plan.warm_up_seconds)


def measure(warmed: WarmUp, call: Callable[[], object], plan: BenchPlan) -> Measurement:
    """Take the samples: each is the mean of as many calls as fit into its share of the time."""
    share = plan.measurement_seconds / plan.samples
    calls = max(1, int(share / max(warmed.mean, 1e-9)))
    begin = time.perf_counter()
    seconds = tuple(_time(call, calls) for _ in range(plan.samples))
    elapsed = time.perf_counter() - begin
    bounds = _bound_mean(seconds, plan.resamples)
    return Measurement(warmed.label, calls * plan.samples, elapsed, seconds, bounds)


def _time(call: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def _bound_mean(seconds: tuple[float, ...], resamples: int) -> tuple[float, float]:
    """The confidence interval of the mean, by resampling."""
    # The same samples give the same answer; nothing here is a secret.
    chance = random.Random(len(seconds))  # noqa: S311
    means = sorted(
        statistics.fmean(chance.choices(seconds, k=len(seconds))) for _ in range(max(1, resamples))
    )
    cut = int(len(means) * (1 - _CONFIDENCE) / 2)
    return means[cut], means[-1 - cut]


def describe_warm_up(warmed: WarmUp) -> Iterator[str]:
    """Two lines of a report."""
    yield f"{warmed.label} warming up for {render_seconds(warmed.planned)}"
    yield (
        f"{warmed.label} mean warm up execution time {render_seconds(warmed.mean)} "
        f"running {warmed.iterations} iterations"
    )


def describe_measurement(measured: Measurement) -> Iterator[str]:
    """The figures of a measurement."""
    seconds = measured.seconds
    figures = " ".join(map(render_seconds, (min(seconds), measured.mean, max(seconds))))
    low, high = map(render_seconds, measured.mean_bounds)
    yield (
        f"{measured.label} [{measured.iterations} iterations in "
        f"{render_seconds(measured.elapsed)} with {float(len(seconds))} samples]:"
    )
    yield (
        f"\telapsed\t[min mean max]:\t[{figures}] (sample data: "
        f"med = {render_seconds(statistics.median(seconds))}, "
        f"var = {_render_square(statistics.pvariance(seconds))}, "
        f"stddev = {render_seconds(statistics.pstdev(seconds))})"
    )
    yield f"\tmean\t{_CONFIDENCE:.0%} between {low} and {high}"


def render_seconds(seconds: float) -> str:
    """A time with the unit that suits it."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.2f}{unit}"
    return f"{seconds / 1e-9:.2f}ns"


def _render_square(square: float) -> str:
    unit, size = next((each for each in _UNITS if square**0.5 >= each[1]), _UNITS[-1])
    return f"{square / size**2:.2f}{unit}²"


def write_samples(path: str, measured: Iterable[Measurement]) -> None:
    """All samples in seconds, by what was measured."""
    body = {each.label: each.seconds for each in measured}
    Path(path).write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2))
