"""Sessions of browsers, kept in memory: what a cookie stands for, and how fast anyone may ask."""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

# A session ends after so long without a request, and after so long in any case.
_IDLE_SECONDS: Final = 60 * 60.0
_LONGEST_SECONDS: Final = 12 * 60 * 60.0
_MOST_SESSIONS: Final = 1000
# Of one user: a browser that loses its cookies does not push out others.
_MOST_OF_ONE: Final = 16
_ID_BYTES: Final = 32
_LONGEST_COOKIE: Final = 200


class Session(msgspec.Struct):
    """One browser in which somebody has signed in."""

    user: str
    # Reviewed again and again. Never shown, logged or written anywhere.
    token: str
    began: float
    used: float

    def __repr__(self) -> str:
        return f"Session(user={self.user!r})"


class Sessions:
    """All sessions. Only a hash of what a cookie holds is kept."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The one that was used longest ago comes first.
        self._open: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, user: str, token: str) -> str:
        """A new session; the text that its cookie holds."""
        text = secrets.token_urlsafe(_ID_BYTES)
        now = self._clock()
        own = [key for key, session in self._open.items() if session.user == user]
        for key in own[: max(len(own) - _MOST_OF_ONE + 1, 0)]:
            del self._open[key]
        self._open[_hash(text)] = Session(user, token, now, now)
        while len(self._open) > _MOST_SESSIONS:
            self._open.popitem(last=False)
        return text

    def find(self, text: str) -> Session | None:
        """The session of a cookie; None where it has ended, or never was."""
        if not text or len(text) > _LONGEST_COOKIE:
            return None
        key, now = _hash(text), self._clock()
        session = self._open.get(key)
        if session is None:
            return None
        if now - session.used > _IDLE_SECONDS or now - session.began > _LONGEST_SECONDS:
            del self._open[key]
            return None
        session.used = now
        self._open.move_to_end(key)
        return session

    def end(self, text: str) -> None:
        self._open.pop(_hash(text), None)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="replace")).digest()


class RateLimit:
    """So many at once, and then so many a second, for each key; forgets those who rest."""

    def __init__(
        self,
        burst: int,
        per_second: float,
        most_keys: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst = burst
        self._per_second = per_second
        self._most_keys = most_keys
        self._clock = clock
        # What is left, and when that was counted.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count_left(self, key: str) -> float:
        """How many may come now."""
        left, since = self._left.get(key, (float(self._burst), 0.0))
        return min(self._burst, left + (self._clock() - since) * self._per_second)

    def take(self, key: str) -> bool:
        """May one more come? Counts it."""
        left = self.count_left(key)
        if left < 1:
            return False
        self._left[key] = (left - 1, self._clock())
        self._left.move_to_end(key)
        if len(self._left) > self._most_keys:
            self._left.popitem(last=False)
        return True

    def give_back(self, key: str) -> None:
        """One that was taken did not count."""
        if key in self._left:
            self._left[key] = (min(self._burst, self.count_left(key) + 1), self._clock())
