"""Compiles policies in the background: tried in another process first, then on a thread."""

import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec.structs import replace

from lictor.core.assembly import compile_documents, fail_policy
from lictor.core.errors import CompileError, NotYetError
from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache
from lictor.core.evaluations import EVALUATIONS, QUARANTINED, identify
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.family import Family
from lictor.core.lang.template import Fill
from lictor.core.lang.wasm_module import Modules, NoModules
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Program
from lictor.core.ports import HttpLimits, Lookups
from lictor.kubernetes.compile_turns import FairShares
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.compile_ledger import (
    FIRST_PAUSE,
    INTERNAL_ERROR,
    LEDGER,
    LONGEST_PAUSE,
    guard_programs,
)
from lictor.policies.family_services import Attachment, FamilyServices
from lictor.policies.trials import Job, TrialResult, Trials

log = logging.getLogger(__name__)

_BATCH = 16
# For another process that compiles a policy over which one has died already.
_TURN_SECONDS = 10.0
_LOOK_SECONDS = 0.1
# While a policy is compiled, requests must not wait long for the interpreter.
_SWITCH_SECONDS = 0.001


def _name(uid: str, mark: str) -> str:
    """A policy by its uid and mark, without what only this process counts: see `PolicyStore`."""
    return f"{uid}:{mark.rpartition(';')[0] or mark}"


class CompileTask(msgspec.Struct, frozen=True):
    """One policy to prepare."""

    uid: str
    # What changes when the policy does, or an exception from it.
    mark: str
    job: Job
    compile: Callable[[], tuple[Program, ...]]
    # What stands in for it where it must not be compiled.
    fail: Callable[[CompileError], tuple[Program, ...]]

    @property
    def identity(self) -> str:
        """The name of the policy in memory that processes share."""
        return _name(self.uid, self.mark)


class PolicyVersion(msgspec.Struct, frozen=True):
    """A policy with everything that its programs depend on."""

    policy: StoredPolicy
    exceptions: tuple[PolicyRecord, ...]
    names: ResourceNames
    attachment: Attachment = Attachment()


class ProgramBuilder(msgspec.Struct, frozen=True):
    """Compiles policies with what all policies of a process share."""

    lookups: Lookups | None
    http_limits: HttpLimits
    # It outlives the programs: a policy that is compiled again need not call registries again.
    image_outcomes: OutcomeCache
    services: Mapping[Family, FamilyServices]
    # Compiled queries by their text, also for all policies.
    queries: dict[str, Fill] = {}

    def build(self, version: PolicyVersion) -> tuple[Program, ...]:
        """The programs; none for a policy that cannot be read."""
        policy, record = version.policy, version.policy.record
        if record is None:
            # The CRD and the policy webhook reject such policies; if one was stored all the same,
            # its status gives the reason. It must not delay other policies.
            return ()

        def compile_with(modules: Modules) -> tuple[Program, ...]:
            return compile_documents(
                (record, *version.exceptions, *version.attachment.records),
                lookups=self.lookups,
                resource_names=version.names,
                http_limits=self.http_limits,
                image_outcomes=self.image_outcomes,
                modules=modules,
                queries=self.queries,
                is_lazy=True,
            )

        services = self.services.get(policy.kind.family)
        if services is None:
            return compile_with(NoModules())
        return services.compile(policy, version.attachment, compile_with)


def fail_version(version: PolicyVersion, error: CompileError) -> tuple[Program, ...]:
    """Programs that return an error, for a policy that must not be compiled."""
    record = version.policy.record
    return () if record is None else fail_policy(record, error, resource_names=version.names)


class CompiledPolicy(msgspec.Struct, frozen=True):
    """The programs of a policy; the reason where they only answer with an error."""

    mark: str
    programs: tuple[Program, ...]
    reason: str = ""
    # When it is worth another try, by the clock that never goes back.
    retry_at: float = float("inf")
    # Something that it needs is on its way: what answers until then is what was made before.
    is_waiting: bool = False


