"""`ports.Lookups` on a live cluster, for any thread but that of the event loop."""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from lictor.core.errors import ApiError, LookupFailedError, NotFoundError, UsageError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.ports import (
    DEFAULT_ACCESS,
    ApiCall,
    GuestLogLine,
    ObjectQuery,
    Registries,
    RegistryAccess,
    ResourceFacts,
)
from lictor.core.raw import Json, JsonObject
from lictor.http.addresses import HostResolver
from lictor.images.image_data import describe_image
from lictor.images.registries import RemoteRegistries
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.discovery import Discovery
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.process_log import log_guest_line
from lictor.kubernetes.resource import CONFIG_MAP, Resource
from lictor.lookups.followed_objects import FollowedObjects
from lictor.lookups.global_context import GlobalContext
from lictor.lookups.registry_access import build_sources, read_registry_settings
from lictor.lookups.service_calls import ServiceCaller, read_http_limits

_PART = r"[A-Za-z0-9._:-]+"
# Without a dot, which separates the group in flags.
_WORD = r"[a-z0-9-]+"
# The core group is served under /api, the others under /apis.
_PATH = re.compile(
    rf"/(?:api|apis/(?P<group>{_PART}))/v[a-z0-9]+"
    rf"(?:/namespaces/{_PART})?/(?P<resource>{_WORD})"
    rf"(?:/{_PART}/(?P<subresource>{_WORD}))?"
)
_RESOURCE = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9.-]+)?(?:/[a-z]+)?")
# Virtual resources: nothing is stored, and no webhook is called.
_REVIEWS = frozenset(
    (
        "subjectaccessreviews.authorization.k8s.io",
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "localsubjectaccessreviews.authorization.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "selfsubjectreviews.authentication.k8s.io",
    )
)


class PostRules(msgspec.Struct, frozen=True):
    """Names of resources as kubectl writes them: `configmaps`, `jobs.batch`, `pods/eviction`."""

    allowed: frozenset[str] = frozenset()

    def check(self, url_path: str, why_not: str) -> None:
        """Raise LookupFailedError for a denied path; `why_not`: why nothing may be stored now."""
        name = name_resource(url_path)
        if name in _REVIEWS:
            return
        if name not in self.allowed:
            raise LookupFailedError(
                f"a policy may not create {name or url_path}: POST is for access reviews; "
                f"--allowPostResources={name or 'RESOURCE'} lets policies create more"
            )
        if why_not:
            raise LookupFailedError(f"a policy may not create {name} {why_not}")


def read_post_rules(flags: Flags) -> PostRules:
    """The rules from the flags; raises UsageError for an invalid entry."""
    entries = frozenset(filter(None, map(str.strip, flags.allow_post_resources.split(","))))
    for entry in entries:
        if not _RESOURCE.fullmatch(entry):
            raise UsageError(
                f"--allowPostResources: {entry!r} is not a resource: use kubectl's notation, "
                "such as configmaps, jobs.batch or pods/eviction"
            )
    return PostRules(entries)


def name_resource(url_path: str) -> str:
    """The resource that a path creates; empty if the path is not canonical."""
    found = _PATH.fullmatch(url_path.partition("?")[0])
    if found is None or any(part in (".", "..") for part in found[0].split("/")):
        return ""
    group, part = found["group"], found["subresource"]
    name = f"{found['resource']}.{group}" if group else found["resource"]
    return f"{name}/{part}" if part else name


T = TypeVar("T")

# Rules of one request often need the same: responses are cached briefly, for this request only.
_MOMENT = 1.0
_MOST_REMEMBERED = 64
_LONGEST = 300.0
_CACHED_LABEL = "cache.kyverno.io/enabled"
_NO_REQUEST = "outside of an admission request"


class _CurrentRequest(msgspec.Struct, frozen=True):
    """The request that lookups are made for: its deadline, and cached responses."""

    deadline: float | None
    # Why nothing may be stored for it; empty if it may.
    why_not: str = _NO_REQUEST
    answers: OrderedDict[str, tuple[float, Json]] = msgspec.field(default_factory=OrderedDict)


_question: ContextVar[_CurrentRequest | None] = ContextVar("question", default=None)


def begin_request(deadline: float | None = None, *, why_not: str = _NO_REQUEST) -> None:
    """Start the lookups of one request in this context.

    `why_not`: why policies may not create anything now; empty if they may. Lookups end at the
    request's deadline (`time.monotonic`), and each is made once. Without this call, nothing is
    cached, and only the flags' time limit applies.
    """
    _question.set(_CurrentRequest(deadline, why_not))


