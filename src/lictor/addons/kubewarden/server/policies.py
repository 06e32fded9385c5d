"""Which policies does this process serve? Opened from `policies.yml`, and anew when it changes."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import msgspec

from lictor.addons.kubewarden.family.entries import (
    GroupEntry,
    LoadReport,
    MemberEntry,
    PolicyEntry,
    PolicyLoad,
    ServerEntry,
    describe_load,
    digest_entry,
)
from lictor.addons.kubewarden.family.policy import (
    OpenEntry,
    OpenGroup,
    OpenPolicy,
    fail_policy,
    open_group,
    open_policy,
)
from lictor.addons.kubewarden.server.policies_file import load_policies_file
from lictor.core.errors import LictorError, LoadError, LookupFailedError, ModuleError, NotYetError
from lictor.core.evaluations import EVALUATIONS, QUARANTINED, identify
from lictor.core.files import look_at
from lictor.core.lang.wasm_module import Modules, WasmModule
from lictor.core.lang.wasm_records import GuestLimits, HostCalls

log = logging.getLogger(__name__)

# From the name of a policy, its entry, and its namespace, which is empty where it has none.
MakeHost: TypeAlias = Callable[[str, MemberEntry, str], HostCalls]
NoteFailure: TypeAlias = Callable[[str, str], None]

_LOOK_SECONDS = 1.0
# After so long, missing modules are requested again, then ever more rarely.
_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 5.0, 300.0
_MOST_BYTES = 64 * 1024 * 1024
# So many modules are fetched and compiled at the same time, for policies of the cluster and for
# those of each of so many namespaces; where others can be served without them, so long.
_OPENERS, _OPENERS_OF_A_NAMESPACE, _MOST_LINES = 4, 1, 32
_PATIENCE_SECONDS = 30.0


class _OpeningLines:
    """Threads that open policies: those of a namespace do not wait for those of others."""

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def find(self, entry: ServerEntry) -> ThreadPoolExecutor:
        namespace = entry.namespaced_name.namespace
        if namespace and namespace not in self._pools and len(self._pools) > _MOST_LINES:
            # Those that come last share one, which is not that of the cluster.
            namespace = max(self._pools)
        if namespace not in self._pools:
            threads = _OPENERS_OF_A_NAMESPACE if namespace else _OPENERS
            self._pools[namespace] = ThreadPoolExecutor(threads, "opening")
        return self._pools[namespace]

    def leave(self) -> None:
        """Without waiting for what is on its way; what has not begun never does."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


class PolicyTable(msgspec.Struct, frozen=True):
    """What one state of `policies.yml` became."""

    # Of the text; empty before any was read.
    digest: str = ""
    # By id; members of groups by `group/member`, too.
    opened: Mapping[str, OpenEntry] = {}
    # Why policies cannot be evaluated, by id.
    failed: Mapping[str, str] = {}
    # Those of them that may be usable later: their modules could not be fetched.
    waiting: frozenset[str] = frozenset()
    # What each was opened from: not the last text where the module of that is on its way.
    entries: Mapping[str, ServerEntry] = {}
    # The reported state of each, by id.
    loads: Mapping[str, PolicyLoad] = {}


class PolicyOpener:
    """Opens entries with the modules, hosts and limits of one process."""

    def __init__(self, modules: Modules, make_host: MakeHost, limits: GuestLimits) -> None:
        self._modules = modules
        self._make_host = make_host
        self._limits = limits

    def open(self, name: str, entry: ServerEntry) -> tuple[OpenEntry, str, bool]:
        """A policy, why it cannot be evaluated, and whether that may change."""
        identity = _identify(name, digest_entry(entry))
        if EVALUATIONS.holds(identity):
            return self.fail(name, entry, ModuleError(QUARANTINED)), QUARANTINED, False
        try:
            with EVALUATIONS.evaluating(identity):
                opened = self._open(name, entry)
        except LictorError as error:
            is_late = isinstance(error, (LookupFailedError, NotYetError))
            return self.fail(name, entry, error), str(error) or type(error).__name__, is_late
        return opened, opened.settings_error, opened.is_late

    def _open(self, name: str, entry: ServerEntry) -> OpenEntry:
        modules, limits, namespace = self._modules, self._limits, entry.namespaced_name.namespace
        if namespace:
            modules = _WithoutFiles(modules)
        if isinstance(entry, GroupEntry):
            make_host = lambda member: self._make_host(name, member, namespace)  # noqa: E731
            return open_group(name, entry, modules, make_host, limits, namespace=namespace)
        host = self._make_host(name, entry, namespace)
        return open_policy(name, entry, modules, host, limits, namespace=namespace)

    def fail(self, name: str, entry: ServerEntry, error: LictorError) -> OpenPolicy:
        """A policy that refuses everything, for this reason."""
        if isinstance(entry, MemberEntry):
            return fail_policy(name, entry, error)
        return fail_policy(name, MemberEntry(module=""), error)


