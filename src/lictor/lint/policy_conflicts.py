"""Which rules contradict each other, or say what others say already? Shown with examples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product

import msgspec

from lictor.kubernetes.resource_names import ResourceNames
from lictor.lint.asking_rules import AskingRule, find_surroundings, list_asking_rules
from lictor.lint.catalog import flag
from lictor.lint.cluster_mutations import KeyPath
from lictor.lint.documents import LintObject
from lictor.lint.example_resources import (
    ABSENT,
    Example,
    Judge,
    list_controllers,
    list_inside,
    list_outside,
    start_examples,
)
from lictor.lint.field import Field
from lictor.lint.field_constraints import FieldConstraint
from lictor.lint.rule_matches import KnownKinds
from lictor.lint.value_sets import ValueSet, are_disjoint, describe_values, is_within
from lictor.model.finding import Finding, Location
from lictor.model.request import GroupVersionKind
from lictor.model.result import Status
from lictor.report.json_text import render_json

# Of the rules that allow the same at a field, so many are compared with others.
_MOST_ALIKE = 8
# Different demands on a field of a kind: many more are no policies that somebody has together.
_MOST_DIFFERENT = 64
# Conflicts that are told of one rule.
_MOST_TOLD = 3
_MOST_EXAMPLES = 4
# A folder of policies, resources and values that only tests read.
_TESTS = ".kyverno-test/"
# Where a rule cannot tell, nothing passes either.
_REFUSALS = (Status.FAIL, Status.ERROR)


class _IndexedConstraint(msgspec.Struct, frozen=True):
    """A rule, its number in the order of the files, and what it asks of one field."""

    number: int
    rule: AskingRule
    constraint: FieldConstraint


# By kind and path: what is allowed there, and who says so.
_Index = Mapping[tuple[GroupVersionKind, KeyPath], Mapping[ValueSet, Sequence[_IndexedConstraint]]]


def find_conflicts(items: Sequence[LintObject], names: ResourceNames) -> dict[str, list[Finding]]:
    """By file, rules that cannot both be kept, and rules that say nothing new."""
    # What tests keep for themselves is never in a cluster together with the rest.
    used = [item for item in items if _TESTS not in item.file.source.replace("\\", "/")]
    if not _may_meet(used):
        return {}
    kinds = KnownKinds(names)
    rules = list(list_asking_rules(used, find_surroundings(used, kinds)))
    index = _make_index(rules)
    judge = Judge(kinds)
    found: dict[str, list[Finding]] = {}
    for rule, finding in (*_list_conflicts(index, judge), *_list_subsumed(rules, index, judge)):
        found.setdefault(rule.item.file.source, []).append(rule.item.locate(finding))
    return found


def _may_meet(items: Iterable[LintObject]) -> bool:
    """Are there two rules at all? In editors there mostly are not."""
    specs = (Field(item.body)["spec"] for item in items if item.policy_kind is not None)
    rules = (
        each for spec in specs for name in ("rules", "validations") for each in spec[name].each()
    )
    return len(list(islice(rules, 2))) > 1


def _make_index(rules: Iterable[AskingRule]) -> _Index:
    index: dict[tuple[GroupVersionKind, KeyPath], dict[ValueSet, list[_IndexedConstraint]]] = {}
    for number, rule in enumerate(rules):
        for constraint in rule.check.constraints:
            indexed = _IndexedConstraint(number, rule, constraint)
            for kind in rule.match.kinds:
                sets = index.setdefault((kind, constraint.path), {})
                sets.setdefault(constraint.allowed, []).append(indexed)
    return index


def _are_together(one: AskingRule, other: AskingRule) -> bool:
    """Can a cluster have both? Of two policies with the same name, only one."""
    return one.item is other.item or one.identity != other.identity


def _locate(rule: AskingRule) -> Location:
    at = rule.item.document.position(rule.item.prefix + rule.at)
    return Location(rule.item.file.source, *at)


def _name(rule: AskingRule, asking: AskingRule) -> str:
    """Another rule, with the file and the line where it stands."""
    at = _locate(rule)
    where = f"line {at.line}" if rule.item.file is asking.item.file else f"{at.file}:{at.line}"
    return f"{rule.title} ({where})"


# --- two that cannot both be kept


def _list_conflicts(index: _Index, judge: Judge) -> Iterator[tuple[AskingRule, Finding]]:
    tried: set[tuple[int, int]] = set()
    told: dict[int, int] = {}
    for sets in index.values():
        for first, second in combinations(islice(sets, _MOST_DIFFERENT), 2):
            if not are_disjoint(first, second):
                continue
            for pair in product(sets[first][:_MOST_ALIKE], sets[second][:_MOST_ALIKE]):
                one, other = sorted(pair, key=lambda indexed: indexed.number)
                key = (one.number, other.number)
                if key in tried or told.get(other.number, 0) >= _MOST_TOLD:
                    continue
                tried.add(key)
                finding = _show_conflict(one, other, judge)
                if finding is not None:
                    told[other.number] = told.get(other.number, 0) + 1
                    yield other.rule, finding


def _show_conflict(
    one: _IndexedConstraint, other: _IndexedConstraint, judge: Judge
) -> Finding | None:
    if not _are_together(one.rule, other.rule) or one.rule is other.rule:
        return None
    if not (_is_plain(one.rule) and _is_plain(other.rule)):
        return None
    path = other.constraint.path
    for start in islice(start_examples(one.rule, other.rule, judge.kinds), _MOST_EXAMPLES):
        kept = _find_only(other.rule, one, start, judge)
        lost = _find_only(one.rule, other, start, judge)
        allowed = (one.constraint.allowed, other.constraint.allowed)
        values = [ABSENT, *(value for each in allowed for value in list_outside(each))]
        others = [start.with_value(path, value) for value in values]
        if kept and lost and all(_is_refused(one.rule, other.rule, e, judge) for e in others):
            return _tell_conflict(one, other, kept, lost)
    return None


def _is_plain(rule: AskingRule) -> bool:
    """Is it asked whatever a resource holds?"""
    conditions = rule.match.conditions
    return not conditions or (b"request.operation" in conditions and b"object" not in conditions)


def _find_only(
    refusing: AskingRule, passing: _IndexedConstraint, start: Example, judge: Judge
) -> Example | None:
    """A resource with a value that one of the rules wants, and the other refuses."""
    allowed, path = passing.constraint.allowed, passing.constraint.path
    for example in (start, *(start.with_value(path, value) for value in list_inside(allowed))):
        is_passed = judge.ask(passing.rule, example) is Status.PASS
        if is_passed and judge.ask(refusing, example) is Status.FAIL:
            return example
    return None


def _is_refused(one: AskingRule, other: AskingRule, example: Example, judge: Judge) -> bool:
    return any(judge.ask(rule, example) in _REFUSALS for rule in (one, other))


def _tell_conflict(
    one: _IndexedConstraint, other: _IndexedConstraint, kept: Example, lost: Example
) -> Finding:
    path, ours, theirs = other.constraint.path, other.constraint.allowed, one.constraint.allowed
    field = _write(path)
    value = lost.read(path)
    changed = f"without {field}" if value is ABSENT else f"with {field}: {render_json(value)}"
    message = (
        f"no {kept.kind.kind} passes both this and {_name(one.rule, other.rule)}: "
        f"{field} must be {describe_values(ours)} here, and {describe_values(theirs)} there; "
        f"for example, this refuses {render_json(kept.resource)}; {changed}, that refuses it"
    )
    return flag("policy-conflict", other.constraint.at or other.rule.at, message)


def _write(path: KeyPath) -> str:
    return ".".join(path).replace(".*", "[]")


# --- one that says nothing new


def _list_subsumed(
    rules: Sequence[AskingRule], index: _Index, judge: Judge
) -> Iterator[tuple[AskingRule, Finding]]:
    same = _group_texts(rules)
    for number, rule in enumerate(rules):
        candidates = (*same.get(rule.text, ()), *_list_stronger(rule, index))
        seen: set[int] = set()
        for at in candidates:
            if at in seen or at == number:
                continue
            seen.add(at)
            finding = _show_subsumed(rules[at], rule, judge, is_first=at < number)
            if finding is not None:
                yield rule, finding
                break


def _group_texts(rules: Sequence[AskingRule]) -> dict[bytes, list[int]]:
    same: dict[bytes, list[int]] = {}
    for number, rule in enumerate(rules):
        known = same.setdefault(rule.text, [])
        if len(known) < _MOST_ALIKE:
            known.append(number)
    return same


def _list_stronger(rule: AskingRule, index: _Index) -> Iterator[int]:
    """Rules that ask at least as much of one of the fields."""
    asked = [each for each in rule.check.constraints if not each.is_implied]
    if not rule.check.is_complete or not asked:
        return
    kind = min(rule.match.kinds, key=lambda kind: (kind.kind, kind.group))
    sets = index[kind, asked[0].path]
    for allowed in islice(sets, _MOST_DIFFERENT):
        if is_within(allowed, asked[0].allowed):
            yield from (indexed.number for indexed in sets[allowed][:_MOST_ALIKE])


def _show_subsumed(
    strong: AskingRule, weak: AskingRule, judge: Judge, *, is_first: bool
) -> Finding | None:
    if not _are_together(strong, weak) or not _subsumes(strong, weak):
        return None
    if not is_first and _subsumes(weak, strong):
        return None  # They say the same: the second one is told of.
    start = next(start_examples(strong, weak, judge.kinds), None)
    if start is None:
        return None
    tried = list(_list_samples(start, strong, weak))
    refused = [each for each in tried if judge.ask(weak, each) is Status.FAIL]
    shown = next((each for each in refused if judge.ask(strong, each) is Status.FAIL), None)
    if shown is None:
        return None
    # Rules about Pods may be asked about those who make Pods, too.
    made = [each for each in list_controllers(shown) if judge.ask(weak, each) is Status.FAIL]
    if all(judge.ask(strong, each) in _REFUSALS for each in (*refused, *made)):
        return _tell_subsumed(strong, weak, shown)
    return None


def _subsumes(strong: AskingRule, weak: AskingRule) -> bool:
    if strong.is_weakened or (weak.enforces and not strong.enforces):
        return False
    if not strong.match.covers(weak.match):
        return False
    if strong.text == weak.text:
        return True
    asked = [each for each in weak.check.constraints if not each.is_implied]
    return (
        weak.check.is_complete
        and bool(asked)
        and all(any(_asks_more(more, each) for more in strong.check.constraints) for each in asked)
    )


def _asks_more(more: FieldConstraint, less: FieldConstraint) -> bool:
    return more.path == less.path and is_within(more.allowed, less.allowed)


def _list_samples(start: Example, strong: AskingRule, weak: AskingRule) -> Iterator[Example]:
    """Resources that break one thing each; those that lack something come last."""
    yield start
    rules = (weak, strong)
    asked = [each for rule in rules for each in rule.check.constraints if not each.is_implied]
    changes = [(each.path, value) for each in asked for value in list_outside(each.allowed)]
    for path, value in (*changes, *((each.path, ABSENT) for each in asked)):
        yield start.with_value(path, value)


def _tell_subsumed(strong: AskingRule, weak: AskingRule, example: Example) -> Finding:
    message = (
        f"this refuses nothing that {_name(strong, weak)} does not refuse, too: one of them is "
        f"enough; both refuse, for example, {render_json(example.resource)}"
    )
    return flag("policy-subsumed", weak.at, message)
