"""The policies for existing objects, and those for one kind of object."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias
from zlib import crc32

import msgspec
import orjson
from msgspec.structs import replace

from lictor.controllers.existing_objects import concerns, evaluate_now
from lictor.controllers.native_policies.objects import mutating_binding, mutating_policy
from lictor.controllers.scan.progress import hash_text
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.load.policies import load_documents
from lictor.core.model.program import CompiledRule, Phase, Program
from lictor.core.model.request import GroupVersionKind, Request
from lictor.core.model.result import Result, RuleType, Status
from lictor.core.ports import Lookups
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import (
    VALIDATING_ADMISSION_BINDING,
    VALIDATING_ADMISSION_POLICY,
    Resource,
)
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.store import PolicyStore

Marked: TypeAlias = list[tuple[Program, str]]
Kinds: TypeAlias = tuple[Resource, ...]

# Only policies that carry this label are reported about.
_ENABLED = "reports.kyverno.io/enabled=true"
_MUTATING_VERSIONS = ("v1", "v1beta1", "v1alpha1")


class NativePrograms:
    """Watches ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings."""

    def __init__(
        self,
        client: Client,
        flags: Flags,
        lookups: Lookups | None,
        names: Callable[[], ResourceNames],
    ) -> None:
        self._lookups = lookups
        self._names = names
        self._validating = _watch(
            client,
            flags.validating_admission_policy_reports,
            VALIDATING_ADMISSION_POLICY,
            VALIDATING_ADMISSION_BINDING,
        )
        self._mutating = [
            _watch(
                client,
                flags.mutating_admission_policy_reports,
                mutating_policy(version),
                mutating_binding(version),
            )
            for version in _MUTATING_VERSIONS
        ]

    @property
    def caches(self) -> tuple[Cache, ...]:
        return tuple(cache for pair in (self._validating, *self._mutating) for cache in pair)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run())

    async def wait(self) -> None:
        for cache in self.caches:
            await cache.wait()

    def listen(self, listener: Callable[[], None]) -> None:
        for cache in self.caches:
            cache.listen(lambda _: listener())

    def programs(self) -> tuple[Marked, Marked]:
        """The validating ones, and the mutating ones."""
        mutating = next((pair for pair in self._mutating if pair and len(pair[0])), ())
        return self._compile(self._validating), self._compile(mutating)

    def _compile(self, pair: tuple[Cache, ...]) -> Marked:
        if not pair or not len(pair[0]):
            return []
        policies, bindings = (cache.list() for cache in pair)
        made: Marked = []
        for policy in policies:
            name = policy["metadata"]["name"]
            own = [b for b in bindings if (b.get("spec") or {}).get("policyName") == name]
            mark = ",".join(_mark(each) for each in (policy, *own))
            made += [(program, mark) for program in self._compile_one(policy, own)]
        return made

    def _compile_one(
        self, policy: JsonObject, bindings: Iterable[JsonObject]
    ) -> tuple[Program, ...]:
        loaded = load_documents(orjson.dumps(policy), policy["metadata"]["name"])
        for binding in bindings:
            loaded += load_documents(orjson.dumps(binding), binding["metadata"]["name"])
        return compile_documents(
            loaded.records, lookups=self._lookups, resource_names=self._names()
        )


def _watch(client: Client, wanted: bool, policy: Resource, binding: Resource) -> tuple[Cache, ...]:  # noqa: FBT001
    if not wanted:
        return ()
    return Cache(client, policy, labels=_ENABLED), Cache(client, binding)


def _mark(item: JsonObject) -> str:
    return f"{item['metadata'].get('uid')}:{item['metadata'].get('generation')}"


# A policy that carries this label makes no reports.
_DISABLED = "reports.kyverno.io/disabled"
_JUDGING = (Phase.VALIDATE, Phase.VERIFY_IMAGES)


class KindPlan(msgspec.Struct, frozen=True, dict=True):
    """The policies for one kind; `key` changes when any of them does."""

    engine: Engine
    # Mutating policies: existing objects should look as if they had been applied.
    mutating: tuple[Engine, ...]
    key: int
    # Its parts: first the validating ones, then the mutating ones.
    candidates: tuple[tuple["ScanCandidate", ...], tuple["ScanCandidate", ...]] = ((), ())

    @cached_property
    def marks(self) -> Mapping[str, str]:
        """Policy -> text that changes when it does."""
        return {each.program.policy.key: each.mark for some in self.candidates for each in some}

    def evaluate(self, request: Request) -> list[Result]:
        """The results of all policies for an existing object."""
        # Mutating policies validate existing objects here.
        results = list(evaluate_now(self.engine, replace(request, background=True)).results)
        for engine in self.mutating:
            results += _evaluate_mutation(engine, request)
        return results


class ScanCandidate(msgspec.Struct, frozen=True, eq=False):
    """A background program, a text that changes when it does, and the kinds it matches."""

    program: Program
    mark: str
    # The last queried kinds, and those of them that the program matches.
    _known: dict[str, Kinds] = msgspec.field(default_factory=dict)

    def choose(self, kinds: Kinds) -> Kinds:
        """The kinds that any rule may match, cached for the same kinds."""
        if self._known.get("asked") != kinds:
            found = (each for each in kinds if concerns(self.program, _find_kind(each)))
            self._known.update(asked=kinds, chosen=tuple(found))
        return self._known["chosen"]


class ScanPlan(msgspec.Struct, frozen=True, dict=True):
    """The compiled background policies. Built again when any of them changes."""

    judging: tuple[ScanCandidate, ...]
    mutating: tuple[ScanCandidate, ...]
    # Source, policy and rule of all policies, whether they apply in the background or not.
    alive: frozenset[tuple[str, str, str]]

    @cached_property
    def scanned(self) -> frozenset[tuple[str, str, str]]:
        """Source, policy and rule of every entry that a scan makes."""
        return frozenset(
            key for each in (*self.judging, *self.mutating) for key in _keys(each.program)
        )

    def for_kinds(self, kinds: Kinds) -> dict[Resource, KindPlan]:
        """The programs for each of the kinds; kinds without any are omitted."""
        judging = _sort(self.judging, kinds)
        mutating = _sort(self.mutating, kinds)
        return {
            kind: _plan_kind(judging.get(kind, ()), mutating.get(kind, ()))
            for kind in kinds
            if kind in judging or kind in mutating
        }

    def is_scanned(self, entry: JsonObject) -> bool:
        key = entry.get("source", ""), entry.get("policy", ""), entry.get("rule", "")
        return key in self.scanned

    def is_alive(self, entry: JsonObject) -> bool:
        key = entry.get("source", ""), entry.get("policy", ""), entry.get("rule", "")
        return key in self.alive


class _Known(msgspec.Struct, frozen=True):
    """What one policy contributes to the plan."""

    programs: tuple[Program, ...]
    mark: str
    is_asked: bool
    candidates: tuple[ScanCandidate, ...]
    alive: tuple[tuple[str, str, str], ...]


class ScanPlanner:
    """Builds plans; policies that have not changed are reused."""

    def __init__(self, store: PolicyStore) -> None:
        self._store = store
        self._known: dict[tuple[Resource, str], _Known] = {}

    def build(
        self,
        natives: Iterable[tuple[Program, str]] = (),
        native_mutations: Iterable[tuple[Program, str]] = (),
    ) -> ScanPlan:
        """The plan of the current policies; `natives` are Kubernetes' admission policies."""
        judging = [ScanCandidate(*each) for each in natives]
        mutating = [ScanCandidate(*each) for each in native_mutations]
        alive = {key for each in (*judging, *mutating) for key in _keys(each.program)}
        before, self._known = self._known, {}
        for policy in self._store.policies:
            if _DISABLED in (policy.document["metadata"].get("labels") or {}):
                continue
            key = (policy.resource, policy.uid)
            known = self._known[key] = self._check(policy, before.get(key))
            alive.update(known.alive)
            (mutating if _is_changing(policy) else judging).extend(known.candidates)
        return ScanPlan(tuple(judging), tuple(mutating), frozenset(alive))

    def _check(self, policy: StoredPolicy, known: _Known | None) -> _Known:
        programs, mark = self._store.programs(policy), self._store.mark(policy)
        # A policy that becomes usable has other results without being changed. While it waits for
        # a module, the programs of before are evaluated, which must not count as its results.
        fault = self._store.find_fault(policy) or self._store.find_reason(policy)
        mark += f"!{crc32(fault.encode()):x}" if fault else ""
        is_asked = (
            policy.background
            and not policy.is_native
            and not _is_everywhere(policy)
            and not _changes_others(policy)
        )
        if (
            known is not None
            and known.programs is programs
            and (known.mark, known.is_asked) == (mark, is_asked)
        ):
            return known
        phases = (Phase.MUTATE,) if _is_changing(policy) else _JUDGING
        chosen = [
            replace(program, rules=rules)
            for program in (programs if is_asked else ())
            if (rules := tuple(_choose_rules(program, phases)))
        ]
        marked = f"{policy.uid}:{mark}"
        return _Known(
            programs,
            mark,
            is_asked,
            tuple(ScanCandidate(program, marked) for program in chosen),
            tuple(key for program in programs for key in _keys(program)),
        )