class _WithoutFiles:
    """Modules for policies of a namespace: their authors have no access to this machine."""

    def __init__(self, inner: Modules) -> None:
        self._inner = inner

    def load(self, address: str, namespace: str = "") -> WasmModule:
        if address.strip().lower().startswith("file:"):
            raise ModuleError(f"{address}: policies of a namespace may not name files")
        return self._inner.load(address, namespace)


class ServedPolicies:
    """The policies of one process, from the last valid `policies.yml`."""

    def __init__(
        self,
        file: Path,
        opener: PolicyOpener,
        *,
        continues_on_errors: bool,
        fallback: Path | None = None,
        note_failure: NoteFailure = lambda *_: None,
    ) -> None:
        """`fallback`: where the last text that was right is kept for processes that start later."""
        self.table = PolicyTable()
        self._file = file
        self._opener = opener
        self._continues = continues_on_errors
        self._fallback = fallback
        self._note_failure = note_failure
        self._entries: dict[str, ServerEntry] = {}
        self._seen: tuple[int, ...] = ()
        # Why the last text was not taken over.
        self._refused = ""

    @property
    def report(self) -> LoadReport:
        """How far each policy is."""
        return LoadReport(self.table.loads, self._refused)

    def identify(self, policy: str) -> bytes:
        """What a policy is quarantined by; a member of a group by the group."""
        name = policy.partition("/")[0]
        return _identify(name, self.table.loads[name].digest)

    def check(self) -> None:
        """What must be right before anything is served: LoadError where it is not."""
        if self._continues:
            # The rest would be done twice, and its faults do not prevent the start.
            load_policies_file(_read(self._file), str(self._file))
        else:
            self.load()

    def load(self) -> None:
        """Open everything for the first time; LoadError where that must not be served."""
        self._seen = look_at(str(self._file))
        try:
            self._take(_read(self._file))
        except LictorError as error:
            if self._fallback is None or not self._fallback.exists():
                raise
            self._refuse(error)
            self._take(_read(self._fallback))

    async def follow(self) -> None:
        """Take over what changes in the file, and what can be had at last; until cancelled."""
        pause = _RETRY_SECONDS
        retry_at = time.monotonic() + pause
        known = EVALUATIONS.count
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if known != EVALUATIONS.count:
                known = EVALUATIONS.count
                await asyncio.to_thread(self.open_again, self.table.failed)
            seen = look_at(str(self._file))
            if seen and seen != self._seen:
                self._seen = seen
                await asyncio.to_thread(self._reload)
                pause = _RETRY_SECONDS
            elif self.table.waiting and time.monotonic() > retry_at:
                await asyncio.to_thread(self.open_again, self.table.waiting)
                pause = min(pause * 2, _LONGEST_RETRY_SECONDS)
                retry_at = time.monotonic() + pause

    def _reload(self) -> None:
        try:
            text = _read(self._file)
            if _digest(text) != self.table.digest:
                self._take(text)
                log.info("policies loaded", extra={"policies": len(self._entries)})
            self._refused = ""
        except LictorError as error:
            self._refuse(error)

    def _refuse(self, error: LictorError) -> None:
        log.error("policies not taken, those from before are kept", extra={"why": str(error)})
        # The details may be of settings; they are in the log.
        self._refused = "the file of policies cannot be taken over as a whole: see the log"

    def _take(self, text: str) -> None:
        entries = load_policies_file(text, str(self._file))
        table = self._build(entries, _digest(text), self.table.failed)
        # A quarantined policy must not keep a new process from answering for the others.
        failed = {name: why for name, why in table.failed.items() if why != QUARANTINED}
        if failed and not self._continues:
            raise LoadError("\n".join(f"policy {name}: {why}" for name, why in failed.items()))
        self._entries, self.table = entries, table
        for name, why in table.failed.items():
            log.error("policy cannot be evaluated", extra={"policy": name, "why": why})
            self._note_failure(name, why)
        self._keep(text)

    def open_again(self, names: Container[str]) -> None:
        """Open these policies, and those that were quarantined; all others stay as they are."""
        before = self.table
        self.table = self._build(self._entries, before.digest, names)
        for name in before.waiting - self.table.failed.keys():
            log.info("policy can be evaluated now", extra={"policy": name})

    def _build(
        self, entries: dict[str, ServerEntry], digest: str, again: Container[str]
    ) -> PolicyTable:
        """The table of these entries; policies that have not changed stay, except `again`."""
        table = self.table
        kept = {
            name
            for name, entry in entries.items()
            if self._entries.get(name) == entry
            and name not in again
            and (name in table.failed or not EVALUATIONS.holds(self.identify(name)))
        }
        found = self._open({name: e for name, e in entries.items() if name not in kept})
        staying = {name for name, each in found.items() if each[2] and self._stays(name, entries)}
        as_before = kept | staying
        opened = {
            name: table.opened[name] if name in as_before else found[name][0] for name in entries
        }
        failed = {name: why for name, why in table.failed.items() if name in kept}
        failed |= {name: why for name, (_, why, _) in found.items() if why}
        waiting = table.waiting & kept
        waiting |= {name for name, (_, _, is_late) in found.items() if is_late}
        served = {
            name: table.entries[name] if name in as_before else entry
            for name, entry in entries.items()
        }
        loads = {
            name: describe_load(entry, failed.get(name, ""), is_late=name in waiting)
            for name, entry in served.items()
        }
        return PolicyTable(digest, _with_members(opened), failed, waiting, served, loads)

    def _stays(self, name: str, entries: Mapping[str, ServerEntry]) -> bool:
        """Can a policy from before answer until its module has come? Not with other rights."""
        before, opened = self.table.entries.get(name), self.table.opened.get(name)
        if before is None or opened is None or opened.settings_error:
            return False
        return _list_rights(before) == _list_rights(entries[name])

    def _open(self, entries: Mapping[str, ServerEntry]) -> dict[str, tuple[OpenEntry, str, bool]]:
        """Several at a time: a registry that keeps silent must not hold up policies of others."""
        lines = _OpeningLines()
        asked = {
            name: lines.find(entry).submit(self._opener.open, name, entry)
            for name, entry in entries.items()
        }
        done, _ = wait(asked.values(), _PATIENCE_SECONDS if self._continues else None)
        # Running downloads continue: the folder of modules has them for the next request.
        lines.leave()
        late = LookupFailedError("its module has not come yet")
        return {
            name: future.result()
            if future in done
            else (self._opener.fail(name, entries[name], late), str(late), True)
            for name, future in asked.items()
        }

    def _keep(self, text: str) -> None:
        if self._fallback is None:
            return
        draft = self._fallback.with_name(f"{self._fallback.name}.{os.getpid()}")
        try:
            draft.write_text(text)
            draft.replace(self._fallback)
        except OSError as error:
            log.warning("policies not kept for a restart", extra={"why": str(error)})


def _identify(name: str, digest: str) -> bytes:
    return identify(f"{name}:{digest}")


def _list_rights(entry: ServerEntry) -> tuple[object, ...]:
    """The host calls that a policy may make, and whether it decides."""
    members = entry.policies if isinstance(entry, GroupEntry) else {"": entry}
    asked = {
        name: (each.host_capabilities, each.context_aware_resources)
        for name, each in members.items()
    }
    may_change = isinstance(entry, PolicyEntry) and entry.allowed_to_mutate
    return entry.namespaced_name, entry.policy_mode, may_change, asked


def _with_members(opened: Mapping[str, OpenEntry]) -> dict[str, OpenEntry]:
    found = dict(opened)
    for name, entry in opened.items():
        if isinstance(entry, OpenGroup):
            found |= {f"{name}/{member}": each for member, each in entry.members.items()}
    return found


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise LoadError(f"more than {_MOST_BYTES} bytes", where=str(file))
        return data.decode()
    except OSError as error:
        raise LoadError(f"{error.strerror or error}", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise LoadError("not UTF-8 text", where=str(file)) from error


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
