"""Explains what policies decide about resources: `explain` without the printing."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.cli.deletions import evaluate_deletion
from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups
from lictor.cli.inputs.policies import LoadedPolicies, load_policy_files
from lictor.cli.inputs.programs import choose_options
from lictor.cli.inputs.requests import RequestFactory
from lictor.cli.inputs.resources import find_documents, leave_tool_files, parse_resources
from lictor.cli.inputs.sources import SourceText, read_policies
from lictor.core.assembly import CompileOptions, compile_cleanups, compile_watched
from lictor.core.errors import LoadError, UsageError
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.lang.watch import ClosureAnswer, Recorder
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.request import Request
from lictor.core.model.result import Result
from lictor.core.raw import JsonObject
from lictor.core.report.explanation import Explanation
from lictor.core.report.resource_name import name_resource


def load_explained_policies(paths: tuple[str, ...]) -> LoadedPolicies:
    """The policies of files, all of which must be usable."""
    policies = load_policy_files(read_policies(paths))
    for unusable in policies.unusable:
        raise LoadError(f"{unusable.name}: {unusable.reason}")
    if not len(policies):
        raise LoadError("no policies were found")
    return policies


class ExplanationChoice(msgspec.Struct, frozen=True):
    """Which explanations are wanted."""

    # Called with a warning for files that are not resources.
    warn: Callable[[str], None]
    # Explain only this rule; all rules if empty.
    rule: str = ""
    failed_only: bool = False


def _list_resources(
    texts: Iterable[SourceText], warn: Callable[[str], None]
) -> Iterator[JsonObject]:
    for text in texts:
        spans, skipped = leave_tool_files(text, find_documents(text.content))
        for each in skipped:
            warn(each)
        for span in spans:
            yield from parse_resources(text.content, span, text.path)


def _select_rule(explanations: Sequence[Explanation], name: str) -> list[Explanation]:
    known = dict.fromkeys(rule.rule for each in explanations for rule in each.rules if rule.rule)
    if name not in known:
        raise UsageError(f"no rule is called {name}; there are {', '.join(known) or 'none'}")
    kept = [
        replace(each, rules=tuple(rule for rule in each.rules if rule.rule == name))
        for each in explanations
    ]
    return [each for each in kept if each.rules]


# What a policy answered on the way, and its results.
TracePolicy: TypeAlias = Callable[[Request], tuple[Sequence[ClosureAnswer], Sequence[Result]]]


@dataclass(frozen=True)
class Explainer:
    """Explains the results of policies."""

    policies: LoadedPolicies
    exceptions: tuple[PolicyRecord, ...]
    requests: RequestFactory
    given: GivenObjects
    # For kinds with named rules: explain this rule only.
    rule: str = ""
    # Explain these policies only; all if empty.
    names: tuple[str, ...] = ()

    def explain_all(
        self, texts: Sequence[SourceText], choice: ExplanationChoice
    ) -> list[Explanation]:
        """What was chosen of the explanations of all resources."""
        self._check_names()
        explanations = [
            each
            for resource in _list_resources(texts, choice.warn)
            for each in self.explain(resource)
        ]
        if not explanations:
            raise LoadError("no resources were found")
        if choice.rule:
            explanations = _select_rule(explanations, choice.rule)
        if choice.failed_only:
            explanations = [kept for each in explanations if (kept := each.failed).rules]
        return explanations

    def _check_names(self) -> None:
        known = dict.fromkeys(policy.metadata.name for policy in self._explained)
        for name in self.names:
            if name not in known:
                raise UsageError(f"no policy is called {name}; there are {', '.join(known)}")

    @property
    def _explained(self) -> tuple[PolicyRecord, ...]:
        return (*self.policies.about_resources, *self.policies.listed_deletions)

    def explain(self, resource: JsonObject) -> Iterator[Explanation]:
        """The explanation of each policy for one resource."""
        request, name = self.requests.make_request(resource), name_resource(resource)
        for policy, evaluate in self._traced_policies:
            kind = registry().of(policy)
            heard, results = evaluate(request)
            rules = kind.family.explain(policy, self.policies.bindings, heard, results)
            if kind.has_named_rules and self.rule:
                rules = tuple(rule for rule in rules if rule.rule == self.rule)
            yield Explanation(policy.metadata.name, name, rules)

    @cached_property
    def _traced_policies(self) -> list[tuple[PolicyRecord, TracePolicy]]:
        """The chosen policies, each compiled once for all resources."""
        return [
            (policy, self._compile(policy))
            for policy in self._explained
            if not self.names or policy.metadata.name in self.names
        ]

    def _compile(self, policy: PolicyRecord) -> TracePolicy:
        options = choose_options(self.given, OfflineLookups(self.requests.values, self.given))
        if registry().of(policy).role is not Role.POLICY:
            return _compile_deletion(policy, self.exceptions, options)
        companions = (*self.policies.bindings, *self.exceptions)
        listen = compile_watched(policy, companions, **options)

        def evaluate(request: Request) -> tuple[Sequence[ClosureAnswer], Sequence[Result]]:
            explanations = listen(request, self.requests.adapt)
            return explanations.heard, explanations.verdict.results

        return evaluate


def _compile_deletion(
    policy: PolicyRecord, exceptions: tuple[PolicyRecord, ...], options: CompileOptions
) -> TracePolicy:
    recorder = Recorder()
    options["watch_rule"] = recorder.for_rule
    programs = compile_cleanups((policy, *exceptions), **options)

    def evaluate(request: Request) -> tuple[Sequence[ClosureAnswer], Sequence[Result]]:
        recorder.answers.clear()
        results = [evaluate_deletion(program, request) for program in programs]
        return tuple(recorder.answers), results

    return evaluate
