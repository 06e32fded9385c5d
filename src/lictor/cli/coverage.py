"""Measures how much of the policies tests reach, and which changes no test would notice."""

import os
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from lictor.cli.inputs.policies import LoadedPolicies, load_policy_files
from lictor.cli.inputs.records import TestResult
from lictor.cli.inputs.sources import SourceText, read_policies
from lictor.cli.mutants import PolicyChange, change_body, list_changes
from lictor.cli.reach import PolicyReach, ReachPoint, make_gap
from lictor.cli.test_cases import CaseInputs, TestCase
from lictor.cli.test_results import EXCLUDED
from lictor.cli.test_run import CaseRun, evaluate_inputs
from lictor.core.errors import LictorError
from lictor.core.families.registry import refer, registry
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.load.policies import Sourced, load_documents
from lictor.core.model.metadata import PolicyRecord
from lictor.core.report.coverage import CoverageGap, CoverageReport, CoverageTally
from lictor.core.report.outcomes import TestOutcome

# The file of a policy, its kind, its name, and its line.
_PolicyKey = tuple[str, str, str, int]


class Mutant(msgspec.Struct, frozen=True):
    """A policy with one change."""

    policy: Sourced[PolicyRecord]
    change: PolicyChange
    text: SourceText

    def swap_into(self, policies: LoadedPolicies) -> LoadedPolicies | None:
        """Return the policies with this one instead of its original; None if it is invalid."""
        loaded = load_policy_files([self.text])
        made = {_identify(record): record for record in (*loaded.policies, *loaded.deletions)}
        changed = made.get(_identify(self.policy.record))
        if changed is None or changed == self.policy.record:
            return None
        return replace(
            policies,
            policies=tuple(made.get(_identify(each), each) for each in policies.policies),
            deletions=tuple(made.get(_identify(each), each) for each in policies.deletions),
        )


def _identify(policy: PolicyRecord) -> tuple[str, str]:
    return policy.kind, refer(policy).key


def _find_key(policy: Sourced[PolicyRecord]) -> _PolicyKey:
    kind, name = _identify(policy.record)
    return os.path.realpath(policy.source), kind, name, policy.document.line


def list_mutants(policy: Sourced[PolicyRecord]) -> Iterator[Mutant]:
    """All mutants of one policy."""
    for change in list_changes(policy.body):
        if not _can_be_tested(policy, change):
            continue
        path = policy.prefix + change.path
        body = change_body(policy.document.body, path, change.value)
        yield Mutant(policy, change, SourceText(policy.source, msgspec.json.encode(body)))


def _can_be_tested(policy: Sourced[PolicyRecord], change: PolicyChange) -> bool:
    # Tests evaluate policies without named rules on creations only.
    if registry().of(policy.record).has_named_rules or "operations" not in change.path:
        return True
    return change.words.startswith(('"CREATE"', '"*"'))


class _PolicyCoverage(msgspec.Struct):
    """The coverage of one policy by all tests."""

    reach: PolicyReach
    # Those that no test has noticed yet, and how many there are in all.
    unnoticed: list[Mutant]
    mutants: int


class CoverageRun:
    """Collects coverage over all tests of a run, of the policies with names that fit."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._fits = [compile_wildcard(name) for name in names]
        self._found: dict[_PolicyKey, _PolicyCoverage] = {}

    def add(
        self, case: TestCase, run: CaseRun, inputs: CaseInputs, rows: Sequence[TestResult]
    ) -> None:
        """Run one test, which passes, on all mutants of its policies."""
        answers = evaluate_inputs(inputs)
        usual = _describe_outcomes(run.compare(rows, answers))
        for policy in _list_policies(case, inputs.policies):
            if not all(fits(policy.record.metadata.name) for fits in self._fits):
                continue
            found = self._open(policy)
            found.reach.add(inputs, answers)
            found.unnoticed = [
                mutant
                for mutant in found.unnoticed
                if not _is_noticed(mutant, run, inputs, rows, usual)
            ]

    def _open(self, policy: Sourced[PolicyRecord]) -> _PolicyCoverage:
        key = _find_key(policy)
        if key not in self._found:
            mutants = [each for each in list_mutants(policy) if _is_usable(each)]
            self._found[key] = _PolicyCoverage(PolicyReach(policy), mutants, len(mutants))
        return self._found[key]

    def report(self) -> CoverageReport:
        """What was reached and noticed, and what was not."""
        found = list(self._found.values())
        rules = [point for each in found for point in each.reach.list_rules()]
        branches = [point for each in found for point in each.reach.list_branches()]
        mutants = [_describe_mutant(mutant) for each in found for mutant in each.unnoticed]
        total = sum(each.mutants for each in found)
        gaps = [point.gap for point in (*rules, *branches) if not point.is_reached]
        return CoverageReport(
            rules=_count(rules),
            branches=_count(branches),
            mutants=CoverageTally(total - len(mutants), total),
            gaps=tuple(sorted((*gaps, *mutants), key=lambda gap: (gap.file, gap.line))),
        )


def _count(points: Sequence[ReachPoint]) -> CoverageTally:
    return CoverageTally(sum(point.is_reached for point in points), len(points))


def _list_policies(case: TestCase, usable: LoadedPolicies) -> Iterator[Sourced[PolicyRecord]]:
    known = {_identify(each) for each in (*usable.policies, *usable.listed_deletions)}
    for text in read_policies(case.resolve(case.test.policies)):
        for policy in load_documents(text.content, text.path).listed:
            if _identify(policy.record) in known:
                yield policy


def _is_usable(mutant: Mutant) -> bool:
    # A policy that cannot be loaded never reaches a cluster: no test needs to notice it.
    return mutant.swap_into(LoadedPolicies()) is not None


def _is_noticed(
    mutant: Mutant,
    run: CaseRun,
    inputs: CaseInputs,
    rows: Sequence[TestResult],
    usual: Sequence[object],
) -> bool:
    policies = mutant.swap_into(inputs.policies)
    if policies is None:
        return True
    try:
        answers = evaluate_inputs(replace(inputs, policies=policies))
        return _describe_outcomes(run.compare(rows, answers)) != usual
    except LictorError:
        return True


def _describe_outcomes(outcomes: Iterable[TestOutcome]) -> list[object]:
    """What a test shows. A row that is only fulfilled because the rule left the resource alone
    is another row than one that is fulfilled by the rule's answer."""
    return [
        (each.policy, each.rule, each.resource, each.ok, each.reason == EXCLUDED)
        for each in outcomes
    ]


def _describe_mutant(mutant: Mutant) -> CoverageGap:
    words = f"{mutant.change.words}: no test notices"
    return make_gap(mutant.policy, mutant.change.path, words)
