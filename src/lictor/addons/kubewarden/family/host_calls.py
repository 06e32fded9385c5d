"""The host of one policy: its calls are checked, answered, and cached for a moment."""

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Protocol, TypeAlias

import msgspec
import orjson

from lictor.addons.kubewarden.family.capabilities import CAPABILITIES, LIST_ALL, read_capabilities
from lictor.addons.kubewarden.family.certificate_answers import answer_trust
from lictor.addons.kubewarden.family.cluster_answers import ClusterAnswers
from lictor.addons.kubewarden.family.entries import MemberEntry
from lictor.addons.kubewarden.family.host_requests import (
    CheckAccess,
    GetObject,
    GetPluralName,
    HostRequest,
    ImageRequest,
    ListAllObjects,
    ListNamespaceObjects,
    LookUpHost,
    TrustCertificate,
    read_request,
)
from lictor.addons.kubewarden.family.image_answers import ImageAnswers
from lictor.core.errors import (
    CompileError,
    EvaluationError,
    HostCallError,
    LookupFailedError,
    SignatureRefusedError,
)
from lictor.core.lang.wasm_records import ContextResource
from lictor.core.ports import GuestLogLine, Lookups, RegistryAccess

_MOST_ADDRESSES = 256
# How long answers about the cluster and about images are cached.
_CLUSTER_SECONDS = 5.0
_IMAGE_SECONDS = 60.0


# --- answers


class HostAnswers(Protocol):
    """Who answers what was granted."""

    def answer(self, request: HostRequest) -> bytes:
        """JSON; HostCallError with the reason where there is no answer."""
        ...