def _choose_rules(program: Program, phases: tuple[Phase, ...]) -> Iterator[CompiledRule]:
    """Those of the phases. As in Kyverno, scans do not check the digests of final objects, or
    image verification would report the same twice.
    """
    verifying = {rule.name for rule in program.rules if rule.phase is Phase.VERIFY_IMAGES}
    for rule in program.rules:
        if rule.phase in phases and not (rule.phase is Phase.VALIDATE and rule.name in verifying):
            yield rule


def _sort(
    candidates: Iterable[ScanCandidate], kinds: Kinds
) -> Mapping[Resource, Sequence[ScanCandidate]]:
    found: dict[Resource, list[ScanCandidate]] = {}
    for candidate in candidates:
        for kind in candidate.choose(kinds):
            found.setdefault(kind, []).append(candidate)
    return found


def verify_images_once(program: Program) -> Program:
    """Without the second check of images, which is about the result of an admission.

    As in Kyverno, a report has one row for each image that a rule verifies.
    """
    named = {rule.name for rule in program.rules if rule.phase is Phase.VERIFY_IMAGES}
    rules = [
        rule for rule in program.rules if rule.phase is not Phase.VALIDATE or rule.name not in named
    ]
    return program if len(rules) == len(program.rules) else replace(program, rules=tuple(rules))


