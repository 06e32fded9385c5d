"""Kyverno's policies in CEL (policies.kyverno.io), and exceptions from them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from lictor.core.families.family import Family, PolicyKind, expect_record
from lictor.core.families.kind_facts import (
    CrdShape,
    DeletionTargets,
    GenerationSettings,
    Role,
    WebhookMatch,
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
    from lictor.core.families.kyverno_cel.records import CelPolicy
    from lictor.core.families.policy_status import PolicyFacts
    from lictor.core.lang.watch import ClosureAnswer
    from lictor.core.model.cel_policy import CelException
    from lictor.core.model.program import CleanupProgram, Program

_GROUP = "policies.kyverno.io"
_VERSIONS = "v1 v1beta1* v1alpha1!"
_MATCH = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}
_SAMPLE = {
    "apiVersion": f"{_GROUP}/v1",
    "kind": "ValidatingPolicy",
    "metadata": {"name": "sample"},
    "spec": {"matchConstraints": _MATCH, "validations": [{"expression": "object != null"}]},
}


class CelFamily(Family):
    """ValidatingPolicy and the other kinds in CEL, each for the cluster or for one namespace."""

    name = "kyverno_cel"

    def list_kinds(self) -> tuple[PolicyKind, ...]:
        return (*self._declare_checks(), *self._declare_changes(), self._declare_exception())

    def get_record(self, kind: PolicyKind) -> type[msgspec.Struct]:
        if kind.role is Role.EXCEPTION:
            from lictor.core.model.cel_policy import CelException

            return CelException
        from lictor.core.families.kyverno_cel.records import RECORDS

        return RECORDS[kind.kind.removeprefix("Namespaced")]

    def compile(self, record: PolicyRecord, context: "CompileContext") -> "Program":
        from lictor.core.families.kyverno_cel import records

        match record:
            case records.ValidatingPolicy():
                from lictor.core.families.kyverno_cel.validating import compile_validating

                return compile_validating(record, context)
            case records.MutatingPolicy():
                from lictor.core.families.kyverno_cel.mutating import compile_mutating

                return compile_mutating(record, context)
            case records.GeneratingPolicy():
                from lictor.core.families.kyverno_cel.generating import compile_generating

                return compile_generating(record, context)
            case _:
                from lictor.core.families.kyverno_cel.image_validating import (
                    compile_image_validating,
                )

                return compile_image_validating(
                    expect_record(record, records.ImageValidatingPolicy), context
                )

    def compile_failing(
        self, record: PolicyRecord, error: "LictorError", context: "CompileContext"
    ) -> "Program":
        from lictor.core.families.kyverno_cel.failing import fail_cel_policy

        return fail_cel_policy(_as_policy(record), error, context)

    def compile_cleanup(self, record: PolicyRecord, context: "CompileContext") -> "CleanupProgram":
        from lictor.core.families.kyverno_cel.deleting import compile_deleting
        from lictor.core.families.kyverno_cel.records import DeletingPolicy

        return compile_deleting(expect_record(record, DeletingPolicy), context)

    def list_deletion_targets(self, record: PolicyRecord) -> DeletionTargets:
        from lictor.core.families.kyverno_cel.deleting import list_deletion_targets
        from lictor.core.families.kyverno_cel.records import DeletingPolicy

        return list_deletion_targets(expect_record(record, DeletingPolicy))

    def describe_webhook(self, record: PolicyRecord) -> WebhookMatch | None:
        from lictor.core.families.kyverno_cel.autogen import describe_match

        return describe_match(record)

    def names_policy(self, exception: PolicyRecord, kind: PolicyKind, key: str) -> bool:
        name = key.rpartition("/")[2]
        refs = _as_exception(exception).spec.policy_refs
        return kind.family is self and any(ref.name == name for ref in refs)

    def list_excepted(self, exception: PolicyRecord) -> Iterable[tuple[str, tuple[str, ...]]]:
        """The policies; their rules have no names."""
        return [(ref.name, ()) for ref in _as_exception(exception).spec.policy_refs]

    def list_expected_work(self, record: PolicyRecord) -> frozenset[RuleType]:
        from lictor.core.families.kyverno_cel.autogen import list_expected_work
        from lictor.core.families.kyverno_cel.records import DeletingPolicy

        policy = _as_policy(record)
        return frozenset() if isinstance(policy, DeletingPolicy) else list_expected_work(policy)

    def explain(
        self,
        record: PolicyRecord,
        bindings: Sequence[PolicyRecord],
        recorded: "Sequence[ClosureAnswer]",
        results: Sequence[Result],
    ) -> "tuple[RuleExplanation, ...]":
        from lictor.core.families.cel_explanation import explain_cel
        from lictor.core.families.kyverno_cel.autogen import list_variants

        variants = {each.name: each.spec for each in list_variants(record)}
        return explain_cel(record, bindings, recorded, results, variants)

    def build_status(
        self,
        kind: PolicyKind,
        record: PolicyRecord | None,
        old: JsonObject,
        facts: "PolicyFacts",
        now: str,
    ) -> JsonObject:
        from lictor.core.families.kyverno_cel.autogen import build_cel_status

        return build_cel_status(record, old, facts, now, has_native_form=kind.has_native_form)

    def list_generations(self, record: PolicyRecord) -> Iterable[GenerationSettings]:
        from lictor.core.families.kyverno_cel.generating import list_generations
        from lictor.core.families.kyverno_cel.records import GeneratingPolicy

        return list_generations(record) if isinstance(record, GeneratingPolicy) else ()

    def list_chained_rules(self, record: PolicyRecord) -> Iterable[str]:
        how = getattr(record.spec, "evaluation", None)
        skips = getattr(how, "skip_background_requests", True)
        # MutatingPolicies have rules without names, GeneratingPolicies those of the policy.
        return () if skips else ("", record.metadata.name)

    def list_existing_mutations(self, record: PolicyRecord) -> frozenset[str]:
        from lictor.core.families.kyverno_cel.mutating import list_existing_mutations
        from lictor.core.families.kyverno_cel.records import MutatingPolicy

        if not isinstance(record, MutatingPolicy):
            return frozenset()
        return list_existing_mutations(record)

    # --- declarations

    def _declare_checks(self) -> Iterator[PolicyKind]:
        yield from self._declare(
            "ValidatingPolicy",
            "vpol",
            CrdShape(_VERSIONS, "What must hold, in CEL"),
            phases=(Phase.VALIDATE,),
            cel_profile="validating",
            path=WebhookPath("vpol"),
            duration_metric="kyverno_validating_policy_execution_duration_seconds",
            has_native_form=True,
            sample=_SAMPLE,
        )
        yield from self._declare(
            "MutatingPolicy",
            "mpol",
            CrdShape(_VERSIONS, "What is changed, in CEL"),
            phases=(Phase.MUTATE,),
            cel_profile="mutating",
            path=WebhookPath("mpol", mutating=True, validating=False),
            mutates_existing=True,
            duration_metric="kyverno_mutating_policy_execution_duration_seconds",
            has_native_form=True,
        )

    def _declare_changes(self) -> Iterator[PolicyKind]:
        yield from self._declare(
            "GeneratingPolicy",
            "gpol",
            CrdShape(
                _VERSIONS, "Objects that are made because of others, in CEL", "GeneratingStatus"
            ),
            phases=(Phase.GENERATE,),
            cel_profile="generating",
            path=WebhookPath("gpol"),
            # Nothing is denied because an object cannot be generated.
            failure_policy="Ignore",
            duration_metric="kyverno_generating_policy_execution_duration_seconds",
        )
        yield from self._declare(
            "ImageValidatingPolicy",
            "ivpol",
            CrdShape(_VERSIONS, "Whose images may be used, in CEL", "ImageStatus"),
            phases=(Phase.VERIFY_IMAGES,),
            cel_profile="image",
            path=WebhookPath("ivpol", mutating=True),
            duration_metric="kyverno_image_validating_policy_execution_duration_seconds",
        )
        yield from self._declare(
            "DeletingPolicy",
            "dpol",
            CrdShape(_VERSIONS, "Objects that are deleted on a schedule, in CEL", "DeletingStatus"),
            role=Role.DELETION,
            cel_profile="deleting",
        )

    def _declare(
        self, kind: str, short_name: str, crd: CrdShape, /, **own: Any
    ) -> tuple[PolicyKind, PolicyKind]:
        """A kind for the whole cluster, and the same for one namespace."""
        cluster = PolicyKind(
            family=self,
            group=_GROUP,
            kind=kind,
            plural=f"{kind.lower().removesuffix('y')}ies",
            namespaced=False,
            versions=("v1", "v1beta1", "v1alpha1"),
            preferred_version="v1beta1",
            short_name=short_name,
            crd=replace(crd, description=f"{crd.description}, for the whole cluster."),
            report_source=f"Kyverno{kind}",
            **own,
        )
        return cluster, _declare_namespaced(cluster, crd)

    def _declare_exception(self) -> PolicyKind:
        return PolicyKind(
            family=self,
            group=_GROUP,
            kind="PolicyException",
            plural="policyexceptions",
            namespaced=True,
            versions=("v1", "v1beta1", "v1alpha1"),
            preferred_version="v1beta1",
            # The short name polex belongs to the other PolicyException.
            crd=CrdShape(
                _VERSIONS,
                "Requests, images or values that need not keep some CEL policies.",
                status="",
                columns="",
            ),
            role=Role.EXCEPTION,
            is_listed=False,
            review_path=("cel-exception-validating", "/celexception/validate"),
        )


def _declare_namespaced(cluster: PolicyKind, crd: CrdShape) -> PolicyKind:
    words = f"{crd.description}, for the namespace that the policy is in."
    short_name = f"n{cluster.short_name}"
    return replace(
        cluster,
        kind=f"Namespaced{cluster.kind}",
        plural=f"namespaced{cluster.plural}",
        namespaced=True,
        sample=None,
        short_name=short_name,
        # Newer than the kind for the cluster.
        versions=("v1", "v1beta1"),
        crd=CrdShape("v1 v1beta1*", words, crd.status),
        path=replace(cluster.path, segment=short_name) if cluster.path else None,
    )


def _as_policy(record: PolicyRecord) -> "CelPolicy":
    from lictor.core.families.kyverno_cel.records import CelPolicy

    if not isinstance(record, CelPolicy):
        raise TypeError(f"internal error: a CEL policy expected, not {type(record).__name__}")
    return record


def _as_exception(record: PolicyRecord) -> "CelException":
    from lictor.core.model.cel_policy import CelException

    return expect_record(record, CelException)


FAMILY = CelFamily()
