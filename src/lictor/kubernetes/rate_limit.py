"""A token bucket."""

import asyncio
import time
from collections.abc import Callable


class TokenBucket:
    """A rate per second, and a burst; zero is no limit."""

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = max(burst, 1)
        self._clock = clock
        self._tokens = float(self._burst)
        self._at = clock()

    async def take(self) -> None:
        """Wait for a token."""
        if self._rate <= 0:
            return
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        # Below zero is a debt: later callers wait longer.
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)
