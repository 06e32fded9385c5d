"""A family and a command of another package: they use `lictor.__all__` and nothing else of lictor."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import click
import msgspec

import lictor
from lictor import Json, PolicyKind

# --- records: what documents look like, and the schema of the CustomResourceDefinition


class RequiredLabelsSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Which labels which objects must have."""

    labels: tuple[str, ...]
    match_constraints: lictor.MatchResources
    enforce: bool = True


class RequiredLabels(msgspec.Struct, frozen=True, rename="camel"):
    """A policy about labels."""

    api_version: str
    kind: Literal["RequiredLabels"]
    metadata: lictor.Metadata
    spec: RequiredLabelsSpec
    status: Json = None

    @property
    def action(self) -> lictor.Action:
        return lictor.Action.ENFORCE if self.spec.enforce else lictor.Action.AUDIT


# --- the family: the entry point `required_labels:FAMILY` of the group `lictor.families`


class LabelFamily(lictor.Family):
    """One kind, which lists the labels that objects must have."""

    name = "required_labels"

    def list_kinds(self) -> tuple[PolicyKind, ...]:
        kind = PolicyKind(
            family=self,
            group="labels.example.com",
            kind="RequiredLabels",
            plural="requiredlabels",
            short_name="reqlab",
            namespaced=False,
            versions=("v1",),
            preferred_version="v1",
            phases=(lictor.Phase.VALIDATE,),
            crd=lictor.CrdShape("v1*", "Labels that objects must have."),
            path=lictor.WebhookPath("labels"),
            report_source="required-labels",
        )
        return (kind,)

    def get_record(self, kind: PolicyKind) -> type[msgspec.Struct]:
        return RequiredLabels

    def compile(
        self, record: lictor.PolicyRecord, context: lictor.CompileContext
    ) -> lictor.Program:
        policy = lictor.expect_record(record, RequiredLabels)
        return _build_program(policy, _compile_check(policy), context)

    def compile_failing(
        self,
        record: lictor.PolicyRecord,
        error: lictor.LictorError,
        context: lictor.CompileContext,
    ) -> lictor.Program:
        def check(_: lictor.Case) -> tuple[lictor.Result, ...]:
            raise error

        return _build_program(lictor.expect_record(record, RequiredLabels), check, context)

    def describe_webhook(self, record: lictor.PolicyRecord) -> lictor.WebhookMatch:
        return lictor.WebhookMatch(record.spec.match_constraints)

    def list_expected_work(self, record: lictor.PolicyRecord) -> frozenset[lictor.RuleType]:
        return frozenset([lictor.RuleType.VALIDATION])

    def read_mode(self, record: lictor.PolicyRecord) -> str:
        return lictor.expect_record(record, RequiredLabels).action.lower()

    def lint(self, kind: PolicyKind, document: Json) -> Iterable[lictor.Finding]:
        """A label that is listed twice is most likely a mistake."""
        labels = document["spec"].get("labels") or []
        for index, label in enumerate(labels):
            if label in labels[:index]:
                message = f'the label "{label}" is wanted twice'
                yield lictor.Finding(("spec", "labels", index), message, check="bad-settings")


FAMILY = LabelFamily()


def _compile_check(policy: RequiredLabels) -> lictor.Check:
    wanted, ref = policy.spec.labels, lictor.refer(policy)
    kind, action = lictor.RuleType.VALIDATION, policy.action
    passed = (lictor.Result(ref, "labels", kind, lictor.Status.PASS, action=action),)

    def check(case: lictor.Case) -> tuple[lictor.Result, ...]:
        labels = (case.request.resource.get("metadata") or {}).get("labels") or {}
        missing = [label for label in wanted if label not in labels]
        if not missing:
            return passed
        message = f"these labels are missing: {', '.join(missing)}"
        return (lictor.Result(ref, "labels", kind, lictor.Status.FAIL, message, action),)

    return check


def _build_program(
    policy: RequiredLabels, check: lictor.Check, context: lictor.CompileContext
) -> lictor.Program:
    ref = lictor.refer(policy)
    select = lictor.select_constrained(policy.spec.match_constraints, ref, context.cel)
    rule = lictor.CompiledRule("labels", lictor.Phase.VALIDATE, select, check, policy.action)
    return lictor.Program(ref, (rule,))


# --- the command: the entry point `required_labels:count_labels` of the group `lictor.commands`


@click.command("count-labels")
@click.argument("policies", type=click.Path(path_type=Path, exists=True))
@click.argument("resources", type=click.Path(path_type=Path, exists=True))
def count_labels(policies: Path, resources: Path) -> None:
    """Count the objects in RESOURCES that the POLICIES deny."""
    engine = lictor.Engine(lictor.load_policies(policies))
    verdicts = [engine.evaluate(each) for each in lictor.load_resources(resources)]
    denied = sum(not verdict.allowed for verdict in verdicts)
    click.echo(f"{denied} of {len(verdicts)} objects are denied")
