"""The modules that policies in Wasm run: fetched in the background, and what is wrong with them."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import msgspec

from lictor.addons.kubewarden.modules.module_fetching import (
    FetchedModules,
    ModuleKey,
    RequestedModules,
)
from lictor.addons.kubewarden.modules.server_modules import (
    ClusterModules,
    ServerBinding,
    bind_to_server,
)
from lictor.core.errors import CompileError, LictorError, NotYetError
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.model.program import Program
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import find_resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.family_services import (
    Attachment,
    CompileWith,
    FamilyServices,
    ServiceAccess,
)
from lictor.policies.routes import is_for_own_server


class _Fault(msgspec.Struct, frozen=True):
    """Why a policy answers every request with an error, and whether a retry may help."""

    reason: str
    may_pass: bool
    # Does the module run, and refuse its settings?
    is_in_settings: bool = False


class PolicyModules(FamilyServices):
    """Which module was fetched for which policy, and the PolicyServers that run policies."""

    def __init__(
        self, client: Client, flags: Flags, access: ServiceAccess, on_arrival: Callable[[], None]
    ) -> None:
        opened = ClusterModules(flags, access.namespace, access.get)
        self._fetched = FetchedModules(opened.open, _notify_from_threads(on_arrival))
        self._only_own = access.only_own
        servers = () if access.only_own else registry().with_role(Role.SERVER)
        self._servers = tuple(Cache(client, find_resource(kind)) for kind in servers)
        # By uid of a policy: the modules that it runs.
        self._asked: dict[str, set[ModuleKey]] = {}
        self._faults: dict[str, _Fault] = {}

    @property
    def caches(self) -> tuple[Cache, ...]:
        return self._servers

    def attach(self, policy: StoredPolicy) -> ServerBinding:
        """The server that runs the policy, if this process is concerned with servers."""
        if not (self._servers and policy.unique_name):
            return ServerBinding()
        return bind_to_server(policy, (each for cache in self._servers for each in cache.list()))

    def find_fault(self, uid: str) -> str:
        fault = self._faults.get(uid)
        return fault.reason if fault is not None else ""

    def has_invalid_settings(self, uid: str) -> bool:
        """Does the module of a policy reject its settings?"""
        fault = self._faults.get(uid)
        return fault is not None and fault.is_in_settings

    def compile(
        self, policy: StoredPolicy, attachment: Attachment, compile_with: CompileWith
    ) -> tuple[Program, ...]:
        """Compile a policy and open its modules, so that no request waits for them."""
        if self._only_own and not is_for_own_server(policy):
            return ()
        if attachment.fault:
            self._faults.pop(policy.uid, None)
            raise CompileError(attachment.fault)
        sources = attachment.sources if isinstance(attachment, ServerBinding) else None
        modules = RequestedModules(self._fetched, sources)
        programs = compile_with(modules)
        self._prepare(policy.uid, programs, modules)
        return programs

    def _prepare(self, uid: str, programs: tuple[Program, ...], modules: RequestedModules) -> None:
        has_run = False
        try:
            found = [program.prepare() for program in programs if program.prepare is not None]
            has_run = not modules.is_missing
        except NotYetError:
            raise
        except LictorError as error:
            found = [str(error)]
        finally:
            self._asked[uid] = modules.keys
        fault = next(filter(None, found), "")
        if fault:
            may_pass = modules.has_failed
            self._faults[uid] = _Fault(fault, may_pass=may_pass, is_in_settings=has_run)
        else:
            self._faults.pop(uid, None)

    def keep(self, live: set[str]) -> Mapping[str, float]:
        self._asked = {uid: keys for uid, keys in self._asked.items() if uid in live}
        self._faults = {uid: fault for uid, fault in self._faults.items() if uid in live}
        self._fetched.keep(set().union(*self._asked.values()))
        return {
            uid: self._fetched.find_pause(self._asked.get(uid, set()))
            for uid, fault in self._faults.items()
            if fault.may_pass
        }


def _notify_from_threads(listener: Callable[[], None]) -> Callable[[], None]:
    """The same, for callers on another thread than that of the event loop."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(listener)

    return call
