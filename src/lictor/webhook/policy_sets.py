"""Which rules answer the requests of a webhook path: some before the answer, the others after it.

All of this follows from the policies alone and is worked out once, until they change.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from lictor.core.engine import Engine
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.garbage import keeping_garbage
from lictor.core.model.program import CompiledRule, Needs, Phase, Program
from lictor.core.model.result import Action, PolicyRef
from lictor.core.report.admission_response import AnswerOptions, AnswerStyle
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.routes import find_policies, list_routes
from lictor.webhook.counters import Counters, RuleMetric, instrument_rules, note_times
from lictor.webhook.tracing import trace_rules
from lictor.webhook.webhook_routes import WebhookRoute, read_path

# The API server's paths are few; a forger's are many.
_MAX_POLICY_SETS = 512
# Building takes no more of a processor, while policies keep changing; nor does it rest for more
# seconds than these.
_BUILDING_SHARE = 0.2
_LONGEST_REST = 4.0
# So long after the last change of a policy its closures are set aside; and after so many seconds
# where changes do not end.
_QUIET = 2.0
_LONGEST_UNREST = 10.0
# CPU seconds. What the previous sets had compiled is compiled before new ones are in force;
# if that takes longer, the rest is compiled on demand: requests wait for what has changed.
_PREPARING = 2.0
# For how long a request waits for sets with new exceptions, and how often it looks.
_RENEWAL_SECONDS, _RENEWAL_PAUSE = 1.0, 0.02


class PolicyProvider(Protocol):
    """Where policies come from: a cluster, or files."""

    @property
    def policies(self) -> tuple[StoredPolicy, ...]: ...

    @property
    def names(self) -> ResourceNames: ...

    @property
    def revision(self) -> int:
        """Changes with the programs; not if only statuses changed."""
        ...

    def programs(self, policy: StoredPolicy) -> tuple[Program, ...]: ...

    def listen(self, listener: Callable[[], None]) -> None: ...

    @property
    def can_lag(self) -> bool: ...

    async def catch_up(self) -> bool:
        """Wait for exceptions that are not known here yet; were there any?"""
        ...


class PolicySet(msgspec.Struct, frozen=True):
    """The compiled policies that one webhook path serves."""

    route: WebhookRoute
    answer_options: AnswerOptions
    # Rules that can change the answer.
    blocking: Engine
    # Rules that only audit.
    audit: Engine
    # Rules that change or make other objects, because this one is stored.
    triggered: Engine
    needs_roles: bool
    # Is a request refused that cannot be evaluated at all?
    fails_closed: bool
    # Is the policy of this path missing, or not ready to be evaluated?
    is_missing: bool = False

    # Do rules remain to be evaluated after the answer?
    has_follow_up: bool = True
    # The same for requests of the background controller, which most policies skip.
    for_own_changes: "PolicySet | None" = None

    @property
    def own_changes(self) -> "PolicySet":
        """What evaluates requests of the background controller."""
        return self.for_own_changes or self

    @property
    def has_policies(self) -> bool:
        engines = (self.blocking, self.audit, self.triggered)
        return any(engine.programs for engine in engines)


class PolicySets:
    """The policy sets by path. After a change, those of before answer until the new ones are there.

    Without `keep_warm`, they are built when a request needs them.
    """

    def __init__(self, store: PolicyProvider, counters: Counters, flags: Flags) -> None:
        self._store = store
        self._counters = counters
        self._flags = flags
        self.by_path: dict[str, PolicySet] = {}
        # By path and policy: what was made of programs that are still the same.
        self._shares: dict[str, dict[tuple[str, str], _PolicyRules]] = {}
        self._changed = asyncio.Event()
        self._revision = store.revision
        # Can there be exceptions that the policy sets do not have yet?
        self.can_lag = store.can_lag
        self._is_kept_warm = False
        # Has every policy been compiled once?
        self.is_warm = False
        store.listen(self._note_change)

    async def keep_warm(self) -> None:
        """Build policy sets before requests need them; until cancelled."""
        self._is_kept_warm = True
        since = time.monotonic()
        while True:
            self._changed.clear()
            effort = await self._build_all()
            self.is_warm = True
            rests_until = time.monotonic() + min(effort / _BUILDING_SHARE, _LONGEST_REST)
            try:
                async with asyncio.timeout(_QUIET):
                    await self._changed.wait()
            except TimeoutError:
                self._set_aside()
                await self._changed.wait()
                since = time.monotonic()
            if time.monotonic() - since > _LONGEST_UNREST:
                self._set_aside()
                since = time.monotonic()
            # Where hundreds of policies come one after the other, others must have their turn.
            await asyncio.sleep(max(rests_until - time.monotonic(), 0.0))

    def _set_aside(self) -> None:
        """Keep the collector from walking through all compiled policies while requests wait."""
        # Policies that are replaced later are never collected; a process that grew is replaced.
        gc.freeze()

    async def _build_all(self) -> float:
        """Build the sets of all paths anew beside other work; the CPU seconds that it took."""
        # A forger's paths stand for no policies: nothing is built for them before a request.
        asked = [path for path, known in self.by_path.items() if known.has_policies]
        made, effort = await asyncio.to_thread(self._build_paths, asked, self.by_path)
        self.by_path = made
        return effort

    def _build_paths(
        self, asked: Iterable[str], before: Mapping[str, PolicySet]
    ) -> tuple[dict[str, PolicySet], float]:
        """The sets of the paths that were requested, and of those that policies are served on."""
        began = time.thread_time()
        with keeping_garbage():
            made = self._build_each(asked, before)
        return made, time.thread_time() - began

    def _build_each(
        self, asked: Iterable[str], before: Mapping[str, PolicySet]
    ) -> dict[str, PolicySet]:
        policies = self._store.policies
        until = time.thread_time() + _PREPARING
        served = [route.path for route in list_routes(policies, self._flags)]
        made: dict[str, PolicySet] = {}
        for path in dict.fromkeys((*served, *asked)):
            route = read_path(path)
            if isinstance(route, WebhookRoute) and len(made) < _MAX_POLICY_SETS:
                made[path] = self._build(route, policies)
                if path in before:
                    _prepare_like(made[path], before[path], until)
        return made

    def _note_change(self) -> None:
        if self._revision == self._store.revision:
            return
        self._revision = self._store.revision
        if not self._is_kept_warm:
            self.by_path.clear()
        self._changed.set()

    def open(self, route: WebhookRoute) -> PolicySet:
        """The policy set of a path."""
        policy_set = self.by_path.get(route.path)
        if policy_set is None:
            if len(self.by_path) >= _MAX_POLICY_SETS:
                self.by_path.clear()
            policy_set = self.by_path[route.path] = self._build(route, self._store.policies)
        return policy_set

    async def renew(self, policy_set: PolicySet, deadline: float) -> PolicySet | None:
        """The policy set with exceptions that were created just now; None where there are none."""
        if not await self._store.catch_up():
            return None
        until = min(deadline, time.monotonic() + _RENEWAL_SECONDS)
        while time.monotonic() < until:
            current = self.open(policy_set.route)
            if current is not policy_set:
                return current
            await asyncio.sleep(_RENEWAL_PAUSE)
        return None

    def _build(self, route: WebhookRoute, policies: Sequence[StoredPolicy]) -> PolicySet:
        found = find_policies(route.path, policies, fine_grained=self._flags.auto_update_webhooks)
        shares = self._find_shares(route, found)
        parts = [part for share in shares for part in share.parts]
        any_operation = frozenset(each for share in shares for each in share.any_operation)
        answer_options = _build_answer_options(
            route, found, [part.blocking for part in parts], any_operation
        )
        made = PolicySet(
            route,
            answer_options,
            **_build_engines(parts),
            needs_roles=any(share.needs_roles for share in shares),
            fails_closed=_is_closed(route, found),
            is_missing=route.per_policy and not all(share.programs for share in shares or [_NONE]),
        )
        chained = [part for part in parts if not part.blocking.skips_background_requests]
        return replace(made, for_own_changes=replace(made, **_build_engines(chained)))

    def _find_shares(
        self, route: WebhookRoute, policies: Iterable[StoredPolicy]
    ) -> list["_PolicyRules"]:
        """What each policy adds, made anew only where it has changed."""
        if len(self._shares) > _MAX_POLICY_SETS:
            self._shares.clear()
        before = self._shares.get(route.path, {})
        now: dict[tuple[str, str], _PolicyRules] = {}
        for policy in policies:
            key = (policy.resource.kind, policy.key)
            known, programs = before.get(key), self._store.programs(policy)
            is_same = known is not None and known.programs is programs
            now[key] = known if known and is_same else self._make_share(route, policy, programs)
        self._shares[route.path] = now
        return list(now.values())

    def _make_share(
        self, route: WebhookRoute, policy: StoredPolicy, programs: tuple[Program, ...]
    ) -> "_PolicyRules":
        metric = RuleMetric(self._counters, policy)
        parts: list[_SplitRules] = []
        for program in programs:
            asked = program if route.fine_grained else _limit(program, policy)
            split = _split(asked, route)
            parts.append(_SplitRules(*(self._instrument(each, metric) for each in split.each)))
        return _PolicyRules(
            programs,
            tuple(parts),
            needs_roles=any(map(_needs_roles, parts)),
            any_operation=tuple(
                (part.blocking.policy.key, rule.name)
                for part in parts
                for rule in part.blocking.rules
                if rule.any_operation
            ),
        )

    def _instrument(self, program: Program, metric: RuleMetric) -> Program:
        timed = instrument_rules(program, metric)
        return trace_rules(timed) if self._flags.enable_tracing else timed


def _prepare_like(new: PolicySet, before: PolicySet, until: float) -> None:
    """Compile what was used before, as far as there is time."""
    is_over = lambda: time.thread_time() > until  # noqa: E731
    new.blocking.prepare_like(before.blocking, is_over)
    new.audit.prepare_like(before.audit, is_over)
    new.triggered.prepare_like(before.triggered, is_over)


class _SplitRules(msgspec.Struct, frozen=True):
    blocking: Program
    audit: Program
    triggered: Program

    @property
    def each(self) -> tuple[Program, Program, Program]:
        return self.blocking, self.audit, self.triggered


class _PolicyRules(msgspec.Struct, frozen=True):
    """What one policy adds to a policy set."""

    programs: tuple[Program, ...]
    parts: tuple[_SplitRules, ...]
    needs_roles: bool = False
    # Rules that can change the answer and name no operations, with the key of their policy.
    any_operation: tuple[tuple[str, str], ...] = ()


_NONE = _PolicyRules((), ())


def _limit(program: Program, policy: StoredPolicy) -> Program:
    """The program as it is evaluated on a path that many policies share."""
    if policy.record is None:
        return program
    return policy.kind.family.limit_program(program, policy.record)


def _needs_roles(part: _SplitRules) -> bool:
    return any(rule.needs & Needs.ROLES for program in part.each for rule in program.rules)


def _split(program: Program, route: WebhookRoute) -> _SplitRules:
    now: list[CompiledRule] = []
    later: list[CompiledRule] = []
    triggered: list[CompiledRule] = []
    for rule in program.rules:
        if rule.phase is Phase.GENERATE or _changes_existing(rule):
            if not route.mutating or route.style is AnswerStyle.CEL_MUTATING:
                # What it makes or changes is the background's affair.
                triggered.append(replace(rule, check=rule.applies or rule.check))
        elif _is_asked(rule, route):
            (now if _changes_answer(rule, program, route) else later).append(rule)
    if program.first_only and now:
        # The first rule that answers keeps the others quiet: they must be evaluated together.
        now, later = [rule for rule in program.rules if rule in now or rule in later], []
    return _SplitRules(*(replace(program, rules=tuple(each)) for each in (now, later, triggered)))


def _is_asked(rule: CompiledRule, route: WebhookRoute) -> bool:
    if route.per_policy:
        return True
    if route.style is AnswerStyle.CEL_VALIDATING:
        # Digests are written first; signatures are verified when the object is final.
        return route.mutating == (rule.phase is Phase.MUTATE)
    if route.mutating:
        return rule.phase in (Phase.MUTATE, Phase.VERIFY_IMAGES)
    return rule.phase is Phase.VALIDATE


def _changes_answer(rule: CompiledRule, program: Program, route: WebhookRoute) -> bool:
    return (
        route.mutating
        or route.is_audit
        or rule.action is Action.ENFORCE
        or rule.override is not None
        or program.emit_warning
    )


def _changes_existing(rule: CompiledRule) -> bool:
    """Does a rule change other objects than the one in the request?"""
    return rule.phase is Phase.MUTATE and rule.applies is not None


def _build_engines(parts: Sequence[_SplitRules]) -> dict[str, Any]:
    """The fields of a policy set that come from the rules of its policies."""
    audit = _build_engine(part.audit for part in parts)
    triggered = _build_engine(part.triggered for part in parts)
    return {
        "blocking": _build_engine(part.blocking for part in parts),
        "audit": audit,
        "triggered": triggered,
        "has_follow_up": bool(audit.programs or triggered.programs),
    }


def _build_engine(programs: Iterable[Program]) -> Engine:
    return Engine((program for program in programs if program.rules), note_times=note_times)


def _is_closed(route: WebhookRoute, policies: Iterable[StoredPolicy]) -> bool:
    if route.fails_closed is not None:
        return route.fails_closed
    return any(policy.failure_policy != "Ignore" for policy in policies)


def _build_answer_options(
    route: WebhookRoute,
    policies: Iterable[StoredPolicy],
    programs: Sequence[Program],
    any_operation: frozenset[tuple[str, str]],
) -> AnswerOptions:
    warning = frozenset(program.policy.key for program in programs if program.emit_warning)
    if route.fails_closed is not None:
        closed = route.fails_closed
        return AnswerOptions(route.style, lambda _: closed, warning, any_operation)
    failing = frozenset(each.key for each in policies if each.failure_policy != "Ignore")

    def fails_closed(policy: PolicyRef) -> bool:
        return policy.key in failing

    return AnswerOptions(route.style, fails_closed, warning, any_operation)