class AnswerCache:
    """Answers of a moment ago: so many, none of them large. For any thread.

    Only operations on a dict that no other thread can come between are used, so there is no lock.
    """

    def __init__(
        self,
        most: int = 256,
        largest: int = 32 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._largest = largest
        self._clock = clock
        self._kept: dict[bytes, tuple[float, bytes]] = {}

    def find(self, key: bytes) -> bytes | None:
        found = self._kept.get(key)
        if found is None or found[0] < self._clock():
            return None
        return found[1]

    def keep(self, key: bytes, answer: bytes, seconds: float) -> None:
        # At its end, so that the oldest are at the beginning.
        self._kept.pop(key, None)
        if len(answer) > self._largest:
            return
        self._kept[key] = (self._clock() + seconds, answer)
        while len(self._kept) > self._most:
            try:
                self._kept.pop(next(iter(self._kept)), None)
            except (StopIteration, RuntimeError):
                return  # another thread was faster


class LookupAnswers:
    """Answers from the cluster, registries and name servers, for one policy.

    `namespace` is that of the policy, empty if it has none: it decides about registries.
    """

    def __init__(
        self, lookups: Lookups, *, namespace: str = "", cache: AnswerCache | None = None
    ) -> None:
        self._lookups = lookups
        self._access = RegistryAccess(namespace=namespace, named=frozenset())
        self._cache = cache or AnswerCache()
        self._cluster = ClusterAnswers(lookups)

    def answer(self, request: HostRequest) -> bytes:
        seconds = _count_seconds(request)
        # Different requests may have the same fields.
        key = sha256(type(request).__name__.encode() + msgspec.json.encode(request)).digest()
        known = self._cache.find(key) if seconds and not _wants_fresh(request) else None
        if known is not None:
            return known
        try:
            answer = self._ask(request)
        except (LookupFailedError, EvaluationError, CompileError, SignatureRefusedError) as error:
            raise HostCallError(str(error)) from error
        if seconds:
            self._cache.keep(key, answer, seconds)
        return answer

    def _ask(self, request: HostRequest) -> bytes:
        match request:
            case GetObject():
                return self._cluster.get_object(request)
            case ListAllObjects() | ListNamespaceObjects():
                return self._cluster.list_objects(request)
            case CheckAccess():
                return self._cluster.check_access(request)
            case GetPluralName():
                return self._cluster.get_plural_name(request)
            case LookUpHost():
                found = self._lookups.resolve_host(request.host)
                return orjson.dumps({"ips": found[:_MOST_ADDRESSES]})
            case TrustCertificate():
                return answer_trust(request.request, self._lookups.now())
            case _:
                return ImageAnswers(self._lookups.registries(), self._access).answer(request)


def _count_seconds(request: HostRequest) -> float:
    """For how long an answer is kept; lists are watched instead, and nothing else is kept."""
    if isinstance(request, GetObject | CheckAccess):
        return _CLUSTER_SECONDS
    return _IMAGE_SECONDS if isinstance(request, ImageRequest) else 0.0


def _wants_fresh(request: HostRequest) -> bool:
    return isinstance(request, GetObject | CheckAccess) and request.disable_cache


# --- log lines

_LONGEST_MESSAGE = 4096
_MOST_DATA = 16
_LONGEST_DATA = 256
_LARGEST_LINE = 64 * 1024
# So many at once, and so many a second on average; more are counted and left out.
_MOST_LINES = 100
_LINES_A_SECOND = 10.0
_LEVELS = {"warn": "warning"}


TellLine: TypeAlias = Callable[[GuestLogLine], None]


class _LogPayload(msgspec.Struct, frozen=True):
    level: str
    message: str | None = None


# Made now, not when threads first read one at the same time: msgspec would crash.
_LINES = msgspec.json.Decoder(_LogPayload)


class _GuestLog:
    """The log of one policy, of which neither a line nor their number has no bounds."""

    def __init__(self, policy: str, tell: TellLine, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._tell = tell
        self._clock = clock
        self._left = float(_MOST_LINES)
        self._counted_at = clock()
        self._dropped = 0

    def write(self, payload: bytes) -> None:
        """Log a line; one that cannot be read is not the policy's to know."""
        try:
            if len(payload) > _LARGEST_LINE:
                raise ValueError(f"more than {_LARGEST_LINE} bytes")
            line = _LINES.decode(payload)
            fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, ValueError) as error:
            self.write_line("error", f"a log line of the policy cannot be read: {error}")
            return
        data = {name: bytes(value) for name, value in fields.items()}
        data = {name: value for name, value in data.items() if name not in ("level", "message")}
        shown = {
            _clean(name, 64): _clean(value.decode(errors="replace"), _LONGEST_DATA)
            for name, value in list(data.items())[:_MOST_DATA]
        }
        level = _LEVELS.get(line.level.lower(), line.level.lower())
        self.write_line(_clean(level, 16), line.message or "", shown)

    def write_line(self, level: str, message: str, data: Mapping[str, str] | None = None) -> None:
        if not self._may_write():
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            text = f"{dropped} log lines of the policy were left out: there were too many"
            self._tell(GuestLogLine(self._policy, "warning", text))
        self._tell(GuestLogLine(self._policy, level, _clean(message, _LONGEST_MESSAGE), data or {}))

    def _may_write(self) -> bool:
        now = self._clock()
        earned = (now - self._counted_at) * _LINES_A_SECOND
        self._left, self._counted_at = min(self._left + earned, _MOST_LINES), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def _clean(text: str, longest: int) -> str:
    """One line without control characters, which could look like another line or colour it."""
    shown = text[:longest] + ("…" if len(text) > longest else "")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in shown)


# --- the host