class PolicyCompiler:
    """Prepares policies one after the other, and keeps what it made, by their uids."""

    def __init__(self, trials: Trials | None) -> None:
        """Without `trials`, policies are compiled untried, as in tests and short commands."""
        self._trials = trials
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self.compiled: dict[str, CompiledPolicy] = {}
        self._shares = FairShares()
        # How often something came that policies may wait for.
        self._news = 0

    def is_current(self, uid: str, mark: str) -> bool:
        """Is this policy prepared as it is, or must it wait for another try?"""
        made = self.compiled.get(uid)
        if made is None or made.mark != mark or time.monotonic() >= made.retry_at:
            return False
        return made.reason == QUARANTINED or not EVALUATIONS.holds(identify(_name(uid, mark)))

    def find_pause(self) -> float | None:
        """Seconds until a policy that was not compiled is to be tried again; None: no policy is."""
        first = min((made.retry_at for made in self.compiled.values()), default=float("inf"))
        return None if first == float("inf") else max(first - time.monotonic(), 0.0)

    async def prepare(self, tasks: Sequence[CompileTask], until: float = float("inf")) -> bool:
        """Make the programs of policies. What was made before stays until there is something.

        False where the time (by the clock that never goes back) was over before all were made.
        """
        ordered = self._order_fairly(tasks)
        # Where others wait for what has changed, and each may take seconds to try: one by one.
        size = _BATCH if until == float("inf") else 1
        for start in range(0, len(ordered), size):
            if start and time.monotonic() > until:
                return False
            batch, began = ordered[start : start + size], time.monotonic()
            results = await self._try(batch)
            for task, result in zip(batch, results, strict=True):
                self.compiled[task.uid] = await self._prepare_one(task, result)
            for namespace in {task.job.namespace for task in batch}:
                self._shares.add(namespace, time.monotonic() - began)
        return True

    async def _try(self, tasks: Sequence[CompileTask]) -> list[TrialResult]:
        if self._trials is None:
            return [TrialResult() for _ in tasks]
        return await self._trials.try_policies([task.job for task in tasks])

    def _order_fairly(self, tasks: Sequence[CompileTask]) -> list[CompileTask]:
        """Those of the whole cluster, then one of each namespace, then another: who has many waits
        for others. Those over which a process has died come last.
        """
        namespaces = [task.job.namespace for task in tasks]
        if namespaces:
            self._shares.choose(namespaces)
        seen: Counter[str] = Counter()
        ranks: list[tuple[bool, int, float]] = []
        for task, namespace in zip(tasks, namespaces, strict=True):
            seen[namespace] += 1
            rank = seen[namespace] if namespace else 0
            # Who took long in the last round comes later in this one.
            taken = self._shares.find(namespace)
            ranks.append((LEDGER.has_deaths(task.identity), rank, taken))
        return [tasks[number] for number in sorted(range(len(tasks)), key=ranks.__getitem__)]

    def keep(self, uids: set[str]) -> None:
        """Forget all others."""
        for gone in self.compiled.keys() - uids:
            del self.compiled[gone]

    async def _prepare_one(self, task: CompileTask, result: TrialResult) -> CompiledPolicy:
        if EVALUATIONS.holds(identify(task.identity)):
            return _refuse(task, QUARANTINED, float("inf"))
        reason, pause = result.reason, LONGEST_PAUSE
        if not reason:
            await _wait_for_turn(task.identity)
            # What was light in its trial does not kill a process: one death may have
            # another cause. An attacker who knows that gets two.
            reason, pause = LEDGER.find_reason(task.identity, forgives_one=result.is_light)
        if reason:
            return _refuse(task, reason, pause)
        return await self._compile(task, pause)

    async def _compile(self, task: CompileTask, pause: float) -> CompiledPolicy:
        usual, heard = sys.getswitchinterval(), self._news
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            with LEDGER.compiling(task.identity):
                loop = asyncio.get_running_loop()
                programs = await loop.run_in_executor(self._thread, task.compile)
        except NotYetError as error:
            return self._wait_for(task, error, heard)
        except CompileError as error:
            return _refuse(task, str(error), LONGEST_PAUSE)
        except Exception as error:
            # A bug in the compiler must not end the process again and again.
            log.exception("policy broke the compiler", extra={"uid": task.uid})
            return _refuse(task, INTERNAL_ERROR.format(type(error).__name__), pause)
        finally:
            sys.setswitchinterval(usual)
        return CompiledPolicy(task.mark, guard_programs(programs, task.identity))

    def _wait_for(self, task: CompileTask, error: NotYetError, heard: int) -> CompiledPolicy:
        """`heard`: the news before it was compiled; what came meanwhile is worth another try."""
        before = self.compiled.get(task.uid)
        programs = before.programs if before is not None else ()
        again = time.monotonic() + error.patience if heard == self._news else 0.0
        return CompiledPolicy(task.mark, programs, str(error), again, is_waiting=True)

    def retry_after(self, uid: str, seconds: float) -> None:
        """Compile a policy again, though it stays the same: what it lacks may be there by then."""
        if uid in self.compiled and not self.compiled[uid].is_waiting:
            again = time.monotonic() + seconds
            self.compiled[uid] = replace(self.compiled[uid], retry_at=again)

    def stop_waiting(self) -> None:
        """What policies wait for may have come: they are worth another try now."""
        self._news += 1
        for uid, made in self.compiled.items():
            if made.is_waiting:
                self.compiled[uid] = replace(made, retry_at=0.0)


async def _wait_for_turn(identity: str) -> None:
    """A policy over which one process has died is compiled by one at a time: not all die of it."""
    deadline = time.monotonic() + _TURN_SECONDS
    while LEDGER.has_deaths(identity) and LEDGER.is_compiling(identity):
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(_LOOK_SECONDS)


def _refuse(task: CompileTask, reason: str, pause: float) -> CompiledPolicy:
    log.error("policy not compiled", extra={"uid": task.uid, "why": reason})
    failing = task.fail(CompileError(reason))
    return CompiledPolicy(task.mark, failing, reason, time.monotonic() + max(pause, FIRST_PAUSE))
