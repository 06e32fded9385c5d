"""ValidatingPolicy and NamespacedValidatingPolicy become programs."""

from collections.abc import Callable, Iterator

import msgspec

from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import bind_rule, build_when_used, make_rule, put_off
from lictor.core.compile.needs import state_needs
from lictor.core.compile.selection import (
    bound_constrained,
    choose_action,
    select_all,
    select_constrained,
)
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import ResultTemplate, compile_exemptions
from lictor.core.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
from lictor.core.evaluate.cel.pod_extraction import check_templates
from lictor.core.evaluate.cel.validate import check_exempted, report_errors
from lictor.core.evaluate.cel.validations import EvaluateActivation, compile_validations
from lictor.core.evaluate.cel.views import View, view_payload
from lictor.core.families.kyverno_cel.autogen import (
    TemplatePath,
    find_custom_workloads,
    list_template_paths,
)
from lictor.core.families.kyverno_cel.records import ValidatingPolicy
from lictor.core.families.registry import refer
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.model.cel_policy import ValidatingSpec
from lictor.core.model.constraints import MatchResources
from lictor.core.model.program import Check, CompiledRule, Phase, Program, Select
from lictor.core.model.result import Action, PolicyRef, RuleType, Status


def compile_validating(policy: ValidatingPolicy, context: CompileContext) -> Program:
    """Turn a policy into a program; one that does not compile answers with the reason."""
    around = context.cel
    ref = refer(policy)
    spec = policy.spec
    return Program(
        policy=ref,
        rules=state_needs(_compile_rules(spec, ref, around), spec),
        admission=spec.evaluation.admission.enabled,
        background=spec.evaluation.background.enabled,
        emit_warning="Warn" in spec.validation_actions,
    )


def _compile_rules(
    spec: ValidatingSpec, ref: PolicyRef, around: CelContext
) -> Iterator[CompiledRule]:
    builder = _Builder(ref, around, choose_action(spec.validation_actions))
    mode = spec.evaluation.mode
    if mode == "JSON":
        yield builder.rule(lambda: select_all, lambda: builder.check(spec, view_payload()))
    elif mode == "Kubernetes":
        constraints = spec.match_constraints
        rule = builder.rule(
            lambda: select_constrained(constraints, ref, around),
            lambda: builder.see_and_check(spec),
        )
        yield bind_rule(rule, bound_constrained(constraints, ref, around))
        for template_path in list_template_paths(constraints, spec.autogen.pod_controllers):
            bounds = bound_constrained(template_path.constraints, ref, around)
            yield bind_rule(builder.template_rule(spec, template_path), bounds)
        custom = find_custom_workloads(constraints, spec.autogen.pod_controllers)
        if custom is not None:
            bounds = bound_constrained(custom, ref, around)
            yield bind_rule(builder.extracting_rule(spec, custom), bounds)
    else:
        # Envoy and HTTP: not about resources.
        from lictor.core.families.kyverno_cel.authorizing import REQUEST_KINDS, compile_authorizing

        if mode in REQUEST_KINDS:
            yield from compile_authorizing(spec, ref, around)


class _Builder(msgspec.Struct, frozen=True):
    ref: PolicyRef
    around: CelContext
    action: Action

    def rule(self, select: Callable[[], Select], check: Callable[[], Check]) -> CompiledRule:
        check = put_off(check, self.around)
        return make_rule("", Phase.VALIDATE, self.action, select=select, check=check)

    def template_rule(self, spec: ValidatingSpec, template_path: TemplatePath) -> CompiledRule:
        return self.rule(
            lambda: select_constrained(template_path.constraints, self.ref, self.around),
            lambda: build_when_used(lambda: self.see_and_check(template_path.rewrite(spec))),
        )

    def extracting_rule(self, spec: ValidatingSpec, custom: MatchResources) -> CompiledRule:
        template = ResultTemplate(self.ref, RuleType.VALIDATION, self.action)
        return self.rule(
            lambda: select_constrained(custom, self.ref, self.around),
            lambda: check_templates(self.see_and_check(spec), template, ""),
        )

    def see_and_check(self, spec: ValidatingSpec) -> Check:
        return self.check(spec, self.around.viewpoint.view(_list_texts(spec)))

    def check(self, spec: ValidatingSpec, view: View) -> Check:
        ref, around = self.ref, self.around
        language = ExpressionCompiler(
            kyverno_environment("validating", is_namespaced=bool(ref.namespace)),
            around.host_functions(ref.namespace),
            watch=around.watch_rule(""),
        )
        template = ResultTemplate(ref, RuleType.VALIDATION, self.action)
        ignore = spec.failure_policy == "Ignore"
        judge = self._judge(spec, language, template)
        exemptions = compile_exemptions(around.exceptions, ref, language, ignore_errors=ignore)
        # "Ignore" is about the webhook and matchConditions: a validation that cannot be decided
        # refuses, as in Kyverno, where policies rely on it.
        return report_errors(check_exempted(view, exemptions, judge, template), template)

    def _judge(
        self, spec: ValidatingSpec, language: ExpressionCompiler, template: ResultTemplate
    ) -> EvaluateActivation:
        judge = compile_validations(
            spec.validations,
            spec.audit_annotations,
            language.declare(spec.variables),
            template,
            "",
            report_index=True,
        )
        matches = compile_match_conditions(
            spec.match_conditions, language, ignore_errors=spec.failure_policy == "Ignore"
        )
        if matches is None:
            return judge
        skipped = template.make("", Status.SKIP, "skip")
        return lambda activation: judge(activation) if matches(activation) else skipped


def _list_texts(spec: ValidatingSpec) -> Iterator[str]:
    for condition in spec.match_conditions:
        yield condition.expression
    for variable in spec.variables:
        yield variable.expression
    for validation in spec.validations:
        yield validation.expression
        yield validation.message_expression
    for annotation in spec.audit_annotations:
        yield annotation.value_expression
