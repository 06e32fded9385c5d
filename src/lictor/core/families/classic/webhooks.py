"""The requests for which a classic policy needs the webhook that it shares with others."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from lictor.core.errors import CompileError
from lictor.core.families.classic.actions import is_mutating_rule, is_validating_rule
from lictor.core.families.classic.autogen import expand_rules
from lictor.core.families.kind_facts import SharedWebhookMatch
from lictor.core.lang.kind_selector import KindSelector, compile_kind_selector, parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.match.classic import list_descriptions
from lictor.core.match.metadata import compile_selector
from lictor.core.model.matching import Match, ResourceDescription, ResourceFilter
from lictor.core.model.metadata import LabelSelector
from lictor.core.model.policy import ForEachGenerate, Generate, Policy, Rule
from lictor.core.model.program import CompiledRule, Matcher, Phase, Program, Select
from lictor.core.model.request import GroupVersionKind, Operation

_Names: TypeAlias = Callable[[GroupVersionKind, str], bool]

_EVERYTHING = KindSelector(kind="*", subresource="*")
_POD = GroupVersionKind("", "v1", "Pod")


def limit_to_named_kinds(program: Program, policy: Policy) -> Program:
    """The program, with rules that are evaluated only for the kinds that the policy names.

    Rules alone take `Pod/*` for the Pod and all of its subresources, and any subresource of
    a Pod for its ephemeral containers. A webhook that serves many policies evaluates each only for
    what it names: `Pod/*` are the subresources, and nothing but `*/*` is everything.
    """
    # Rules that are made for controllers name no subresources that the written ones do not name.
    if not any(selector.subresource for selector in _list_selectors(policy.spec.rules)):
        return program
    rules = expand_rules(policy)
    tests = {phase: _compile_phase(program, rules, phase) for phase in Phase}
    return replace(
        program, rules=tuple(_address(rule, tests[rule.phase]) for rule in program.rules)
    )


def _list_selectors(rules: Iterable[Rule]) -> list[KindSelector]:
    return [
        parse_kind_selector(kind)
        for rule in rules
        for described in list_descriptions(rule.match)
        for kind in described.kinds
    ]


def _compile_phase(program: Program, rules: Iterable[Rule], phase: Phase) -> _Names | None:
    """What the rules of one phase name together; None where they name no subresources."""
    names = {rule.name for rule in program.rules if rule.phase is phase}
    selectors = _list_selectors(rule for rule in rules if rule.name in names)
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


# Text of a kind selector -> operations
Kinds: TypeAlias = dict[str, set[str]]

_CHANGING = ("CREATE", "UPDATE")
_STORING = ("CREATE", "DELETE", "UPDATE")
_EVERY_OPERATION = ("CONNECT", "CREATE", "DELETE", "UPDATE")


def find_webhook_match(policy: Policy, *, mutating: bool) -> SharedWebhookMatch:
    """Kinds, namespaces, conditions and time limit of a policy in one of the two phases."""
    spec = policy.spec
    own = spec.webhook_configuration
    seconds = own.timeout_seconds if own is not None else None
    try:
        kinds = _collect_kinds(policy, mutating=mutating)
    except CompileError:
        # It is refused as a whole when it is compiled, and its status has the reason.
        kinds = {}
    return SharedWebhookMatch(
        {kind: frozenset(operations) for kind, operations in kinds.items()},
        _find_scope(policy, mutating=mutating),
        own.match_conditions if own is not None else (),
        seconds if seconds is not None else spec.webhook_timeout_seconds,
    )


def list_named_namespaces(policy: Policy) -> list[str]:
    """The patterns of namespaces that rules name."""
    return [
        pattern
        for rule in policy.spec.rules
        for described in list_descriptions(rule.match)
        for pattern in described.namespaces
    ]


def _collect_kinds(policy: Policy, *, mutating: bool) -> Kinds:
    """The kinds that a policy, with its autogen rules, matches in one of the two phases."""
    kinds: Kinds = defaultdict(set)
    for rule in expand_rules(policy):
        for kind, operations in _collect_rule(rule, mutating=mutating):
            kinds[kind] |= operations
    return {kind: operations for kind, operations in kinds.items() if operations}


def _collect_rule(rule: Rule, *, mutating: bool) -> Iterator[tuple[str, set[str]]]:
    if mutating:
        if is_mutating_rule(rule):
            yield from _collect_match(rule, _CHANGING)
        return
    if rule.generate is not None:
        yield from _collect_targets(rule.generate)
    if is_validating_rule(rule):
        yield from _collect_match(rule, _EVERY_OPERATION)


def _collect_targets(generate: Generate) -> Iterator[tuple[str, set[str]]]:
    """Changes of generated objects must be seen, so that they are corrected."""
    if not generate.synchronize:
        return
    made: tuple[Generate | ForEachGenerate, ...] = (generate, *generate.foreach)
    for each in made:
        kinds = (_name_kind(each.api_version, each.kind),) if each.kind else each.clone_list.kinds
        for kind in kinds:
            # A kind that follows from the request is known only when the request comes.
            if kind and "{{" not in kind:
                yield kind, set(_STORING)


def _name_kind(api_version: str, kind: str) -> str:
    return f"{api_version}/{kind}" if api_version else kind


def _collect_match(rule: Rule, otherwise: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
    kinds: Kinds = defaultdict(set)
    for described in list_descriptions(rule.match):
        for kind in described.kinds:
            kinds[kind] |= set(described.operations or otherwise)
    for described in _list_plain_exclusions(rule.exclude):
        for kind in described.kinds or tuple(kinds):
            if kind in kinds:
                kinds[kind] -= set(described.operations or _EVERY_OPERATION)
    yield from kinds.items()


def _list_plain_exclusions(exclude: Match | None) -> Iterator[ResourceDescription]:
    """Exclusions that hold for every object of a kind and for every caller."""
    for each in exclude.any if exclude is not None else ():
        if each == ResourceFilter(
            ResourceDescription(kinds=each.resources.kinds, operations=each.resources.operations)
        ):
            yield each.resources


def _find_scope(policy: Policy, *, mutating: bool) -> LabelSelector | None:
    is_heard = is_mutating_rule if mutating else is_validating_rule
    rules = [rule for rule in policy.spec.rules if is_heard(rule)]
    scopes = [_find_rule_scope(rule) for rule in rules]
    first = scopes[0] if scopes else None
    return first if all(scope == first for scope in scopes) else None


def _find_rule_scope(rule: Rule) -> LabelSelector | None:
    # Generated objects and mutated targets may be in any namespace.
    if rule.generate is not None or (rule.mutate is not None and rule.mutate.targets):
        return None
    match = rule.match
    filters = [each.resources for each in match.any] or [match.resources]
    if match.all:
        filters = [each.resources for each in match.all if each.resources.namespace_selector]
    scopes = [each.namespace_selector for each in filters]
    first = scopes[0] if scopes else None
    is_one = first is not None and all(scope == first for scope in scopes)
    return first if first is not None and is_one and _is_plain(first) else None


def _is_plain(selector: LabelSelector) -> bool:
    """Does the API server read it as we do? It knows no wildcards."""
    texts = (*selector.match_labels.keys(), *selector.match_labels.values())
    if selector == LabelSelector() or any(map(has_wildcard, texts)):
        return False
    try:
        compile_selector(selector)
    except CompileError:
        return False
    return True
