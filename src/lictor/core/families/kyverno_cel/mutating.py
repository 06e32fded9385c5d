"""MutatingPolicy and NamespacedMutatingPolicy become programs."""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import bind_rule, build_when_used, make_rule, put_off
from lictor.core.compile.needs import state_needs
from lictor.core.compile.selection import bound_constrained, select_constrained
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import ResultTemplate, compile_exemptions
from lictor.core.evaluate.cel.expressions import (
    UNDECIDED,
    ExpressionCompiler,
    compile_annotations,
    compile_match_conditions,
)
from lictor.core.evaluate.cel.mutate import (
    MutatingCheck,
    aim_at_target,
    compile_part,
    compile_targets,
)
from lictor.core.evaluate.cel.mutations import compile_mutations
from lictor.core.families.kyverno_cel.autogen import (
    TemplatePath,
    find_custom_workloads,
    list_template_paths,
    rewrite_mutating,
)
from lictor.core.families.kyverno_cel.records import MutatingPolicy
from lictor.core.families.registry import refer
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.model.cel_policy import MutatingSpec
from lictor.core.model.constraints import MatchResources
from lictor.core.model.program import Case, Check, CompiledRule, Phase, Program
from lictor.core.model.result import Action, PolicyRef, Result, RuleType, Status

_NOT_EXTRACTED = "extraction mode: mutation for custom workload CRDs is not yet supported"


def compile_mutating(policy: MutatingPolicy, context: CompileContext) -> Program:
    """Turn a policy into a program; one that does not compile answers with the reason."""
    around = context.cel
    ref = refer(policy)
    spec = policy.spec
    return Program(
        policy=ref,
        rules=state_needs(_compile_rules(spec, ref, around), spec),
        admission=spec.evaluation.admission.enabled,
        background=spec.evaluation.background.enabled,
        skips_background_requests=spec.evaluation.skip_background_requests,
    )


def _compile_rules(
    spec: MutatingSpec, ref: PolicyRef, around: CelContext
) -> Iterator[CompiledRule]:
    builder = _Builder(ref, around)
    changes_existing = spec.evaluation.mutate_existing.enabled
    if not changes_existing and _has_targets(spec):
        return  # existing objects are changed only with mutateExisting
    build = builder.build_existing if changes_existing else builder.build

    def rule(
        constraints: MatchResources | None,
        check: Callable[[], Check],
        seen: Callable[[], MutatingSpec],
    ) -> CompiledRule:
        made = make_rule(
            "",
            Phase.MUTATE,
            _action(spec),
            select=lambda: select_constrained(constraints, ref, around),
            check=check,
            applies=(lambda: builder.build_applies(seen())) if changes_existing else None,
        )
        return bind_rule(made, bound_constrained(constraints, ref, around))

    now = put_off(lambda: build(spec), around)
    yield rule(spec.match_constraints, now, lambda: spec)
    for template_path in list_template_paths(spec.match_constraints, spec.autogen.pod_controllers):
        seen = partial(rewrite_mutating, spec, template_path)
        yield rule(template_path.constraints, _defer(build, spec, template_path), seen)
    custom = find_custom_workloads(spec.match_constraints, spec.autogen.pod_controllers)
    if custom is not None:
        skipped = ResultTemplate(ref, RuleType.MUTATION, _action(spec))
        results = skipped.make("", Status.SKIP, _NOT_EXTRACTED)
        yield rule(custom, lambda: lambda _: results, lambda: spec)


def _defer(
    build: Callable[[MutatingSpec], Check], spec: MutatingSpec, template_path: TemplatePath
) -> Callable[[], Check]:
    return lambda: build_when_used(lambda: build(rewrite_mutating(spec, template_path)))


def _has_targets(spec: MutatingSpec) -> bool:
    targets = spec.target_match_constraints
    return targets is not None and bool(targets.resource_rules or targets.expression)


