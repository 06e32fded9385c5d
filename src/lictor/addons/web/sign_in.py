"""Signing in: who sent this request? By token, client certificate, or the cookie of a session.

A token is the API server's (TokenReview). On one's own machine it is a key that the program prints:
other users of the machine, and pages of other sites, do not know it.
"""

import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from lictor.addons.web.access import ReviewedUser, read_certificate_user
from lictor.addons.web.request_checks import read_cookie, read_header
from lictor.core.errors import TooManyAttemptsError
from lictor.http.messages import HttpRequest

# A session ends after so long without a request, and after so long in any case.
_IDLE_SECONDS: Final = 60 * 60.0
_LONGEST_SECONDS: Final = 12 * 60 * 60.0
_MOST_SESSIONS: Final = 1000
# Of one user: a browser that loses its cookies does not push out others.
_MOST_OF_ONE: Final = 16
_ID_BYTES: Final = 32
_LONGEST_COOKIE: Final = 200


class Session(msgspec.Struct):
    """One browser session of a user."""

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


log = logging.getLogger(__name__)

_KEY_BYTES: Final = 24
# Unknown tokens from one address.
_FAILED_BURST: Final = 20
_FAILED_PER_SECOND: Final = 0.5
_BEARER: Final = "bearer "


class TokenCheck(Protocol):
    """Knows whose token something is."""

    def is_known(self, token: str) -> bool:
        """Was it valid before? Such a token is not a guess."""
        ...

    async def review(self, token: str) -> ReviewedUser | None:
        """None for an invalid token; ApiError if the API server does not answer."""
        ...


class AccessKey:
    """The key of the user who started the program, the only user."""

    def __init__(self, text: str = "") -> None:
        self._user = ReviewedUser("")
        self.text = text or make_key()

    def is_known(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self.text.encode())

    async def review(self, token: str) -> ReviewedUser | None:
        return self._user if self.is_known(token) else None


def make_key() -> str:
    """A random text that cannot be guessed."""
    return secrets.token_urlsafe(_KEY_BYTES)


class SignedIn(msgspec.Struct, frozen=True):
    """Who sent a request, and the cookie text of their session where they have one."""

    user: ReviewedUser
    session: str = ""
    # The credentials for the API server; the key of a client certificate is not available here.
    token: str = ""

    def __repr__(self) -> str:
        return f"SignedIn(user={self.user.name!r})"


# Who sent the request that is being answered.
CURRENT: ContextVar[SignedIn | None] = ContextVar("signed_in", default=None)


class SignIn:
    """Finds out who sends requests, and keeps sessions of browsers."""

    def __init__(
        self,
        check: TokenCheck,
        cookie: str,
        *,
        takes_certificates: bool = False,
        sessions: Sessions | None = None,
        failures: RateLimit | None = None,
    ) -> None:
        self._check = check
        self._cookie = cookie
        self._takes_certificates = takes_certificates
        self._sessions = sessions or Sessions()
        self._failures = failures or RateLimit(_FAILED_BURST, _FAILED_PER_SECOND)
        # May it stand in an address? Only the key of this program: with tokens of users a link on
        # another site could sign a user in under a different account.
        self.takes_key = isinstance(check, AccessKey)

    async def find(self, call: HttpRequest) -> SignedIn | None:
        """The user; None if unknown. ApiError, TooManyAttemptsError if it cannot be determined."""
        if b"authorization" in call.headers:
            # An invalid header is an error: the client intended to authenticate.
            token = _read_bearer(call)
            user = await self._review(token, call.address)
            return SignedIn(user, token=token) if user else None
        if self._takes_certificates and call.certificate:
            user = read_certificate_user(call.certificate)
            return SignedIn(user) if user else None
        return await self.find_session(read_cookie(call, self._cookie))

    async def find_session(self, text: str) -> SignedIn | None:
        """Whose session that is, if their token still counts."""
        session = self._sessions.find(text)
        if session is None:
            return None
        user = await self._check.review(session.token)
        if user is None or user.name != session.user:
            self._sessions.end(text)
            return None
        return SignedIn(user, text, session.token)

    async def renew(self, known: SignedIn, call: HttpRequest) -> SignedIn | None:
        """The same once more, later: may they still look?"""
        return await (self.find_session(known.session) if known.session else self.find(call))

    async def begin(self, token: str, address: str) -> bytes | None:
        """A session for who has this token: the cookie to set. None where it does not count."""
        user = await self._review(token, address)
        if user is None:
            log.warning("sign-in refused", extra={"address": address})
            return None
        log.info("signed in", extra={"user": user.name, "address": address})
        return self._write_cookie(self._sessions.begin(user.name, token))

    def end(self, call: HttpRequest) -> bytes:
        """The session is over; the cookie to set."""
        self._sessions.end(read_cookie(call, self._cookie))
        return self._write_cookie("") + b"; Max-Age=0"

    def has_cookie(self, call: HttpRequest) -> bool:
        return bool(read_cookie(call, self._cookie))

    async def _review(self, token: str, address: str) -> ReviewedUser | None:
        if self._check.is_known(token):
            return await self._check.review(token)
        # Counted before the answer: many requests can be in progress at the same time.
        if not self._failures.take(address):
            raise TooManyAttemptsError
        user = await self._check.review(token)
        if user is not None:
            self._failures.give_back(address)
        return user

    def _write_cookie(self, text: str) -> bytes:
        # Browsers take `Secure` for their own machine without TLS too.
        return f"{self._cookie}={text}; Path=/; Secure; HttpOnly; SameSite=Strict".encode()


def choose_cookie(port: int, *, is_secure: bool) -> str:
    """The name of the cookie. Cookies know no ports: several programs of one machine share them."""
    return "__Host-lictor-session" if is_secure else f"lictor-session-{port}"


def _read_bearer(call: HttpRequest) -> str:
    text = read_header(call, b"authorization")
    return text[len(_BEARER) :].strip() if text.lower().startswith(_BEARER) else ""


class SignInProblem(msgspec.Struct, frozen=True):
    """Why a user must sign in (again)."""

    status: HTTPStatus
    message: str = ""


WANTED: Final = SignInProblem(HTTPStatus.UNAUTHORIZED)
WRONG: Final = SignInProblem(HTTPStatus.UNAUTHORIZED, "That token is not accepted.")
TOO_MANY: Final = SignInProblem(
    HTTPStatus.TOO_MANY_REQUESTS, "Too many attempts. Wait a minute, then try again."
)
