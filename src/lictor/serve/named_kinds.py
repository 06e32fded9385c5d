"""About which requests is a classic policy asked at all? Those of the kinds that its rules name.

Rules by themselves take `Pod/*` for the Pod and all of its subresources, and any subresource of a
Pod for its ephemeral containers. A webhook that serves many policies asks each only about what it
names: `Pod/*` are the subresources, and nothing but `*/*` is everything.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from lictor.cluster.stored_policy import StoredPolicy
from lictor.families.classic.autogen import expand_rules
from lictor.lang.kind_selector import KindSelector, compile_kind_selector, parse_kind_selector
from lictor.match.classic import list_descriptions
from lictor.model.policy import Policy
from lictor.model.program import CompiledRule, Matcher, Phase, Program, Select
from lictor.model.request import GroupVersionKind, Operation

_Names: TypeAlias = Callable[[GroupVersionKind, str], bool]

_EVERYTHING = KindSelector(kind="*", subresource="*")
_POD = GroupVersionKind("", "v1", "Pod")


def limit_to_named_kinds(program: Program, policy: StoredPolicy) -> Program:
    """The program, with rules that are asked only about what the policy names."""
    if not isinstance(policy.record, Policy):
        return program
    tests = {phase: _compile_phase(program, policy.record, phase) for phase in Phase}
    if not any(tests.values()):
        return program
    return replace(
        program, rules=tuple(_address(rule, tests[rule.phase]) for rule in program.rules)
    )


def _compile_phase(program: Program, policy: Policy, phase: Phase) -> _Names | None:
    """What the rules of one phase name together; None where they name no subresources."""
    names = {rule.name for rule in program.rules if rule.phase is phase}
    selectors = [
        parse_kind_selector(kind)
        for rule in expand_rules(policy)
        if rule.name in names
        for described in list_descriptions(rule.match)
        for kind in described.kinds
    ]
    if not any(selector.subresource for selector in selectors):
        return None
    tests = [_compile_selector(selector) for selector in selectors]
    return lambda kind, subresource: any(test(kind, subresource) for test in tests)


def _compile_selector(selector: KindSelector) -> _Names:
    fits = compile_kind_selector(selector)
    if selector == _EVERYTHING:
        return lambda _kind, _subresource: True
    if selector.subresource:
        return lambda kind, subresource: bool(subresource) and _ask(fits, kind, subresource)

    def named(kind: GroupVersionKind, subresource: str) -> bool:
        is_object = not subresource or (kind == _POD and subresource == "ephemeralcontainers")
        return is_object and _ask(fits, kind, "")

    return named


def _ask(
    fits: Callable[[str, str, str, str], bool], kind: GroupVersionKind, subresource: str
) -> bool:
    return fits(kind.group, kind.version, kind.kind, subresource)


def _address(rule: CompiledRule, named: _Names | None) -> CompiledRule:
    return rule if named is None else replace(rule, select=_limit(rule.select, named))


def _limit(select: Select, named: _Names) -> Select:
    def limited(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        return select(kind, subresource, operation) if named(kind, subresource) else None

    return limited