def _action(spec: MutatingSpec) -> Action:
    # A failed change denies the request unless the failure policy is Ignore.
    return Action.AUDIT if spec.failure_policy == "Ignore" else Action.ENFORCE


class _Builder(msgspec.Struct, frozen=True):
    ref: PolicyRef
    around: CelContext

    def build(self, spec: MutatingSpec) -> Check:
        """The check of a policy that changes the object of the request."""
        parts = self._compile(spec)

        def check(case: Case) -> tuple[Result, ...]:
            before = case.request.object
            return () if before is None else parts.run(case, before)

        return check

    def build_existing(self, spec: MutatingSpec) -> Check:
        """The check of a policy that changes what is there already."""
        parts = self._compile(spec)
        language = self._plain_language().declare(spec.variables)
        find = compile_targets(spec, self.ref, language, self.around)
        find_part = compile_part(spec, self.around)

        def check(case: Case) -> tuple[Result, ...]:
            try:
                activation = parts.view(case)
                # These conditions are about the request, targetMatchConditions about each target.
                if parts.matches is not None and not parts.matches(activation):
                    return ()
                targets = list(find(activation))
            except UNDECIDED as error:
                text = f"failed to find targets: {error}"
                return parts.template.make("evaluation", Status.ERROR, text)
            return tuple(
                aim_at_target(result, target, parts.template, find_part(target))
                for target in targets
                for result in parts.run(
                    case, target, object=target, oldObject=None, namespaceObject=None
                )
            )

        return check

    def build_applies(self, spec: MutatingSpec) -> Check:
        """Passes where `build_existing` would look for targets."""
        parts = self._compile(spec)

        def applies(case: Case) -> tuple[Result, ...]:
            try:
                if parts.matches is not None and not parts.matches(parts.view(case)):
                    return ()
            except UNDECIDED as error:
                text = f"failed to find targets: {error}"
                return parts.template.make("evaluation", Status.ERROR, text)
            return parts.template.make("", Status.PASS, "policy applies")

        return applies

    def _compile(self, spec: MutatingSpec) -> MutatingCheck:
        plain = self._plain_language()
        language = plain.declare(spec.variables)
        return MutatingCheck(
            view=self.around.viewpoint.view(_list_texts(spec)),
            template=ResultTemplate(self.ref, RuleType.MUTATION, _action(spec)),
            exemptions=compile_exemptions(self.around.exceptions, self.ref, plain),
            matches=compile_match_conditions(spec.match_conditions, language),
            change=compile_mutations(
                spec.mutations,
                language,
                keeps_variables=True,
                replaces_atomic=spec.evaluation.use_server_side_apply,
            ),
            annotate=compile_annotations(spec.audit_annotations, language, refuse_null=True),
            target_matches=compile_match_conditions(
                spec.target_match_conditions, language, where="targetMatchConditions"
            ),
        )

    def _plain_language(self) -> ExpressionCompiler:
        namespace = self.ref.namespace
        return ExpressionCompiler(
            kyverno_environment("mutating", is_namespaced=bool(namespace)),
            self.around.host_functions(namespace),
            watch=self.around.watch_rule(""),
        )


def _list_texts(spec: MutatingSpec) -> Iterator[str]:
    for condition in (*spec.match_conditions, *spec.target_match_conditions):
        yield condition.expression
    for variable in spec.variables:
        yield variable.expression
    for mutation in spec.mutations:
        for patch in (mutation.apply_configuration, mutation.json_patch):
            if patch is not None:
                yield patch.expression
    for annotation in spec.audit_annotations:
        yield annotation.value_expression
    if spec.target_match_constraints is not None:
        yield spec.target_match_constraints.expression


def list_existing_mutations(policy: MutatingPolicy) -> frozenset[str]:
    """The names of its rules where it changes objects that are there already."""
    existing = policy.spec.evaluation.mutate_existing.enabled
    return frozenset((policy.metadata.name, "")) if existing else frozenset()
