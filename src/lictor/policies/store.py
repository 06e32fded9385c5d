"""The policies of the cluster and the exceptions from them, watched, read and compiled."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from zlib import crc32

import orjson

from lictor.addons.kubewarden.modules.module_fetching import OpenModules
from lictor.addons.kubewarden.modules.policy_modules import PolicyModules
from lictor.addons.kubewarden.modules.server_modules import ServerBinding, bind_to_server
from lictor.core.assembly import compile_documents, fail_policy
from lictor.core.errors import CompileError, NotYetError
from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache, OutcomeCacheSettings
from lictor.core.evaluations import EVALUATIONS
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.registry import Role, registry
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.lang.template import Fill
from lictor.core.lang.wasm_module import NoModules
from lictor.core.model.metadata import PolicyRecord
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
from lictor.policies.compile_trial import Job, current_trials
from lictor.policies.policy_compiler import CompileTask, PolicyCompiler
from lictor.policies.routes import is_for_own_server
from lictor.policies.stored_exceptions import StoredExceptions


def list_policy_resources() -> tuple[Resource, ...]:
    """The kinds of policies that are watched; others the API server evaluates itself."""
    return tuple(
        find_resource(kind) for kind in registry().kinds if kind.is_listed and not kind.is_native
    )


# Changes that come in one burst (`kubectl apply -f folder`) are told once.
_QUIET = 0.05
# While changes keep coming, no more of the thread than this goes into looking through all policies.
_SHARE = 0.05
_LONGEST_QUIET = 1.0
# Between two looks for policies of which other processes have died.
_LOOK_SECONDS = 0.25
# Seconds after which what was prepared is told, though more has changed.
_LONGEST_ROUND = 3.0


def _watch_servers(client: Client) -> dict[Resource, Cache]:
    found = map(find_resource, registry().with_role(Role.SERVER))
    return {kind: Cache(client, kind) for kind in found}


class PolicyStore:
    """Everything that rules this cluster. Programs are made when first asked for, and kept."""

    def __init__(
        self,
        client: Client,
        flags: Flags,
        lookups: Lookups | None = None,
        *,
        open_modules: "OpenModules | None" = None,
        only_own: bool = False,
    ) -> None:
        """`open_modules`: where modules of policies in Wasm come from, asked on threads.

        `only_own`: policies that name a server of their own are not compiled here.
        """
        self._flags = flags
        self._lookups = lookups
        self._only_own = only_own
        self._modules = PolicyModules(open_modules, self._note_news)
        self._http_limits = read_http_limits(flags)
        # It outlives the programs: a policy that comes again need not ask registries again.
        self._image_outcomes = _make_outcome_cache(flags)
        # The same for texts of queries: equal ones are compiled once.
        self._queries: dict[str, Fill] = {}
        self._policies = {
            kind: Cache(client, kind, keep=keep_policy) for kind in list_policy_resources()
        }
        self._exceptions = StoredExceptions(client, flags)
        # Who runs policies in Wasm: what policies of one may do and fetch is the server's matter.
        is_needed = open_modules is not None and not only_own
        self._servers = _watch_servers(client) if is_needed else {}
        self._crds = Cache(client, kinds.CUSTOM_RESOURCE_DEFINITION, keep=_keep_names)
        self._read: dict[tuple[Resource, str], StoredPolicy] = {}
        # By uid: the mark of the policy that was compiled, and what came of it.
        self._programs: dict[str, tuple[str, tuple[Program, ...]]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._wake = asyncio.Event()
        # Another number when other programs are to be asked; not where only statuses changed.
        self.revision = 0
        self._stale: bool = True
        self._listed: tuple[StoredPolicy, ...] = ()
        # By uid: the policy and the state of exceptions for which the mark was made.
        self._marks: dict[str, tuple[StoredPolicy, int, str]] = {}
        self._names: ResourceNames | None = None
        trials = current_trials()
        self._compiler = PolicyCompiler(trials) if trials is not None else None
        self._is_prepared = asyncio.Event()
        # How often names of kinds have changed.
        self._epoch = 0
        self._listen()

    def _listen(self) -> None:
        for cache in self._servers.values():
            cache.listen(self._forget_marks)
        for cache in self.caches:
            cache.listen(self._note_change)

    @property
    def caches(self) -> tuple[Cache, ...]:
        policies, exceptions = self._policies.values(), self._exceptions.caches
        return (*policies, *exceptions, *self._servers.values(), self._crds)

    @property
    def crds(self) -> Cache:
        """The definitions of custom resources, without their schemas."""
        return self._crds

    async def run(self) -> None:
        """Keep everything in step until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run())
            group.create_task(self._notify())
            group.create_task(self._follow_quarantine())

    async def _follow_quarantine(self) -> None:
        """Another process may have died of a policy that this one still evaluates."""
        known = EVALUATIONS.count
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if known != EVALUATIONS.count:
                known = EVALUATIONS.count
                self._wake.set()

    async def wait(self) -> None:
        """Until everything has been read for the first time."""
        for cache in self.caches:
            await cache.wait()
        if self._compiler is not None:
            self._wake.set()
            await self._is_prepared.wait()

    @property
    def is_synced(self) -> bool:
        return all(cache.is_synced for cache in self.caches)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each burst of changes; it must not block."""
        self._listeners.append(listener)

    def listen_to_changes(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` at once with each change of a policy; it must not block."""
        for cache in self._policies.values():
            cache.listen(listener)

    @property
    def policies(self) -> tuple[StoredPolicy, ...]:
        """All policies, classic ones first, in the order of their names.

        Where they are prepared beside other work: those that are, as they were then.
        """
        if self._stale and self._compiler is None:
            self._stale = False
            self._list(self._read_all(self._list_documents()))
        return self._listed

    def _list_documents(self) -> tuple[tuple[Resource, JsonObject], ...]:
        return tuple(
            (kind, document) for kind, cache in self._policies.items() for document in cache.list()
        )

    def _read_all(
        self, documents: Iterable[tuple[Resource, JsonObject]]
    ) -> tuple[StoredPolicy, ...]:
        ignores = self._flags.force_failure_policy_ignore
        return tuple(
            read_policy(kind, document, self._read, always_ignore=ignores)
            for kind, document in documents
        )

    def _list(self, found: tuple[StoredPolicy, ...]) -> None:
        self._read = {(policy.resource, policy.uid): policy for policy in found}
        self._listed = found

    def find_reason(self, policy: StoredPolicy) -> str:
        """Why the policy answers with an error, or not at all yet; empty where it can be asked."""
        made = self._compiler and self._compiler.made.get(policy.uid)
        return made.reason if made and made.reason else self.find_fault(policy)

    def find_fault(self, policy: StoredPolicy) -> str:
        """Why its programs answer with an error, also while something that it lacks may come."""
        made = self._compiler and self._compiler.made.get(policy.uid)
        if made and made.reason and not made.is_waiting:
            return made.reason
        return self._modules.find_fault(policy.uid)

    def has_invalid_settings(self, policy: StoredPolicy) -> bool:
        """Does the policy refuse everything until its author changes its settings?"""
        return self._modules.has_invalid_settings(policy.uid)

    async def _prepare(self, compiler: PolicyCompiler) -> None:
        """Read and compile what has changed; until then everyone sees the state before."""
        # A large policy takes seconds to read.
        found = await asyncio.to_thread(self._read_all, self._list_documents())
        await self._exceptions.prepare()
        marked = [(policy, f"{self.mark(policy)};{self._epoch}") for policy in found]
        tasks = [
            self._plan(policy, mark)
            for policy, mark in marked
            if not compiler.is_current(policy.uid, mark)
        ]
        is_first = not self._is_prepared.is_set()
        until = float("inf") if is_first else time.monotonic() + _LONGEST_ROUND
        if not await compiler.prepare(tasks, until):
            # What is there now is told first: somebody's many policies must not hold up others'.
            self._wake.set()
        live = {policy.uid for policy in found}
        ready = tuple(self._choose_ready(compiler, marked))
        if tasks or _list_served(ready) != _list_served(self._listed):
            self.revision += 1
        compiler.keep(live)
        self._modules.keep(compiler, live)
        self._list(ready)
        self._is_prepared.set()
        pause = compiler.find_pause()
        if pause is not None:
            asyncio.get_running_loop().call_later(pause, self._wake.set)

    def _choose_ready(
        self, compiler: PolicyCompiler, marked: Iterable[tuple[StoredPolicy, str]]
    ) -> Iterator[StoredPolicy]:
        """The policies as they were compiled; one that has yet to be is as it was before."""
        for policy, mark in marked:
            made = compiler.made.get(policy.uid)
            known = self._read.get((policy.resource, policy.uid))
            if made is not None and made.mark == mark:
                yield policy
            elif known is not None:
                yield known

    def _note_news(self) -> None:
        """A module has come, or will not come for now."""
        if self._compiler is not None:
            self._compiler.stop_waiting()
        self._wake.set()

    def _plan(self, policy: StoredPolicy, mark: str) -> CompileTask:
        exceptions = self._exceptions.find(policy)
        names, record, server = self.names, policy.record, self._bind(policy)

        def fail(error: CompileError) -> tuple[Program, ...]:
            return () if record is None else fail_policy(record, error, resource_names=names)

        others = self._exceptions.find_documents(policy)
        return CompileTask(
            policy.uid,
            mark,
            Job(policy.document, others, tuple(self._crds.list())),
            compile=lambda: self._compile(policy, exceptions, names, server),
            fail=fail,
        )

    @property
    def can_lag(self) -> bool:
        """Can there be exceptions that no watch has reported yet?"""
        return bool(self._exceptions.caches)

    async def catch_up(self) -> bool:
        """Wait for exceptions that no watch has reported yet; were there any?"""
        return await self._exceptions.catch_up()

    @property
    def exceptions(self) -> StoredExceptions:
        """The exceptions from policies that the installation heeds."""
        return self._exceptions

    @property
    def names(self) -> ResourceNames:
        """The names of resources, with those of the cluster's own kinds."""
        if self._names is None:
            self._names = builtin_names().with_crds(self._crds.list())
        return self._names

    def mark(self, policy: StoredPolicy) -> str:
        """Text that changes when the policy or an exception that names it does."""
        known, revision = self._marks.get(policy.uid), self._exceptions.revision
        if known is not None and known[0] is policy and known[1] == revision:
            return known[2]
        made = self._make_mark(policy)
        self._marks[policy.uid] = (policy, revision, made)
        return made

    def _make_mark(self, policy: StoredPolicy) -> str:
        exceptions = [each.metadata for each in self._exceptions.find(policy)]
        marks = (f"{each.uid}:{each.resource_version}" for each in exceptions)
        # Annotations say which controllers a policy about Pods covers, and are no part of the spec.
        notes = orjson.dumps(policy.document["metadata"].get("annotations") or {})
        server = self._bind(policy).mark
        return ",".join((str(policy.generation), f"{crc32(notes):x}{server}", *marks))

    def _bind(self, policy: StoredPolicy) -> ServerBinding:
        """The server that runs the policy, where that is a matter of this process."""
        if not (self._servers and policy.unique_name):
            return ServerBinding()
        caches = self._servers.values()
        return bind_to_server(policy, (each for cache in caches for each in cache.list()))

    def programs(self, policy: StoredPolicy) -> tuple[Program, ...]:
        """The policy compiled with the exceptions that name it; nothing where it is unreadable."""
        if self._compiler is not None:
            prepared = self._compiler.made.get(policy.uid)
            return prepared.programs if prepared is not None else ()
        mark = self.mark(policy)
        known = self._programs.get(policy.uid)
        if known is not None and known[0] == mark:
            return known[1]
        exceptions = self._exceptions.find(policy)
        try:
            made = self._compile(policy, exceptions, self.names, self._bind(policy))
        except NotYetError:
            return ()
        self._programs[policy.uid] = (mark, made)
        return made

    def _compile(
        self,
        policy: StoredPolicy,
        exceptions: Iterable[PolicyRecord],
        names: ResourceNames,
        server: ServerBinding,
    ) -> tuple[Program, ...]:
        record = policy.record
        if record is None:
            # The CRD and our own policy webhook keep such policies out; where one got in all the
            # same, its status is not ready and says why. It must not hold up everything else.
            return ()
        if self._only_own and policy.unique_name and not is_for_own_server(policy):
            return ()
        if server.fault:
            self._modules.refuse(policy.uid, server.fault)
            return fail_policy(record, CompileError(server.fault), resource_names=names)
        modules = self._modules.open_for(server)
        made = compile_documents(
            (record, *exceptions, *server.records),
            lookups=self._lookups,
            resource_names=names,
            http_limits=self._http_limits,
            image_outcomes=self._image_outcomes,
            modules=modules or NoModules(),
            queries=self._queries,
            is_lazy=True,
        )
        if modules is not None:
            self._modules.prepare(policy.uid, made, modules)
        return made

    def _note_change(self, change: Change) -> None:
        if self._compiler is None:
            self.revision += 1
        if change.object.get("kind") == kinds.CUSTOM_RESOURCE_DEFINITION.kind:
            # Policies that were compiled with guessed names must be compiled again.
            self._names = None
            self._epoch += 1
            self._programs.clear()
        self._stale = True
        self._wake.set()

    def _forget_marks(self, _: Change) -> None:
        self._marks.clear()

    async def _notify(self) -> None:
        rests_until = 0.0
        while True:
            await self._wake.wait()
            await asyncio.sleep(max(_QUIET, rests_until - time.monotonic()))
            self._wake.clear()
            began = time.thread_time()
            if self._compiler is not None:
                if not self.is_synced:
                    continue
                await self._prepare(self._compiler)
            live = {policy.uid for policy in self.policies}
            for uid in self._programs.keys() - live:
                del self._programs[uid]
            for uid in self._marks.keys() - live:
                del self._marks[uid]
            for listener in self._listeners:
                listener()
            effort = time.thread_time() - began
            rests_until = time.monotonic() + min(effort / _SHARE, _LONGEST_QUIET)


def _list_served(policies: Iterable[StoredPolicy]) -> list[tuple[str, bool]]:
    """What of policies says that they are asked, beside their programs."""
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