def count_seconds() -> float:
    """How long the caller can wait."""
    question = _question.get()
    if question is None or question.deadline is None:
        return _LONGEST
    return question.deadline - time.monotonic()


class ClusterLookups:
    """Implements `ports.Lookups`. `run` keeps watches up to date until cancelled.

    Coroutines run on the client's event loop; the calling thread waits for them.
    """

    def __init__(
        self,
        client: Client,
        loop: asyncio.AbstractEventLoop,
        flags: Flags | None = None,
        *,
        discovery: Discovery | None = None,
        namespace: str = "lictor",
        registries: Registries | None = None,
    ) -> None:
        flags = flags or Flags()
        self._client = client
        self._loop = loop
        self._seconds = _read_seconds(flags.api_call_timeout)
        self._posts = read_post_rules(flags)
        self._discovery = discovery or Discovery(client)
        self._services = ServiceCaller(
            read_http_limits(flags),
            most_bytes=flags.max_api_call_response_length,
            seconds=self._seconds,
        )
        most = flags.max_global_context_entries
        self.global_context = GlobalContext(client, self._call, most)
        self._registries = registries or RemoteRegistries(
            read_registry_settings(flags),
            build_sources(flags, namespace, self.get_path),
            remaining=count_seconds,
        )
        self._followed = FollowedObjects(client)
        self._resolver = HostResolver()
        self._config_maps: Cache | None = None
        if flags.enable_config_map_caching:
            self._config_maps = Cache(client, CONFIG_MAP, labels=_CACHED_LABEL)

    async def run(self) -> None:
        """Watch cached ConfigMaps and global context entries. Ends only when cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.global_context.run())
                if self._config_maps is not None:
                    tasks.create_task(self._config_maps.run())
        finally:
            await self.close()

    async def close(self) -> None:
        """Close connections to services and watches, but not the client."""
        await self._followed.close()
        await self._services.close()

    async def wait(self) -> None:
        """Wait for the first complete lists."""
        await self.global_context.wait()
        if self._config_maps is not None:
            await self._config_maps.wait()

    # --- the methods of ports.Lookups

    def config_map(self, namespace: str, name: str) -> JsonObject:
        cached = self._config_maps.get(name, namespace) if self._config_maps is not None else None
        if cached is not None:
            return cached
        try:
            return self.get_path(CONFIG_MAP.path(namespace, name))  # type: ignore[no-any-return]
        except ApiError as error:
            why = f"failed to get configmap {namespace}/{name} : {error}"
            raise LookupFailedError(why) from error

    def call_api(self, call: ApiCall) -> Json:
        if not call.url_path:
            return self._wait(self._services.call(call))
        if call.method == "GET":
            try:
                return self.get_path(call.url_path)
            except ApiError as error:
                raise _describe_call(call, error) from error
        question = _question.get() or _CurrentRequest(None)
        return self._wait(self._call(call, question.why_not))

    def global_reference(self, name: str) -> Json:
        entry, _, projection = name.partition(".")
        found = self.global_context.find(entry)
        if found is None:
            raise NotFoundError(f"failed to fetch entry key={entry}", status=404)
        return found.read(projection.partition(".")[0], self._wait)

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return describe_image(self.registries(), reference, access)

    def registries(self) -> Registries:
        return self._registries

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        for resource in self._find_kinds(api_version, kind, namespace):
            try:
                found = self.get_path(resource.path(namespace, name))
            except NotFoundError:
                continue
            return found if isinstance(found, dict) else None
        return None

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        found: list[JsonObject] = []
        for resource in self._find_kinds(api_version, kind, namespace):
            key = f"list {resource.path(namespace)}"
            found += self._remember(key, lambda: self._wait(self._list(resource, namespace)))  # noqa: B023
        return found

    def select_objects(self, query: ObjectQuery) -> Sequence[JsonObject]:
        resource = self._find_kind(query.api_version, query.kind)
        if query.namespace and not resource.namespaced:
            raise LookupFailedError(f"{query.kind} is cluster-scoped")
        return self._wait(self._followed.select(query, resource))

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        found = self._find_kind(api_version, kind)
        return ResourceFacts(found.plural, found.namespaced)

    def resolve_host(self, host: str) -> tuple[str, ...]:
        return self._resolver.resolve(host, min(self._seconds or _LONGEST, count_seconds()))

    def log_line(self, line: GuestLogLine) -> None:
        log_guest_line(line)

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:  # noqa: ARG002
        return {}

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:  # noqa: ARG002
        return {}

    def now(self) -> datetime:
        return datetime.now(UTC)

    # --- how it is answered

    def get_path(self, path: str) -> Json:
        """The object or list at a path of the API server."""
        return self._remember(path, lambda: self._wait(self._client.request("GET", path)))

    async def _call(self, call: ApiCall, why_not: str = _NO_REQUEST) -> Json:
        """One call, on the event loop, without a cache: for global context entries as well."""
        if not call.url_path:
            return await self._services.call(call)
        if call.method == "POST":
            self._posts.check(call.url_path, why_not)
        elif call.method != "GET":
            raise LookupFailedError(f"method not supported: {call.method}")
        body = None if call.method == "GET" else call.data or {}
        request = self._client.request(call.method, call.url_path, body=body, timeout=self._seconds)
        try:
            return await request
        except ApiError as error:
            raise _describe_call(call, error) from error

    async def _list(self, resource: Resource, namespace: str) -> list[JsonObject]:
        try:
            return await self._client.list(resource, namespace)
        except NotFoundError:
            return []

    def _find_kinds(self, api_version: str, kind: str, namespace: str) -> list[Resource]:
        """The served kinds; in a namespace only namespaced ones."""
        found = self._search_kinds(api_version, kind)
        # Their paths cannot contain the namespace: all objects would be returned.
        return [each for each in found if each.namespaced] if namespace else found

    def _find_kind(self, api_version: str, kind: str) -> Resource:
        """The one kind of that name; not for wildcards."""
        if not api_version or not kind or has_wildcard(api_version + kind):
            raise LookupFailedError(f"{api_version!r} {kind!r} is not a kind")
        found = [each for each in self._search_kinds(api_version, kind) if each.kind == kind]
        if not found:
            raise LookupFailedError(f"the API server serves no {kind} of {api_version}")
        return found[0]

    def _search_kinds(self, api_version: str, kind: str) -> list[Resource]:
        """Wildcards may match several."""
        group, _, version = api_version.rpartition("/")
        if not has_wildcard(api_version + kind) and api_version:
            known = builtin_names().of_kind(group, version, kind)
            if not known.guessed and known.namespaced is not None:
                return [Resource(group, version, known.resource, kind, known.namespaced)]
        text = f"{api_version}/{kind}" if group else f"{version or '*'}/{kind}"
        served = self._wait(self._discovery.search(text))
        # A star alone is any version of any group; a bare version is of the core group.
        wanted = [each for each in served if group or api_version in ("", "*") or not each.group]
        if not wanted and not has_wildcard(text):
            raise LookupFailedError(f"the API server serves no {kind} of {api_version}")
        return [
            Resource(each.group, each.version, each.resource, each.kind, each.namespaced)
            for each in wanted
        ]

    def _remember(self, key: str, ask: Callable[[], T]) -> T:
        question = _question.get()
        if question is None:
            return ask()
        until, answer = question.answers.get(key, (0.0, None))
        if time.monotonic() < until:
            return answer  # type: ignore[no-any-return]
        answer = ask()
        question.answers[key] = time.monotonic() + _MOMENT, answer
        if len(question.answers) > _MOST_REMEMBERED:
            question.answers.popitem(last=False)
        return answer

    def _wait(self, coroutine: Coroutine[None, None, T]) -> T:
        """Run a coroutine on the loop and wait for it, as long as the caller has time."""
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001  (documented, and raises nothing)
            coroutine.close()
            raise LookupFailedError("the cluster must not be called on the event loop's thread")
        seconds = max(min(self._seconds or _LONGEST, count_seconds()), 0.0)
        if self._loop.is_closed():
            coroutine.close()
            raise LookupFailedError("the cluster is not called any more: shutting down")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise LookupFailedError(f"no answer within {seconds:.1f} s") from None
        except CancelledError:
            raise LookupFailedError("the call was cancelled: shutting down") from None


def _describe_call(call: ApiCall, error: ApiError) -> LookupFailedError:
    denied = "permission denied: " if error.status in {401, 403} else ""
    return LookupFailedError(
        f"failed to {call.method} resource with raw url: {call.url_path}: {denied}{error}"
    )


def _read_seconds(text: str) -> float:
    """A duration in seconds; 0 is no separate limit."""
    try:
        return max(parse_duration(text) / NANOSECONDS, 0.0)
    except ValueError as error:
        raise UsageError(f"--apiCallTimeout: {error}") from error
