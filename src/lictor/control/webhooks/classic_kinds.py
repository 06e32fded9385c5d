"""Which kinds and operations of a classic policy must the API server tell us of?"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from lictor.cluster.routes import is_mutating_rule, is_validating_rule
from lictor.compile.autogen import expand_rules
from lictor.control.webhooks.rules import EVERY_OPERATION
from lictor.match.classic import list_descriptions
from lictor.model.policy import (
    ForEachGenerate,
    Generate,
    Match,
    Policy,
    ResourceDescription,
    ResourceFilter,
    Rule,
)

# Text of a kind selector -> operations
Kinds: TypeAlias = dict[str, set[str]]

_CHANGING = ("CREATE", "UPDATE")
_STORING = ("CREATE", "DELETE", "UPDATE")


def collect_kinds(policy: Policy, *, mutating: bool) -> Kinds:
    """What the policy, with its rules for pod controllers, is about at one of the two stages."""
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
        yield from _collect_match(rule, EVERY_OPERATION)


def _collect_targets(generate: Generate) -> Iterator[tuple[str, set[str]]]:
    """What was made must not drift away from its source."""
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
                kinds[kind] -= set(described.operations or EVERY_OPERATION)
    yield from kinds.items()


def _list_plain_exclusions(exclude: Match | None) -> Iterator[ResourceDescription]:
    """Exclusions that hold for every object of a kind and for every caller."""
    for each in exclude.any if exclude is not None else ():
        if each == ResourceFilter(
            ResourceDescription(kinds=each.resources.kinds, operations=each.resources.operations)
        ):
            yield each.resources
