"""Explains what policies decide about resources: `explain` without the printing."""

from collections.abc import Iterator, Sequence

import msgspec

from lictor.assembly import compile_cleanups
from lictor.assembly import explain as explain_policy
from lictor.errors import LoadError
from lictor.families.registry import Role, registry, resolve
from lictor.lang.watch import ClosureAnswer, Recorder
from lictor.model.metadata import PolicyRecord
from lictor.model.request import Request
from lictor.model.result import Result
from lictor.offline.deletions import judge_deletion
from lictor.offline.lookups import GivenObjects, OfflineLookups
from lictor.offline.policies import (
    LoadedPolicies,
    load_policy_files,
)
from lictor.offline.programs import choose_options
from lictor.offline.requests import RequestFactory
from lictor.offline.sources import read_policies
from lictor.raw import JsonObject
from lictor.report.explanation import (
    Explanation,
)
from lictor.report.resource_name import name_resource


def load_explained_policies(paths: tuple[str, ...]) -> LoadedPolicies:
    """The policies of files, all of which must be usable."""
    policies = load_policy_files(read_policies(paths))
    for unusable in policies.unusable:
        raise LoadError(f"{unusable.name}: {unusable.reason}")
    if not len(policies):
        raise LoadError("no policies were found")
    return policies


class Explainer(msgspec.Struct, frozen=True):
    """Explains the results of policies."""

    policies: LoadedPolicies
    exceptions: tuple[PolicyRecord, ...]
    requests: RequestFactory
    given: GivenObjects
    # Tell of this rule only.
    rule: str

    def explain(self, resource: JsonObject) -> Iterator[Explanation]:
        """The explanation of each policy for one resource."""
        request, name = self.requests.make_request(resource), name_resource(resource)
        for policy in (*self.policies.about_resources, *self.policies.listed_deletions):
            kind = registry().of(policy)
            listen = self._listen if kind.role is Role.POLICY else self._listen_to_deletion
            heard, results = listen(policy, request)
            rules = resolve(kind.explain)(policy, self.policies.bindings, heard, results)
            if kind.has_named_rules and self.rule:
                rules = tuple(rule for rule in rules if rule.rule == self.rule)
            yield Explanation(policy.metadata.name, name, rules)

    def _listen_to_deletion(
        self, policy: PolicyRecord, request: Request
    ) -> tuple[Sequence[ClosureAnswer], Sequence[Result]]:
        recorder = Recorder()
        options = choose_options(self.given, OfflineLookups(self.requests.values, self.given))
        options["watch_rule"] = recorder.for_rule
        programs = compile_cleanups((policy, *self.exceptions), **options)
        return recorder.answers, [judge_deletion(program, request) for program in programs]

    def _listen(
        self, policy: PolicyRecord, request: Request
    ) -> tuple[Sequence[ClosureAnswer], Sequence[Result]]:
        options = choose_options(self.given, OfflineLookups(self.requests.values, self.given))
        told = explain_policy(
            policy,
            request,
            companions=(*self.policies.bindings, *self.exceptions),
            adapt=self.requests.adapt,
            **options,
        )
        return told.heard, told.verdict.results
