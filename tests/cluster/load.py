"""A steady stream of objects into a cluster, and a book of what became of each."""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Event, Lock, Thread
from typing import Any

import httpx2
from control_plane.cluster import Cluster

Object = dict[str, Any]


class End(StrEnum):
    """What became of a request."""

    RIGHT = "right"
    """A good object was stored as policies want it, a bad one was refused in their words."""
    LET_THROUGH = "let through"
    """A bad object was stored: the one thing that must never happen."""
    REFUSED = "refused"
    """A good object was refused, or nobody could judge it."""
    UNCHANGED = "unchanged"
    """A good object was stored without what policies add to it."""
    AWAY = "away"
    """The API server did not answer, or said itself that it is not ready."""


@dataclass(frozen=True)
class Sample:
    """An object to create, and how one knows that it was judged."""

    path: str
    body: Object
    said: str = ""
    """For a bad object: words of its refusal."""
    label: str = ""
    """For a good object: a label that a policy adds."""


@dataclass(frozen=True)
class Answer:
    """One request of the stream."""

    began: float
    seconds: float
    end: End
    text: str


@dataclass
class Stream:
    """Requests that were made so far, by all threads."""

    answers: list[Answer] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def note(self, answer: Answer) -> None:
        with self._lock:
            self.answers.append(answer)

    def since(self, moment: float, until: float = float("inf")) -> list[Answer]:
        """The requests that were begun then."""
        with self._lock:
            return [each for each in self.answers if moment <= each.began < until]

    def count(self, end: End, since: float = 0.0) -> int:
        return sum(each.end is end for each in self.since(since))

    def wrong(self, since: float = 0.0, *, but: tuple[End, ...] = ()) -> list[str]:
        """What was said where the end was not the right one, each text once."""
        right = (End.RIGHT, *but)
        texts = (f"{each.end}: {each.text}" for each in self.since(since) if each.end not in right)
        return list(dict.fromkeys(texts))

    def wait_for(self, more: int, limit: float = 60.0) -> None:
        """Until so many more requests have ended right."""
        wanted = self.count(End.RIGHT) + more
        deadline = time.monotonic() + limit
        while self.count(End.RIGHT) < wanted:
            assert time.monotonic() < deadline, f"no {more} right answers: {self.wrong()[-3:]}"
            time.sleep(0.05)

    def describe(self, since: float = 0.0) -> str:
        """Figures for people."""
        found = self.since(since)
        ends = Counter(each.end for each in found)
        slowest = max((each.seconds for each in found), default=0.0)
        counts = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
        return f"{counts}; the slowest took {slowest:.2f} s"


@contextmanager
def load(
    cluster: Cluster, samples: tuple[Sample, ...], *, threads: int = 2, pause: float = 0.02
) -> Iterator[Stream]:
    """Create the samples in turn, over and over, while the block runs."""
    stream, enough = Stream(), Event()
    turns = itertools.count()
    workers = [
        Thread(target=lambda: _create(cluster, samples, turns, stream, enough, pause), daemon=True)
        for _ in range(threads)
    ]
    for worker in workers:
        worker.start()
    try:
        yield stream
    finally:
        enough.set()
        for worker in workers:
            worker.join()


def _create(
    cluster: Cluster,
    samples: tuple[Sample, ...],
    turns: Iterator[int],
    stream: Stream,
    enough: Event,
    pause: float,
) -> None:
    with cluster.connect() as client:
        while not enough.is_set():
            stream.note(ask(client, samples[next(turns) % len(samples)]))
            time.sleep(pause)


def ask(client: httpx2.Client, sample: Sample) -> Answer:
    """Create one object, and say what became of it."""
    began = time.monotonic()
    try:
        answer = client.post(sample.path, json=sample.body)
    except httpx2.HTTPError as error:
        end, text = End.AWAY, type(error).__name__
    else:
        end, text = _judge(sample, answer), f"{answer.status_code} {answer.text[:400]}"
    return Answer(began, time.monotonic() - began, end, text)


def _judge(sample: Sample, answer: httpx2.Response) -> End:
    if answer.is_success and sample.said:
        return End.LET_THROUGH
    if answer.is_success:
        labels = answer.json()["metadata"].get("labels") or {}
        return End.RIGHT if not sample.label or sample.label in labels else End.UNCHANGED
    if sample.said and sample.said in answer.text:
        return End.RIGHT
    is_own = "webhook" not in answer.text and _is_starting(answer)
    return End.AWAY if is_own else End.REFUSED


def _is_starting(answer: httpx2.Response) -> bool:
    """The API server's own words for a moment in which it cannot serve."""
    told = (
        "not yet ready",
        "starting",
        "shutting down",
        "etcdserver",
        "not found",
        "no client cert",
    )
    return answer.status_code in (429, 503, 504) or any(words in answer.text for words in told)


def until(condition: Callable[[], object], what: str, limit: float = 60.0) -> float:
    """Wait until it is so; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        # Twice as long on a busy machine: whoever minds how long it took looks at the answer.
        assert time.monotonic() - began < 2 * limit, f"{what}: not after {2 * limit:.0f} s"
        time.sleep(0.1)
    return time.monotonic() - began