class PolicyHost:
    """Implements `HostCalls` for one policy; CompileError for capabilities that there are not.

    A policy of a namespace reads no objects, as only policies of the whole cluster can be granted
    that, and reads rights of users in its namespace only. `answers` replaces the lookups if a
    session is recorded or replayed, `tell` receives log lines that go elsewhere.
    """

    def __init__(  # noqa: PLR0913  (all but two are for special uses)
        self,
        lookups: Lookups,
        entry: MemberEntry,
        *,
        policy: str = "",
        namespace: str = "",
        answers: HostAnswers | None = None,
        tell: TellLine | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._granted = read_capabilities(entry.host_capabilities, policy)
        named = {(each.api_version, each.kind) for each in entry.context_aware_resources}
        self._resources = tuple(sorted(named))
        self._namespace = namespace
        self._readable = frozenset() if namespace else frozenset(named)
        self._answers = answers or LookupAnswers(lookups, namespace=namespace)
        self._log = _GuestLog(policy, tell or lookups.log_line, clock)
        self._context: tuple[tuple[bytes, ...], tuple[ContextResource, ...]] = ((), ())

    def call(self, namespace: str, operation: str, payload: bytes) -> bytes:
        if namespace == "tracing":
            if operation != "log":
                raise HostCallError(f"unknown operation: {operation[:200]}")
            self._log.write(payload)
            return b""
        capability = f"{namespace}/{operation}"
        self._check_granted(capability)
        request = read_request(capability, payload)
        if isinstance(request, GetObject | ListAllObjects | ListNamespaceObjects):
            self._check_resource(request.api_version, request.kind)
        if isinstance(request, CheckAccess):
            self._check_subject(request)
        return self._ask(request)

    def context(self) -> Sequence[ContextResource]:
        """The very same tuple as before where nothing has changed."""
        if not self._resources:
            return ()
        # Kubewarden does not check this: a policy in Rego reads a list in any case.
        self._check_granted(LIST_ALL)
        for resource in self._resources:
            self._check_resource(*resource)
        lists = tuple(
            self._ask(ListAllObjects(api_version=version, kind=kind))
            for version, kind in self._resources
        )
        known, made = self._context
        if len(known) == len(lists) and all(map(_is_same, known, lists)):
            return made
        made = tuple(map(self._describe, self._resources, lists))
        self._context = (lists, made)
        return made

    def _describe(self, resource: tuple[str, str], listed: bytes) -> ContextResource:
        plural = orjson.loads(self._ask(GetPluralName(*resource)))
        items = orjson.loads(listed).get("items")
        if not isinstance(plural, str) or not isinstance(items, list):
            raise HostCallError(f"{'/'.join(resource)}: an answer of another form was expected")
        return ContextResource(*resource, plural, items)

    def _ask(self, request: HostRequest) -> bytes:
        try:
            return self._answers.answer(request)
        except HostCallError as error:
            raise HostCallError(f"Callback evaluation failure: {error}") from error

    def _check_granted(self, capability: str) -> None:
        if capability in self._granted:
            return
        if capability not in CAPABILITIES:
            raise HostCallError(_describe_unknown(capability))
        self._log.write_line("error", f"the policy requested {capability}, which it is not granted")
        raise HostCallError(
            f"Policy has not been granted access to the '{capability}' host capability. "
            "The violation has been reported."
        )

    def _check_resource(self, api_version: str, kind: str) -> None:
        if (api_version, kind) in self._readable:
            return
        what = f"{api_version[:100]}/{kind[:100]}"
        self._log.write_line("error", f"the policy requested {what}, which it is not granted")
        raise HostCallError(
            f"Policy has not been granted access to Kubernetes {what} resources. "
            "The violation has been reported."
        )

    def _check_subject(self, request: CheckAccess) -> None:
        wanted = request.request.resource_attributes.namespace
        if self._namespace and wanted != self._namespace:
            where = f"namespace {wanted[:100]}" if wanted else "the whole cluster"
            raise HostCallError(
                f"a policy of namespace {self._namespace} may not read rights of {where}"
            )


def _is_same(first: bytes, second: bytes) -> bool:
    return first is second


def _describe_unknown(capability: str) -> str:
    namespace, _, operation = capability.partition("/")
    if any(each.startswith(f"{namespace}/") for each in CAPABILITIES):
        return f"unknown operation: {operation[:200]}"
    return f"unknown namespace: {namespace[:200]}"
