"""Which policies judge what is there already, and what follows for one kind of object?"""

from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec
from msgspec.structs import replace

from lictor.cluster.resource import Resource
from lictor.cluster.store import CLASSIC_KINDS, PolicyStore, StoredPolicy
from lictor.control.judging import judge_now
from lictor.control.ledger import hash_text
from lictor.engine import Engine
from lictor.model.policy import Policy
from lictor.model.program import Phase, Program
from lictor.model.request import GroupVersionKind, Operation, Request
from lictor.model.result import Result, RuleType, Status
from lictor.raw import JsonObject

# A policy that carries this label makes no reports.
_DISABLED = "reports.kyverno.io/disabled"
_JUDGING = (Phase.VALIDATE, Phase.VERIFY_IMAGES)


class KindPlan(msgspec.Struct, frozen=True):
    """All that judges one kind; `key` changes when any of it does."""

    engine: Engine
    # Policies that change objects: what is there should look as if they had.
    mutating: tuple[Engine, ...]
    key: int
    # Policy -> text that changes when it does.
    marks: Mapping[str, str]

    def judge(self, request: Request) -> list[Result]:
        """What all policies say about an object that is there."""
        results = list(judge_now(self.engine, request).results)
        for engine in self.mutating:
            results += _judge_mutation(engine, request)
        return results


class ScanPlan(msgspec.Struct, frozen=True, dict=True):
    """The policies of the background, compiled. Made anew when any of them changes."""

    judging: tuple[tuple[Program, str], ...]
    mutating: tuple[tuple[Program, str], ...]
    # Source, policy and rule of all policies, whether they are asked in the background or not.
    alive: frozenset[tuple[str, str, str]]

    @cached_property
    def scanned(self) -> frozenset[tuple[str, str, str]]:
        """Source, policy and rule of every entry that a scan makes."""
        return frozenset(
            key for program, _ in (*self.judging, *self.mutating) for key in _keys(program)
        )

    def for_kind(self, resource: Resource) -> KindPlan | None:
        """What concerns one kind; None where nothing does."""
        kind = GroupVersionKind(resource.group, resource.version, resource.kind)
        judging = [(p, mark) for p, mark in self.judging if concerns(p, kind)]
        mutating = [(p, mark) for p, mark in self.mutating if concerns(p, kind)]
        if not judging and not mutating:
            return None
        return KindPlan(
            Engine(program for program, _ in judging),
            tuple(Engine((program,)) for program, _ in mutating),
            hash_text(*(mark for _, mark in (*judging, *mutating))),
            {program.policy.key: mark for program, mark in (*judging, *mutating)},
        )

    def is_scanned(self, entry: JsonObject) -> bool:
        key = entry.get("source", ""), entry.get("policy", ""), entry.get("rule", "")
        return key in self.scanned

    def is_alive(self, entry: JsonObject) -> bool:
        key = entry.get("source", ""), entry.get("policy", ""), entry.get("rule", "")
        return key in self.alive


def build_scan_plan(
    store: PolicyStore,
    natives: Iterable[tuple[Program, str]] = (),
    native_mutations: Iterable[tuple[Program, str]] = (),
) -> ScanPlan:
    """The plan from the policies of now; `natives` are admission policies of Kubernetes."""
    judging, mutating = list(natives), list(native_mutations)
    alive = {key for program, _ in (*judging, *mutating) for key in _keys(program)}
    for policy in store.policies:
        if _DISABLED in (policy.document["metadata"].get("labels") or {}):
            continue
        changes = policy.resource.kind.endswith("MutatingPolicy")
        phases = (Phase.MUTATE,) if changes else _JUDGING
        asked = policy.background and not policy.is_native and not _is_everywhere(policy)
        for program in store.programs(policy):
            alive.update(_keys(program))
            rules = tuple(rule for rule in program.rules if rule.phase in phases)
            if asked and rules:
                mark = f"{policy.uid}:{store.mark(policy)}"
                (mutating if changes else judging).append((replace(program, rules=rules), mark))
    return ScanPlan(tuple(judging), tuple(mutating), frozenset(alive))


def _keys(program: Program) -> Iterable[tuple[str, str, str]]:
    policy = program.policy
    return [(policy.source, policy.key, rule.name) for rule in program.rules]


def _is_everywhere(policy: StoredPolicy) -> bool:
    """A classic policy about every kind is never asked in the background, as in Kyverno."""
    record = policy.record
    if policy.resource not in CLASSIC_KINDS or not isinstance(record, Policy):
        return False
    return any("*" in kinds for kinds in map(_list_kinds, record.spec.rules))


def _list_kinds(rule: object) -> set[str]:
    match = getattr(rule, "match", None)
    filters = (*(match.any or ()), *(match.all or ()), match) if match is not None else ()
    return {
        kind
        for entry in filters
        if entry.resources is not None
        for kind in entry.resources.kinds or ()
    }


def concerns(program: Program, kind: GroupVersionKind) -> bool:
    """Can any rule of the program be about this kind?"""
    return any(rule.select(kind, "", Operation.CREATE) is not None for rule in program.rules)


def _judge_mutation(engine: Engine, request: Request) -> list[Result]:
    verdict = judge_now(engine, request)
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
