"""The path of a policy change: watch -> load -> try and compile -> publish."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from zlib import crc32

import orjson

from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache, OutcomeCacheSettings
from lictor.core.evaluations import EVALUATIONS
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.family import Family
from lictor.core.families.registry import registry
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.model.program import Program
from lictor.core.ports import Lookups
from lictor.core.raw import JsonObject
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.cache import Cache, Change
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import Resource, find_resource
from lictor.kubernetes.stored_policy import StoredPolicy, keep_policy, read_policy
from lictor.lookups.service_calls import read_http_limits
from lictor.policies.family_services import (
    Attachment,
    FamilyServices,
    ServiceAccess,
    build_services,
)
from lictor.policies.policy_compiler import (
    CompileTask,
    PolicyCompiler,
    PolicyVersion,
    ProgramBuilder,
    fail_version,
)
from lictor.policies.stored_exceptions import StoredExceptions
from lictor.policies.trials import Job, current_trials

# Changes of one burst (`kubectl apply -f folder`) are published together.
_QUIET = 0.05
# While changes keep coming, at most this share of the thread's time goes into comparing policies.
_SHARE = 0.05
_LONGEST_QUIET = 1.0
_QUARANTINE_SECONDS = 0.25
# Seconds after which what was compiled is published, though more is waiting.
_LONGEST_ROUND = 3.0


def list_policy_resources() -> tuple[Resource, ...]:
    """The kinds of policies that are watched; the API server evaluates the others itself."""
    return tuple(
        find_resource(kind) for kind in registry().kinds if kind.is_listed and not kind.is_native
    )


class PolicyStore:
    """The policies of the cluster and the exceptions from them, as last compiled and published."""

    def __init__(
        self,
        client: Client,
        flags: Flags,
        lookups: Lookups | None = None,
        access: ServiceAccess | None = None,
    ) -> None:
        """`access`: for services of families, such as the modules that policies in Wasm run."""
        self._flags = flags
        self._services: dict[Family, FamilyServices] = {}
        if access is not None:
            self._services = build_services(client, flags, access, self._note_arrival)
        self._policies = {
            kind: Cache(client, kind, keep=keep_policy) for kind in list_policy_resources()
        }
        self._exceptions = StoredExceptions(client, flags)
        self._crds = Cache(client, kinds.CUSTOM_RESOURCE_DEFINITION, keep=_keep_names)
        self._builder = ProgramBuilder(
            lookups, read_http_limits(flags), _make_outcome_cache(flags), self._services
        )
        self._compiler = PolicyCompiler(current_trials())
        self._published: tuple[StoredPolicy, ...] = ()
        # Changes when other programs are published; not if only statuses changed.
        self.revision = 0
        # The published policies, by kind and uid.
        self._known: dict[tuple[Resource, str], StoredPolicy] = {}
        # By uid: the policy and the revision of the exceptions that the mark was built for.
        self._marks: dict[str, tuple[StoredPolicy, tuple[int, int], str]] = {}
        self._attachments = 0
        self._names: ResourceNames | None = None
        # How often names of kinds have changed.
        self._epoch = 0
        self._listeners: list[Callable[[], None]] = []
        self._has_changed = asyncio.Event()
        self._is_published = asyncio.Event()
        self._listen()

    def _listen(self) -> None:
        for services in self._services.values():
            for cache in services.caches:
                cache.listen(self._forget_marks)
        for cache in self.caches:
            cache.listen(self._note_change)

    # --- what is published

    @property
    def policies(self) -> tuple[StoredPolicy, ...]:
        """All compiled policies, classic ones first, in the order of their names."""
        return self._published

    def programs(self, policy: StoredPolicy) -> tuple[Program, ...]:
        """The policy compiled with the exceptions that name it; none if it cannot be read."""
        compiled = self._compiler.compiled.get(policy.uid)
        return compiled.programs if compiled is not None else ()

    def find_reason(self, policy: StoredPolicy) -> str:
        """Why the policy returns errors or is not compiled yet; empty if it can be evaluated."""
        compiled = self._compiler.compiled.get(policy.uid)
        return compiled.reason if compiled and compiled.reason else self.find_fault(policy)

    def find_fault(self, policy: StoredPolicy) -> str:
        """Why its programs return errors, also while something that it lacks may arrive."""
        compiled = self._compiler.compiled.get(policy.uid)
        if compiled and compiled.reason and not compiled.is_waiting:
            return compiled.reason
        services = self._services.get(policy.kind.family)
        return services.find_fault(policy.uid) if services is not None else ""

    def has_invalid_settings(self, policy: StoredPolicy) -> bool:
        """Does the policy deny everything until its author changes its settings?"""
        services = self._services.get(policy.kind.family)
        return services is not None and services.has_invalid_settings(policy.uid)

    @property
    def exceptions(self) -> StoredExceptions:
        """The exceptions from policies that the installation allows."""
        return self._exceptions

    @property
    def names(self) -> ResourceNames:
        """The names of resources, with those of the custom kinds of the cluster."""
        if self._names is None:
            self._names = builtin_names().with_crds(self._crds.list())
        return self._names

    @property
    def crds(self) -> Cache:
        """The definitions of custom resources, without their schemas."""
        return self._crds

    @property
    def can_lag(self) -> bool:
        """Can there be exceptions that no watch has reported yet?"""
        return bool(self._exceptions.caches)

    async def catch_up(self) -> bool:
        """Wait for exceptions that no watch has reported yet; were there any?"""
        return await self._exceptions.catch_up()

    # --- changes

    @property
    def caches(self) -> tuple[Cache, ...]:
        policies, exceptions = self._policies.values(), self._exceptions.caches
        attached = (cache for services in self._services.values() for cache in services.caches)
        return (*policies, *exceptions, *attached, self._crds)

    @property
    def is_synced(self) -> bool:
        return all(cache.is_synced for cache in self.caches)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each publication; it must not block."""
        self._listeners.append(listener)

    def listen_to_changes(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` at once with each change of a policy; it must not block."""
        for cache in self._policies.values():
            cache.listen(listener)

    async def run(self) -> None:
        """Watch, compile and publish until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run())
            group.create_task(self._follow_changes())
            group.create_task(self._follow_quarantine())

    async def wait(self) -> None:
        """Until everything was read, compiled and published for the first time."""
        for cache in self.caches:
            await cache.wait()
        self._has_changed.set()
        await self._is_published.wait()

    async def _follow_changes(self) -> None:
        rests_until = 0.0
        while True:
            await self._has_changed.wait()
            await asyncio.sleep(max(_QUIET, rests_until - time.monotonic()))
            self._has_changed.clear()
            if not self.is_synced:
                continue
            began = time.thread_time()
            marked = await self._load()
            await self._compile_and_publish(marked)
            effort = time.thread_time() - began
            rests_until = time.monotonic() + min(effort / _SHARE, _LONGEST_QUIET)

    async def _follow_quarantine(self) -> None:
        """Another process may have died of a policy that this one still evaluates."""
        known = EVALUATIONS.count
        while True:
            await asyncio.sleep(_QUARANTINE_SECONDS)
            if known != EVALUATIONS.count:
                known = EVALUATIONS.count
                self._has_changed.set()

    def _note_change(self, change: Change) -> None:
        if change.object.get("kind") == kinds.CUSTOM_RESOURCE_DEFINITION.kind:
            # Policies that were compiled with guessed names must be compiled again.
            self._names = None
            self._epoch += 1
        self._has_changed.set()

    def _note_arrival(self) -> None:
        """Something that policies wait for has arrived, or will not for now."""
        self._compiler.stop_waiting()
        self._has_changed.set()

    def _forget_marks(self, _: Change) -> None:
        # A count, because another thread may be about to store a mark from before the change.
        self._attachments += 1

    # --- load

    async def _load(self) -> list[tuple[StoredPolicy, str]]:
        """The policies of now, each with a mark of all that its programs depend on."""
        documents = [
            (kind, document) for kind, cache in self._policies.items() for document in cache.list()
        ]
        # A large policy takes seconds to read.
        loaded = await asyncio.to_thread(self.load_documents, documents)
        await self._exceptions.prepare()
        return [(policy, f"{self.mark(policy)};{self._epoch}") for policy in loaded]

    def load_documents(
        self, documents: Iterable[tuple[Resource, JsonObject]]
    ) -> tuple[StoredPolicy, ...]:
        """Policies with their records; those that are published already are not read again."""
        ignores = self._flags.force_failure_policy_ignore
        return tuple(
            read_policy(kind, document, self._known, always_ignore=ignores)
            for kind, document in documents
        )

    def mark(self, policy: StoredPolicy) -> str:
        """Text that changes when the policy does, or an exception that names it."""
        known = self._marks.get(policy.uid)
        revision = self._exceptions.revision, self._attachments
        if known is not None and known[0] is policy and known[1] == revision:
            return known[2]
        mark = self._build_mark(policy)
        self._marks[policy.uid] = (policy, revision, mark)
        return mark

    def _build_mark(self, policy: StoredPolicy) -> str:
        exceptions = [each.metadata for each in self._exceptions.find(policy)]
        marks = (f"{each.uid}:{each.resource_version}" for each in exceptions)
        # They select the controllers that a policy about Pods covers; the generation ignores them.
        annotations = orjson.dumps(policy.document["metadata"].get("annotations") or {})
        attached = self._attach(policy).mark
        return ",".join((str(policy.generation), f"{crc32(annotations):x}{attached}", *marks))

    def _attach(self, policy: StoredPolicy) -> Attachment:
        services = self._services.get(policy.kind.family)
        return services.attach(policy) if services is not None else Attachment()

    # --- try, compile, publish

    async def _compile_and_publish(self, marked: Sequence[tuple[StoredPolicy, str]]) -> None:
        compiler = self._compiler
        tasks = [
            self._build_task(policy, mark)
            for policy, mark in marked
            if not compiler.is_current(policy.uid, mark)
        ]
        is_first = not self._is_published.is_set()
        until = float("inf") if is_first else time.monotonic() + _LONGEST_ROUND
        if not await compiler.prepare(tasks, until):
            # What is compiled is published first: many policies of one owner must not delay others.
            self._has_changed.set()
        live = {policy.uid for policy, _ in marked}
        compiler.keep(live)
        for services in self._services.values():
            for uid, seconds in services.keep(live).items():
                compiler.retry_after(uid, seconds)
        for uid in self._marks.keys() - live:
            del self._marks[uid]
        self._publish(tuple(self._list_ready(marked)), has_compiled=bool(tasks))
        pause = compiler.find_pause()
        if pause is not None:
            asyncio.get_running_loop().call_later(pause, self._has_changed.set)

    def _build_task(self, policy: StoredPolicy, mark: str) -> CompileTask:
        exceptions = self._exceptions.find(policy)
        version = PolicyVersion(policy, exceptions, self.names, self._attach(policy))
        documents = self._exceptions.find_documents(policy)
        return CompileTask(
            policy.uid,
            mark,
            Job(policy.document, documents, tuple(self._crds.list())),
            compile=partial(self._builder.build, version),
            fail=partial(fail_version, version),
        )

    def _list_ready(self, marked: Iterable[tuple[StoredPolicy, str]]) -> Iterator[StoredPolicy]:
        """The policies as compiled; one that is still waiting stays as published before."""
        for policy, mark in marked:
            compiled = self._compiler.compiled.get(policy.uid)
            known = self._known.get((policy.resource, policy.uid))
            if compiled is not None and compiled.mark == mark:
                yield policy
            elif known is not None:
                yield known

    def _publish(self, ready: tuple[StoredPolicy, ...], *, has_compiled: bool) -> None:
        if has_compiled or _list_served(ready) != _list_served(self._published):
            self.revision += 1
        self._known = {(policy.resource, policy.uid): policy for policy in ready}
        self._published = ready
        self._is_published.set()
        for listener in self._listeners:
            listener()


def _list_served(policies: Iterable[StoredPolicy]) -> list[tuple[str, bool]]:
    """What decides, beside the programs, which policies are evaluated."""
    return [(policy.uid, policy.is_native) for policy in policies]


def _make_outcome_cache(flags: Flags) -> OutcomeCache:
    return OutcomeCache(
        OutcomeCacheSettings(
            enabled=flags.image_verify_cache_enabled,
            max_size=flags.image_verify_cache_max_size,
            ttl=parse_duration(flags.image_verify_cache_ttl_duration) / NANOSECONDS,
        )
    )


def _keep_names(crd: JsonObject) -> JsonObject:
    """A CRD without its schemas, which can be megabytes."""
    spec = crd.get("spec") or {}
    versions = [
        {"name": version.get("name"), "served": version.get("served")}
        for version in spec.get("versions") or ()
    ]
    kept = {name: spec.get(name) for name in ("group", "names", "scope")}
    metadata = {name: crd["metadata"].get(name) for name in ("name", "uid", "resourceVersion")}
    return {
        "apiVersion": crd.get("apiVersion"),
        "kind": kinds.CUSTOM_RESOURCE_DEFINITION.kind,
        "metadata": metadata,
        "spec": {**kept, "versions": versions},
    }
