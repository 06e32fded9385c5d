"""A whole family of policies in one file: one kind, which says which labels objects must have."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from lictor.core.compile.context import CompileContext
from lictor.core.compile.selection import select_constrained
from lictor.core.errors import LictorError
from lictor.core.families.registry import CrdShape, PolicyKind, WebhookMatch, WebhookPath, refer
from lictor.core.model.constraints import MatchResources
from lictor.core.model.finding import Finding
from lictor.core.model.metadata import Metadata
from lictor.core.model.program import Case, Check, CompiledRule, Phase, Program
from lictor.core.model.result import Action, Result, RuleType, Status
from lictor.core.raw import Json, JsonObject
from lictor.lint.catalog import flag
from lictor.lint.documents_by_kind import LintContext

# --- records: what documents look like, and the schema of the CustomResourceDefinition


class RequiredLabelsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Which labels which objects must have."""

    labels: tuple[str, ...]
    match_constraints: MatchResources
    enforce: bool = True


class RequiredLabels(msgspec.Struct, frozen=True, rename="camel"):
    """A policy about labels."""

    api_version: str
    kind: Literal["RequiredLabels"]
    metadata: Metadata
    spec: RequiredLabelsSpec
    status: Json = None


# --- compile: a policy becomes a program


def compile_labels(policy: RequiredLabels, context: CompileContext) -> Program:
    """One rule that asks whether all labels are there."""
    wanted, ref, action = policy.spec.labels, refer(policy), _choose_action(policy)
    passed = (Result(ref, "labels", RuleType.VALIDATION, Status.PASS, action=action),)

    def check(case: Case) -> tuple[Result, ...]:
        labels = (case.request.resource.get("metadata") or {}).get("labels") or {}
        missing = [label for label in wanted if label not in labels]
        if not missing:
            return passed
        message = f"these labels are missing: {', '.join(missing)}"
        result = Result(ref, "labels", RuleType.VALIDATION, Status.FAIL, message, action)
        return (result,)

    return _build_program(policy, check, context)


def fail_labels(policy: RequiredLabels, error: LictorError, context: CompileContext) -> Program:
    """The program of a policy that may not be compiled: it answers with the error."""

    def check(_: Case) -> tuple[Result, ...]:
        raise error

    return _build_program(policy, check, context)


def _build_program(policy: RequiredLabels, check: Check, context: CompileContext) -> Program:
    ref = refer(policy)
    select = select_constrained(policy.spec.match_constraints, ref, context.cel)
    rule = CompiledRule("labels", Phase.VALIDATE, select, check, _choose_action(policy))
    return Program(ref, (rule,))


def _choose_action(policy: RequiredLabels) -> Action:
    return Action.ENFORCE if policy.spec.enforce else Action.AUDIT


# --- webhooks, tests, metrics


def describe_match(policy: RequiredLabels) -> WebhookMatch:
    """About what the API server asks."""
    return WebhookMatch(policy.spec.match_constraints)


def list_expected_work(_: RequiredLabels) -> frozenset[RuleType]:
    """`lictor test` expects an answer about each resource."""
    return frozenset([RuleType.VALIDATION])


def read_mode(policy: RequiredLabels) -> str:
    """The label policy_validation_mode of metrics."""
    return _choose_action(policy).lower()


# --- lint


def lint_labels(document: JsonObject, _: LintContext) -> Iterable[Finding]:
    """A label that is wanted twice is most likely a mistake."""
    return list(_find_repeated(document["spec"].get("labels") or []))


def _find_repeated(labels: list[Json]) -> Iterator[Finding]:
    for index, label in enumerate(labels):
        if label in labels[:index]:
            message = f'the label "{label}" is wanted twice'
            yield flag("bad-settings", ("spec", "labels", index), message)


# --- the declaration: the entry point `required_labels:KINDS` of the group `lictor.families`

KINDS = (
    PolicyKind(
        family="required_labels",
        group="labels.example.com",
        kind="RequiredLabels",
        plural="requiredlabels",
        short_name="reqlab",
        namespaced=False,
        versions=("v1",),
        preferred_version="v1",
        phases=(Phase.VALIDATE,),
        record=RequiredLabels,
        compile=compile_labels,
        compile_failing=fail_labels,
        crd=CrdShape("v1*", "Labels that objects must have."),
        path=WebhookPath("labels"),
        webhook_match=describe_match,
        read_mode=read_mode,
        lint=lint_labels,
        expected_work=list_expected_work,
        report_source="required-labels",
    ),
)
