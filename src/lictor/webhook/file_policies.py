"""Policies from files, for trying out without a cluster."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from lictor.core.assembly import compile_documents, fail_policy
from lictor.core.errors import CompileError, LoadError
from lictor.core.evaluations import EVALUATIONS, QUARANTINED, identify
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.files import is_object_file, list_files, read_bytes
from lictor.core.garbage import keeping_garbage
from lictor.core.load.policies import Loaded, Sourced, join_loaded, load_documents, refuse_errors
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Program
from lictor.core.ports import (
    DEFAULT_ACCESS,
    GuestLogLine,
    Lookups,
    NoLookups,
    Registries,
    RegistryAccess,
)
from lictor.core.raw import JsonObject
from lictor.http.addresses import HostResolver
from lictor.images.image_data import describe_image
from lictor.images.registries import RemoteRegistries
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.process_log import log_guest_line
from lictor.kubernetes.resource import find_resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.lookups.lookups import begin_request, count_seconds
from lictor.lookups.registry_access import read_registry_settings
from lictor.policies.compile_ledger import guard_programs
from lictor.webhook.guarded_lookups import GuardedLookups

_RESOLVE_SECONDS = 10.0
_LOOK_SECONDS = 0.25


class FileLookups(NoLookups):
    """Registries, without a cluster."""

    def __init__(self, flags: Flags | None = None) -> None:
        settings = read_registry_settings(flags or Flags())
        self._registries = RemoteRegistries(settings, remaining=count_seconds)
        self._resolver = HostResolver()

    def registries(self) -> Registries:
        return self._registries

    def resolve_host(self, host: str) -> tuple[str, ...]:
        return self._resolver.resolve(host, min(count_seconds(), _RESOLVE_SECONDS))

    def log_line(self, line: GuestLogLine) -> None:
        log_guest_line(line)

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return describe_image(self._registries, reference, access)


class FilePolicies:
    """The policies and exceptions of some files, read once."""

    def __init__(self, *paths: Path, lookups: Lookups | None = None) -> None:
        loaded = _load(paths)
        self.guard = GuardedLookups(
            lookups or FileLookups(), begin_request=lambda _, deadline: begin_request(deadline)
        )
        self.policies: tuple[StoredPolicy, ...] = tuple(
            StoredPolicy(find_resource(registry().of(each.record)), each.body, each.record)
            for each in _list_policies(loaded)
        )
        self._exceptions = tuple(each.record for each in loaded.with_role(Role.EXCEPTION))
        self.names: ResourceNames = builtin_names()
        self._programs: dict[int, tuple[Program, ...]] = {}
        self._failing: dict[int, tuple[Program, ...]] = {}
        self._listeners: list[Callable[[], None]] = []

    def programs(self, policy: StoredPolicy) -> tuple[Program, ...]:
        """The policy compiled with all exceptions."""
        identity = f"{policy.resource.kind}/{policy.key}"
        if policy.record is not None and EVALUATIONS.holds(identify(identity)):
            return self._fail(policy.record)
        made = self._programs.get(id(policy))
        if made is None:
            made = self._programs[id(policy)] = guard_programs(self._compile(policy), identity)
        return made

    can_lag = False

    def _fail(self, record: PolicyRecord) -> tuple[Program, ...]:
        """What answers for a policy that is quarantined."""
        if id(record) not in self._failing:
            error = CompileError(QUARANTINED)
            self._failing[id(record)] = fail_policy(record, error, resource_names=self.names)
        return self._failing[id(record)]

    @property
    def revision(self) -> int:
        """Files are read once: only a quarantine changes the programs."""
        return EVALUATIONS.count

    async def catch_up(self) -> bool:
        """Files are read once."""
        return False

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def run(self) -> None:
        """Heed what other processes have died of, until cancelled."""
        known = self.revision
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if known != self.revision:
                known = self.revision
                for listener in self._listeners:
                    listener()

    def _compile(self, policy: StoredPolicy) -> tuple[Program, ...]:
        record = policy.record
        if record is None:
            return ()
        return compile_documents((record, *self._exceptions), lookups=self.guard, is_lazy=True)


def _load(paths: Iterable[Path]) -> Loaded:
    files = (file for path in paths for file in list_files(str(path), is_object_file))
    with keeping_garbage():
        loaded = join_loaded(load_documents(read_bytes(file), file) for file in files)
    refuse_errors(loaded)
    if not _list_policies(loaded):
        raise LoadError("no policies there", where=", ".join(map(str, paths)))
    return loaded


def _list_policies(loaded: Loaded) -> list[Sourced[PolicyRecord]]:
    """Those that the API server does not evaluate itself."""
    return [each for each in loaded.listed if not registry().of(each.record).is_native]
