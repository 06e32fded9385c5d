"""Explains CEL policies in the same form as classic rules."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from lictor.core.families.explanation import (
    MatchClause,
    RuleExplanation,
    dig,
    is_expression,
    list_expressions,
)
from lictor.core.lang.watch import ClosureAnswer
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.result import Result
from lictor.core.raw import Json

_ROOT = "matchConstraints"
_TITLES = {"cronjobs": "for CronJobs", "defaults": "for other controllers of Pods"}


class _Version(msgspec.Struct, frozen=True):
    """A policy as it is, or as autogen makes it for controllers."""

    title: str
    spec: Json


def explain_cel(
    policy: PolicyRecord,
    bindings: Sequence[PolicyRecord],
    recorded: Sequence[ClosureAnswer],
    results: Sequence[Result],
    variants: Mapping[str, Json] = {},
) -> tuple[RuleExplanation, ...]:
    """The recorded evaluation of a policy; of parts that do not match, only the first.

    `variants`: the names and specs that autogen derives from it.
    """
    versions = [*_list_versions(policy, bindings)]
    versions += [_Version(_TITLES[name], spec) for name, spec in variants.items()]
    parts = list(_split(recorded)) or [[]]
    told = [
        _explain_part(part, versions[min(index, len(versions) - 1)], bindings)
        for index, part in enumerate(parts)
    ]
    matched = [explanation for explanation in told if explanation.matched]
    if not matched:
        return (told[0],)
    return tuple(_share(matched, results))


def _list_versions(policy: PolicyRecord, bindings: Sequence[PolicyRecord]) -> Iterator[_Version]:
    own = [
        binding.metadata.name
        for binding in bindings
        if binding.kind == f"{policy.kind}Binding"
        and binding.spec.policy_name == policy.metadata.name
    ]
    yield from (_Version(f"binding {name}", policy.spec) for name in own)
    if not own:
        yield _Version("policy", policy.spec)


def _split(recorded: Sequence[ClosureAnswer]) -> Iterator[list[ClosureAnswer]]:
    """The recorded evaluations, split by rule: each rule begins with its constraints."""
    part: list[ClosureAnswer] = []
    is_settled = False
    for each in recorded:
        is_constraint = each.what.startswith(_ROOT)
        if is_constraint and is_settled:
            yield part
            part, is_settled = [], False
        part.append(each)
        is_settled = is_settled or not is_constraint or each.what == _ROOT
    if part:
        yield part


def _explain_part(
    recorded: Sequence[ClosureAnswer], version: _Version, bindings: Sequence[PolicyRecord]
) -> RuleExplanation:
    clauses = tuple(
        MatchClause(each.what, bool(each.answer), _find_wanted(each.what, version, bindings))
        for each in recorded
        if not is_expression(each.what)
    )
    roots = [clause for clause in clauses if clause.path == _ROOT or _is_binding(clause.path)]
    return RuleExplanation(
        rule="",
        title=version.title,
        matched=all(root.fits for root in roots),
        clauses=clauses,
        expressions=tuple(list_expressions(recorded, _finder(version))),
    )


def _is_binding(path: str) -> bool:
    return path.endswith(": matchResources")


def _find_wanted(path: str, version: _Version, bindings: Sequence[PolicyRecord]) -> Json:
    name, colon, rest = path.partition(": ")
    if not colon:
        return dig(version.spec, path)
    binding = next((b for b in bindings if b.metadata.name == name), None)
    return None if binding is None else dig(binding.spec, rest)


def _finder(version: _Version) -> Callable[[str], Json]:
    variables = {each.name: each.expression for each in version.spec.variables}

    def find(path: str) -> Json:
        if path.startswith("variables."):
            return variables.get(path.removeprefix("variables."))
        return dig(version.spec, path)

    return find


def _share(
    matched: Sequence[RuleExplanation], results: Sequence[Result]
) -> Iterator[RuleExplanation]:
    """Assign results to parts: one each, or all to the first if the numbers differ."""
    for index, explanation in enumerate(matched):
        own: Sequence[Result] = results if index == 0 else ()
        if len(results) == len(matched):
            own = (results[index],)
        yield msgspec.structs.replace(explanation, results=tuple(own))
