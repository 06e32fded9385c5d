"""Who is the viewer, and which reports may they list? Answered by the API server of each cluster.

Nothing is decided here but how long an answer counts. Where there is no answer, nothing is shown.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from lictor.addons.web.records import Viewer, VisibleNamespaces
from lictor.core.errors import ApiError, NotFoundError
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import (
    CLUSTER_OPEN_REPORT,
    CLUSTER_POLICY_REPORT,
    OPEN_REPORT,
    POLICY_REPORT,
    SUBJECT_ACCESS_REVIEW,
    TOKEN_REVIEW,
    Resource,
)

log = logging.getLogger(__name__)

# How long an answer is cached: a right that was withdrawn remains effective for as long.
ACCEPTED_SECONDS: Final = 30.0
_REFUSED_SECONDS: Final = 10.0
# Limits the reviews per second and viewer; rights in many namespaces are queried less often.
_QUESTIONS_PER_SECOND: Final = 10
_LONGEST_SECONDS: Final = 600.0
# Of all viewers together, at the same time.
_PARALLEL_QUESTIONS: Final = 16
_PARALLEL_REVIEWS: Final = 8
# The time that a page waits; rights that are unknown by then are queried in the background.
_PATIENCE: Final = 10.0
_MOST_KEPT: Final = 4096
_MOST_USERS: Final = 256
_LONGEST_TOKEN: Final = 16 * 1024
_AUTHENTICATED: Final = "system:authenticated"
_SYSTEM: Final = "system:"
# Reports of one group, in namespaces and outside of them.
_REPORT_KINDS: Final = (
    (POLICY_REPORT, CLUSTER_POLICY_REPORT),
    (OPEN_REPORT, CLUSTER_OPEN_REPORT),
)

Clock: TypeAlias = Callable[[], float]
Key = TypeVar("Key")
Value = TypeVar("Value")


class ReviewedUser(msgspec.Struct, frozen=True):
    """Someone whom an API server knows, as it describes them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class KeptAnswers(Generic[Key, Value]):
    """Answers of an API server that count for a while; a question is on its way once at a time."""

    def __init__(self, clock: Clock, most: int = _MOST_KEPT) -> None:
        self._clock = clock
        self._most = most
        self._kept: OrderedDict[Key, tuple[float, Value]] = OrderedDict()
        self._asked: dict[Key, asyncio.Task[tuple[float, Value]]] = {}

    def find(self, key: Key) -> Value | None:
        """What is known, and still counts."""
        until, value = self._kept.get(key, (0.0, None))
        return value if self._clock() < until else None

    async def get(self, key: Key, query: Callable[[], Awaitable[tuple[float, Value]]]) -> Value:
        """`query` returns an answer and its lifetime in seconds; exceptions are not cached."""
        found = self.find(key)
        if found is not None:
            return found
        task = self._asked.get(key)
        if task is None:
            task = asyncio.ensure_future(self._query(key, query))
            self._asked[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        # Who waits may go; others wait for the same.
        return (await asyncio.shield(task))[1]

    async def _query(
        self, key: Key, query: Callable[[], Awaitable[tuple[float, Value]]]
    ) -> tuple[float, Value]:
        seconds, value = await query()
        self._kept[key] = (self._clock() + seconds, value)
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return seconds, value

    def _forget(self, key: Key, task: asyncio.Task[tuple[float, Value]]) -> None:
        self._asked.pop(key, None)
        if not task.cancelled():
            # Retrieved: the waiting caller has received the error.
            task.exception()


class TokenReviews:
    """Finds the user of a token with TokenReviews of one API server."""

    def __init__(self, client: Client, clock: Clock = time.monotonic) -> None:
        self._client = client
        # By a hash: what is kept for lookups is no token. The list has one user, or none.
        self._answers: KeptAnswers[bytes, list[ReviewedUser]] = KeptAnswers(clock)
        # Those that were valid at the last review.
        self._accepted: OrderedDict[bytes, None] = OrderedDict()
        self._turn = asyncio.Semaphore(_PARALLEL_REVIEWS)

    def is_known(self, token: str) -> bool:
        """Has the API server accepted it before? Such a token is not a guess."""
        return _hash(token) in self._accepted

    async def review(self, token: str) -> ReviewedUser | None:
        """None for an invalid token; ApiError if the API server does not answer."""
        if not _is_token(token):
            return None
        found = await self._answers.get(_hash(token), lambda: self._query(token))
        return found[0] if found else None

    async def _query(self, token: str) -> tuple[float, list[ReviewedUser]]:
        body = {
            "apiVersion": TOKEN_REVIEW.api_version,
            "kind": TOKEN_REVIEW.kind,
            # Without audiences: it must be meant for the API server itself.
            "spec": {"token": token},
        }
        async with self._turn:
            answer = await self._client.create(TOKEN_REVIEW, body)
        user = _read_reviewed(answer.get("status"))
        self._note(_hash(token), is_accepted=user is not None)
        return (ACCEPTED_SECONDS, [user]) if user else (_REFUSED_SECONDS, [])

    def _note(self, key: bytes, *, is_accepted: bool) -> None:
        self._accepted.pop(key, None)
        if is_accepted:
            self._accepted[key] = None
        while len(self._accepted) > _MOST_KEPT:
            self._accepted.popitem(last=False)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _is_token(token: str) -> bool:
    """What could stand in an Authorization header."""
    return 0 < len(token) <= _LONGEST_TOKEN and token.isascii() and token.isprintable()


def _read_reviewed(status: Json) -> ReviewedUser | None:
    if not isinstance(status, dict) or status.get("authenticated") is not True:
        return None
    user = status.get("user")
    if not isinstance(user, dict) or not user.get("username"):
        return None
    extra = user.get("extra") or {}
    return ReviewedUser(
        name=str(user["username"]),
        uid=str(user.get("uid") or ""),
        groups=tuple(map(str, user.get("groups") or ())),
        extra=tuple((str(key), tuple(map(str, extra[key] or ()))) for key in sorted(extra)),
    )


def read_certificate_user(shown: Json) -> ReviewedUser | None:
    """Who a client certificate is for, as API servers read it: CN is the user, O are groups.

    TLS has verified it. None if it names no user, or several.
    """
    if not isinstance(shown, dict):
        return None
    pairs = [pair for part in shown.get("subject") or () for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    if len(names) != 1 or not names[0] or not names[0].isprintable():
        return None
    groups = [value for key, value in pairs if key == "organizationName"]
    return ReviewedUser(names[0], groups=(*dict.fromkeys((*groups, _AUTHENTICATED)),))


class _KnownRights:
    """The known rights of one user in one cluster, until they expire."""

    __slots__ = ("answers", "cluster_wide", "everywhere", "kinds", "task")

    def __init__(self, kinds: list[Resource], *, everywhere: bool, cluster_wide: bool) -> None:
        self.kinds = kinds
        self.everywhere = everywhere
        self.cluster_wide = cluster_wide
        self.answers: dict[str, bool] = {}
        # Queries what is missing.
        self.task: asyncio.Future[list[None]] | None = None

    def show(self, names: Iterable[str]) -> VisibleNamespaces:
        return VisibleNamespaces(
            all_namespaces=self.everywhere,
            cluster_wide=self.cluster_wide,
            names=frozenset(name for name in names if self.answers.get(name)),
        )


class ReportRights:
    """Finds the reports of one cluster that a user may list, with SubjectAccessReviews."""

    def __init__(
        self,
        client: Client,
        list_namespaces: Callable[[], Iterable[str]],
        clock: Clock = time.monotonic,
    ) -> None:
        self._client = client
        # Those that there are reports of: nothing else can be seen.
        self._list_namespaces = list_namespaces
        self._served: KeptAnswers[str, list[tuple[Resource, Resource]]] = KeptAnswers(clock)
        self._known: KeptAnswers[ReviewedUser, _KnownRights] = KeptAnswers(clock, _MOST_USERS)
        self._turn = asyncio.Semaphore(_PARALLEL_QUESTIONS)

    async def find(self, user: ReviewedUser) -> tuple[VisibleNamespaces, bool]:
        """What they may see, and whether that is all of it: many questions take a while.

        ApiError if the API server does not answer.
        """
        known = await self._known.get(user, lambda: self._begin(user))
        if known.everywhere or not known.kinds:
            return known.show(()), True
        names = [name for name in self._list_namespaces() if name]
        # Also those that came since: a new namespace is not waited for until rights run out.
        missing = [name for name in names if name not in known.answers]
        if missing:
            await self._query_rights(user, known, missing)
        is_whole = all(name in known.answers for name in names)
        return known.show(names), is_whole

    async def _begin(self, user: ReviewedUser) -> tuple[float, _KnownRights]:
        kinds = await self._served.get("", self._list_served)
        inside = [pair[0] for pair in kinds]
        known = _KnownRights(
            inside,
            everywhere=await self._allows(user, inside),
            cluster_wide=await self._allows(user, [pair[1] for pair in kinds]),
        )
        number = 0 if known.everywhere else sum(1 for _ in self._list_namespaces())
        seconds = max(ACCEPTED_SECONDS, number / _QUESTIONS_PER_SECOND)
        return min(seconds, _LONGEST_SECONDS), known

    async def _query_rights(
        self, user: ReviewedUser, known: _KnownRights, names: list[str]
    ) -> None:
        """Wait for a limited time; the queries continue after that, for the next page."""
        task = known.task
        if task is None or task.done():
            waiting = iter(names)

            async def work() -> None:
                for name in waiting:
                    known.answers[name] = await self._allows(user, known.kinds, name)

            task = asyncio.gather(*(work() for _ in range(_PARALLEL_QUESTIONS)))
            known.task = task
        done, _ = await asyncio.wait((task,), timeout=_PATIENCE)
        if done:
            task.result()

    async def _list_served(self) -> tuple[float, list[tuple[Resource, Resource]]]:
        """Reports of groups that the cluster does not have need no right."""
        served = []
        for pair in _REPORT_KINDS:
            try:
                await self._client.request("GET", f"/apis/{pair[0].group}")
            except NotFoundError:
                continue
            served.append(pair)
        return ACCEPTED_SECONDS, served

    async def _allows(self, user: ReviewedUser, kinds: list[Resource], namespace: str = "") -> bool:
        """Reports of all groups are shown together: the right to list each of them is needed."""
        for kind in kinds:
            async with self._turn:
                answer = await self._client.create(
                    SUBJECT_ACCESS_REVIEW, _build_question(user, kind, namespace)
                )
            status = answer.get("status")
            if not isinstance(status, dict) or status.get("allowed") is not True:
                return False
        return bool(kinds)


def _build_question(user: ReviewedUser, kind: Resource, namespace: str) -> JsonObject:
    attributes = {"verb": "list", "group": kind.group, "resource": kind.plural}
    spec: JsonObject = {"user": user.name, "groups": list(user.groups)}
    if namespace:
        attributes["namespace"] = namespace
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}
    return {
        "apiVersion": SUBJECT_ACCESS_REVIEW.api_version,
        "kind": SUBJECT_ACCESS_REVIEW.kind,
        "spec": {**spec, "resourceAttributes": attributes},
    }


class ViewerSource(Protocol):
    """Turns a user into a viewer, as their rights are now."""

    async def find(self, user: ReviewedUser) -> Viewer:
        """ApiError if the API server does not answer."""
        ...


class OwnRights:
    """The user who runs the program sees everything that their own rights can read."""

    def __init__(self, list_clusters: Callable[[], Iterable[str]]) -> None:
        self._list_clusters = list_clusters

    async def find(self, user: ReviewedUser) -> Viewer:
        return Viewer.of_all(user.name, self._list_clusters())


class ReviewedRights:
    """Rights of users in all clusters; the first cluster authenticates them.

    The other clusters review the same user and groups, without those that mean something else
    in each cluster: service accounts, and what is Kubernetes' own.
    """

    def __init__(self, rights: Mapping[str, ReportRights]) -> None:
        self._rights = rights
        self._home = next(iter(rights), "")

    async def find(self, user: ReviewedUser) -> Viewer:
        clusters = list(self._rights)
        found = await asyncio.gather(
            *(self._find_one(name, user) for name in clusters), return_exceptions=True
        )
        visible: dict[str, VisibleNamespaces] = {}
        unsettled = []
        for name, answer in zip(clusters, found, strict=True):
            if isinstance(answer, ApiError) and len(clusters) > 1:
                # Other clusters can be shown; the page reports that this one is missing.
                log.warning("rights unknown", extra={"cluster": name, "why": str(answer)})
                unsettled.append(name)
            elif isinstance(answer, BaseException):
                raise answer
            elif answer is not None:
                visible[name] = answer[0]
                if not answer[1]:
                    unsettled.append(name)
        return Viewer(user.name, visible, tuple(unsettled))

    async def _find_one(
        self, cluster: str, user: ReviewedUser
    ) -> tuple[VisibleNamespaces, bool] | None:
        known = user if cluster == self._home else translate_user(user)
        return None if known is None else await self._rights[cluster].find(known)


def translate_user(user: ReviewedUser) -> ReviewedUser | None:
    """A user of one cluster in another one; None where there is no such user."""
    if user.name.startswith(_SYSTEM):
        return None
    groups = [name for name in user.groups if not name.startswith(_SYSTEM)]
    return ReviewedUser(user.name, groups=(*groups, _AUTHENTICATED))
