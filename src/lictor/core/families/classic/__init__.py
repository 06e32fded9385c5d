"""Kyverno's classic policies (kyverno.io): rules in YAML, exceptions from them, and cleanups."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from lictor.core.families.family import AbsentFields, Family, PolicyKind, expect_record
from lictor.core.families.kind_facts import (
    AGE_COLUMN,
    CrdShape,
    DeletionTargets,
    GenerationSettings,
    Role,
    SharedWebhookMatch,
    WebhookPath,
)
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Phase
from lictor.core.model.result import Result, RuleType
from lictor.core.raw import JsonObject

if TYPE_CHECKING:
    from lictor.core.compile.context import CompileContext
    from lictor.core.errors import LictorError
    from lictor.core.families.explanation import RuleExplanation
    from lictor.core.families.policy_status import PolicyFacts
    from lictor.core.lang.watch import ClosureAnswer
    from lictor.core.model.exception import PolicyException
    from lictor.core.model.policy import Policy
    from lictor.core.model.program import CleanupProgram, Program

_GROUP = "kyverno.io"
_ONE_FILTER = frozenset(["resources", "subjects", "roles", "clusterRoles"])
_OLD_IMAGE_FIELDS = frozenset(
    [
        *("image", "key", "roots", "subject", "issuer"),
        *("additionalExtensions", "annotations", "cosignOCI11"),
    ]
)
_POLICY_COLUMNS = f"""
ADMISSION | boolean | .spec.admission
BACKGROUND | boolean | .spec.background
READY | string | .status.conditions[?(@.type == "Ready")].status
{AGE_COLUMN}
FAILURE POLICY | string | .spec.failurePolicy | +
VALIDATE | integer | .status.rulecount.validate | +
MUTATE | integer | .status.rulecount.mutate | +
GENERATE | integer | .status.rulecount.generate | +
VERIFY IMAGES | integer | .status.rulecount.verifyimages | +
MESSAGE | string | .status.conditions[?(@.type == "Ready")].message
"""
_CLEANUP_COLUMNS = """
Schedule | string | .spec.schedule
Age | date | .metadata.creationTimestamp
"""
_RULES = (
    "Rules for the {}: what resources must look like, how they are changed, what is made for them, "
    "whose images they may use."
)
# As Kyverno 1.19.1 names them; lictor keeps the classic kinds.
_SUCCESSORS = {
    "ClusterPolicy": (
        "ValidatingPolicy, MutatingPolicy, GeneratingPolicy or ImageValidatingPolicy"
    ),
    "Policy": "NamespacedValidatingPolicy and the other namespaced policy types",
    "ClusterCleanupPolicy": "DeletingPolicy",
    "CleanupPolicy": "NamespacedDeletingPolicy",
    "PolicyException": "PolicyException",
}
_SAMPLE = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "sample"},
    "spec": {
        "rules": [
            {
                "name": "sample",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"message": "{{ to_upper('x') }}", "pattern": {"kind": "Pod"}},
            }
        ]
    },
}


class ClassicFamily(Family):
    """ClusterPolicy and Policy, their exceptions, and the policies that clean up."""

    name = "classic"

    def __init__(self) -> None:
        self._kinds = (
            self._declare_policy("ClusterPolicy", "clusterpolicies", namespaced=False),
            self._declare_policy("Policy", "policies", namespaced=True),
            self._declare_exception(),
            self._declare_cleanup("ClusterCleanupPolicy", "clustercleanuppolicies"),
            self._declare_cleanup("CleanupPolicy", "cleanuppolicies"),
        )

    def list_kinds(self) -> tuple[PolicyKind, ...]:
        return self._kinds

    def get_record(self, kind: PolicyKind) -> type[msgspec.Struct]:
        match kind.role:
            case Role.EXCEPTION:
                from lictor.core.model.exception import PolicyException

                return PolicyException
            case Role.DELETION:
                from lictor.core.families.classic.records import CleanupPolicy

                return CleanupPolicy
            case _:
                from lictor.core.model.policy import Policy

                return Policy

    def find_absent_fields(self, kind: PolicyKind, version: str) -> AbsentFields:
        from lictor.core.model.matching import Match
        from lictor.core.model.policy import Validate, VerifyImages

        if kind.role is not Role.POLICY:
            # Exceptions and cleanups have `any` and `all` only, in every version.
            return {Match: _ONE_FILTER}
        if version != "v2beta1":
            return {}
        return {
            Match: _ONE_FILTER,
            Validate: frozenset(["allowExistingViolations"]),
            VerifyImages: _OLD_IMAGE_FIELDS,
        }

    def compile(self, record: PolicyRecord, context: "CompileContext") -> "Program":
        from lictor.core.families.classic.compiler import compile_policy
        from lictor.core.model.policy import Policy

        return compile_policy(expect_record(record, Policy), context)

    def compile_failing(
        self, record: PolicyRecord, error: "LictorError", context: "CompileContext"
    ) -> "Program":
        from lictor.core.families.classic.compiler import compile_failing

        return compile_failing(_as_policy(record), error, context)

    def compile_cleanup(self, record: PolicyRecord, context: "CompileContext") -> "CleanupProgram":
        from lictor.core.families.classic.cleanup import compile_cleanup
        from lictor.core.families.classic.records import CleanupPolicy

        return compile_cleanup(expect_record(record, CleanupPolicy), context)

    def list_deletion_targets(self, record: PolicyRecord) -> DeletionTargets:
        from lictor.core.families.classic.cleanup import list_deletion_targets
        from lictor.core.families.classic.records import CleanupPolicy

        return list_deletion_targets(expect_record(record, CleanupPolicy))

    def is_asked(self, kind: PolicyKind, record: PolicyRecord, *, mutating: bool) -> bool:
        from lictor.core.families.classic.actions import is_asked

        return is_asked(_as_policy(record), mutating=mutating)

    def describe_shared_webhook(
        self, record: PolicyRecord, *, mutating: bool
    ) -> SharedWebhookMatch:
        from lictor.core.families.classic.webhooks import find_webhook_match

        return find_webhook_match(_as_policy(record), mutating=mutating)

    def list_named_namespaces(self, record: PolicyRecord) -> Sequence[str]:
        from lictor.core.families.classic.webhooks import list_named_namespaces

        return list_named_namespaces(_as_policy(record))

    def limit_program(self, program: "Program", record: PolicyRecord) -> "Program":
        from lictor.core.families.classic.webhooks import limit_to_named_kinds

        return limit_to_named_kinds(program, _as_policy(record))

    def names_policy(self, exception: PolicyRecord, kind: PolicyKind, key: str) -> bool:
        entries = _as_exception(exception).spec.exceptions
        return kind.family is self and any(entry.policy_name == key for entry in entries)

    def list_excepted(self, exception: PolicyRecord) -> Iterable[tuple[str, tuple[str, ...]]]:
        entries = _as_exception(exception).spec.exceptions
        return [(each.policy_name, each.rule_names) for each in entries]

    def list_expected_work(self, record: PolicyRecord) -> frozenset[RuleType]:
        from lictor.core.families.classic.actions import list_expected_work

        return list_expected_work(_as_policy(record))

    def explain(
        self,
        record: PolicyRecord,
        bindings: Sequence[PolicyRecord],
        recorded: "Sequence[ClosureAnswer]",
        results: Sequence[Result],
    ) -> "tuple[RuleExplanation, ...]":
        from lictor.core.families.classic.explanation import explain_classic
        from lictor.core.model.policy import Policy

        if not isinstance(record, Policy):
            return super().explain(record, bindings, recorded, results)
        return explain_classic(record, recorded, results)

    def read_mode(self, record: PolicyRecord) -> str:
        from lictor.core.families.classic.actions import read_mode
        from lictor.core.model.policy import Policy

        return read_mode(record) if isinstance(record, Policy) else ""

    def build_status(
        self,
        kind: PolicyKind,
        record: PolicyRecord | None,
        old: JsonObject,
        facts: "PolicyFacts",
        now: str,
    ) -> JsonObject:
        from lictor.core.families.classic.status import build_classic_status

        if kind.role is not Role.POLICY:
            return super().build_status(kind, record, old, facts, now)
        policy = None if record is None else _as_policy(record)
        return build_classic_status(policy, old, facts, now)

    def list_generations(self, record: PolicyRecord) -> Iterable[GenerationSettings]:
        from lictor.core.families.classic.actions import list_generations

        return list_generations(_as_policy(record))

    def list_chained_rules(self, record: PolicyRecord) -> Iterable[str]:
        from lictor.core.families.classic.actions import list_chained_rules

        return list_chained_rules(_as_policy(record))

    def list_existing_mutations(self, record: PolicyRecord) -> frozenset[str]:
        from lictor.core.families.classic.actions import list_existing_mutations

        return list_existing_mutations(_as_policy(record))

    def skips_scan(self, record: PolicyRecord) -> bool:
        from lictor.core.families.classic.actions import is_about_every_kind

        return is_about_every_kind(_as_policy(record))

    # --- declarations

    def _declare_policy(self, kind: str, plural: str, *, namespaced: bool) -> PolicyKind:
        where = "namespace that the policy is in" if namespaced else "whole cluster"
        return PolicyKind(
            family=self,
            group=_GROUP,
            kind=kind,
            plural=plural,
            namespaced=namespaced,
            versions=("v1", "v2beta1"),
            preferred_version="v1",
            short_name="pol" if namespaced else "cpol",
            crd=CrdShape("v1* v2beta1", _RULES.format(where), "PolicyStatus", _POLICY_COLUMNS),
            phases=tuple(Phase),
            has_named_rules=True,
            mutates_existing=True,
            has_native_form=not namespaced,
            path=WebhookPath(mutating=True),
            sample=None if namespaced else _SAMPLE,
            successors=_SUCCESSORS[kind],
        )

    def _declare_exception(self) -> PolicyKind:
        return PolicyKind(
            family=self,
            group=_GROUP,
            kind="PolicyException",
            plural="policyexceptions",
            namespaced=True,
            versions=("v2", "v2beta1"),
            preferred_version="v2",
            short_name="polex",
            crd=CrdShape(
                "v2* v2beta1!",
                "Resources that need not keep some rules of ClusterPolicies and Policies.",
                status="",
                columns="",
            ),
            role=Role.EXCEPTION,
            is_listed=False,
            review_path=("exception-validating", "/exceptionvalidate"),
            successors=_SUCCESSORS["PolicyException"],
        )

    def _declare_cleanup(self, kind: str, plural: str) -> PolicyKind:
        namespaced = not kind.startswith("Cluster")
        where = "this namespace" if namespaced else "the whole cluster"
        return PolicyKind(
            family=self,
            group=_GROUP,
            kind=kind,
            plural=plural,
            namespaced=namespaced,
            versions=("v2", "v2beta1"),
            preferred_version="v2",
            short_name="cleanpol" if namespaced else "ccleanpol",
            crd=CrdShape(
                "v2* v2beta1!",
                f"Objects of {where} that are deleted on a schedule.",
                "CleanupStatus",
                _CLEANUP_COLUMNS,
            ),
            role=Role.DELETION,
            is_listed=False,
            successors=_SUCCESSORS[kind],
        )


def _as_policy(record: PolicyRecord) -> "Policy":
    from lictor.core.model.policy import Policy

    return expect_record(record, Policy)


def _as_exception(record: PolicyRecord) -> "PolicyException":
    from lictor.core.model.exception import PolicyException

    return expect_record(record, PolicyException)


FAMILY = ClassicFamily()