def _plan_kind(judging: Sequence[ScanCandidate], mutating: Sequence[ScanCandidate]) -> KindPlan:
    return KindPlan(
        Engine(verify_images_once(each.program) for each in judging),
        tuple(Engine((each.program,)) for each in mutating),
        hash_text(*(each.mark for each in (*judging, *mutating))),
        (tuple(judging), tuple(mutating)),
    )


class PlanChange(msgspec.Struct, frozen=True, dict=True):
    """What is different between two plans for a kind: policies that came, changed or went."""

    before: KindPlan
    after: KindPlan

    @cached_property
    def replaced(self) -> frozenset[tuple[str, str, str]]:
        """Source, policy and rule of the entries that these policies have made, or make now."""
        plans = (self.before, self.after)
        found = (each for plan in plans for some in plan.candidates for each in some)
        return frozenset(key for each in found for key in _keys(each.program))

    def replaces(self, entry: JsonObject) -> bool:
        key = entry.get("source", ""), entry.get("policy", ""), entry.get("rule", "")
        return key in self.replaced


def find_change(before: KindPlan, after: KindPlan) -> PlanChange | None:
    """What to evaluate for objects evaluated with an earlier plan; None if everything.

    Rules that verify images may write digests, which later rules see: with them, no policy is
    evaluated alone.
    """
    if any(_verifies_images(each) for plan in (before, after) for each in plan.candidates[0]):
        return None
    return PlanChange(_subtract(before, after), _subtract(after, before))


def _subtract(plan: KindPlan, other: KindPlan) -> KindPlan:
    known = {each.mark for some in other.candidates for each in some}
    return _plan_kind(
        *(tuple(each for each in some if each.mark not in known) for some in plan.candidates)
    )


def _verifies_images(candidate: ScanCandidate) -> bool:
    return any(rule.phase is Phase.VERIFY_IMAGES for rule in candidate.program.rules)


@lru_cache(maxsize=1024)
def _find_kind(resource: Resource) -> GroupVersionKind:
    """Always the same record for one kind: every candidate keeps it."""
    return GroupVersionKind(resource.group, resource.version, resource.kind)


def _is_changing(policy: StoredPolicy) -> bool:
    return policy.kind.phases == (Phase.MUTATE,)


def _changes_others(policy: StoredPolicy) -> bool:
    """A policy that changes existing objects reports on the trigger itself.

    A scan of the trigger would find nothing, and replace that result.
    """
    if policy.record is None or not _is_changing(policy):
        return False
    return bool(policy.kind.family.list_existing_mutations(policy.record))


def _keys(program: Program) -> Iterable[tuple[str, str, str]]:
    policy = program.policy
    return [(policy.source, policy.reported_name, rule.name) for rule in program.rules]


def _is_everywhere(policy: StoredPolicy) -> bool:
    """Whether a policy is never evaluated in the background, regardless of its settings."""
    return policy.record is not None and policy.kind.family.skips_scan(policy.record)


def _evaluate_mutation(engine: Engine, request: Request) -> list[Result]:
    verdict = evaluate_now(engine, request)
    if verdict.patched == request.object:
        return list(verdict.results)
    return [
        replace(result, status=Status.FAIL, message="mutation is not applied", patched=None)
        if result.status is Status.PASS
        and result.type is RuleType.MUTATION
        and not result.exceptions
        else result
        for result in verdict.results
    ]
