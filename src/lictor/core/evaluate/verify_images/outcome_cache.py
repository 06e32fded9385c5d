"""Caches the outcomes of image verification, to avoid registry requests."""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from lictor.core.model.result import Status
from lictor.core.raw import Json

# Long enough for one request to pass both of its webhooks, and short enough not to be noticed.
_FAILURE_SECONDS: Final = 5.0


class ImageOutcome(msgspec.Struct, frozen=True):
    """The outcome of verifying one image with one block of a rule."""

    status: Status
    message: str
    # Of the verified image; empty if unknown.
    digest: str = ""
    # The content of a verified attestation, for later use.
    payload: Json = None


class OutcomeCacheSettings(msgspec.Struct, frozen=True):
    """Kyverno's flags imageVerifyCacheEnabled, -MaxSize and -TTLDuration (seconds)."""

    enabled: bool = True
    max_size: int = 1000
    ttl: float = 3600.0


class OutcomeCache:
    """Outcomes by block and image; thread-safe.

    A key contains everything that an outcome depends on. Successes are cached for the whole time;
    failures for seconds only, so that one request does not query twice. Only atomic operations on
    a dict are used, so there is no lock.
    """

    def __init__(
        self,
        settings: OutcomeCacheSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or OutcomeCacheSettings()
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, ImageOutcome]] = {}

    def find(self, block: str, image: str) -> ImageOutcome | None:
        """The cached outcome of an image, named with tag or digest."""
        known = self._known.get((block, image))
        if known is None:
            return None
        if known[0] < self._clock():
            self._known.pop((block, image), None)
            return None
        return known[1]

    def keep(self, block: str, image: str, outcome: ImageOutcome) -> None:
        settings = self._settings
        seconds = settings.ttl if outcome.status is Status.PASS else _FAILURE_SECONDS
        if not settings.enabled or settings.max_size < 1 or seconds <= 0:
            return
        # At the end, so that the oldest are first.
        self._known.pop((block, image), None)
        self._known[block, image] = (self._clock() + seconds, outcome)
        # An image is cached by its tag and by its digest.
        while len(self._known) > 2 * settings.max_size:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        try:
            self._known.pop(next(iter(self._known)), None)
        except (StopIteration, RuntimeError):
            return  # another thread was faster
