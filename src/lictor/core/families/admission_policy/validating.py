"""ValidatingAdmissionPolicy becomes a program: a rule for each binding that puts it in force."""

import msgspec

from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import bind_rule, make_rule, put_off
from lictor.core.compile.needs import state_needs
from lictor.core.compile.selection import bound_constrained, choose_action, select_none
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import ResultTemplate
from lictor.core.evaluate.cel.expressions import compile_annotations
from lictor.core.evaluate.cel.params import FindParams, compile_params
from lictor.core.evaluate.cel.validate import DecisionResults
from lictor.core.evaluate.cel.validations import (
    compile_decisions,
    decide_with_params,
    list_decision_texts,
    require_validations,
)
from lictor.core.families.admission_policy.bindings import (
    compile_language,
    select_both,
    with_operations,
)
from lictor.core.families.admission_policy.records import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionSpec,
)
from lictor.core.families.registry import refer
from lictor.core.match.constraints import compile_constraints, spare_guards
from lictor.core.model.constraints import MatchResources
from lictor.core.model.program import Case, Check, CompiledRule, Phase, Program, Select
from lictor.core.model.result import Action, PolicyRef, Result, RuleType

_Binding = ValidatingAdmissionPolicyBinding


def compile_admission(policy: ValidatingAdmissionPolicy, context: CompileContext) -> Program:
    """Turn a policy into a program.

    In a cluster, a policy without binding does nothing; an offline evaluation of such a policy
    shows its result.
    """
    around = context.cel
    ref = refer(policy)
    bindings = [
        binding for binding in context.select(_Binding) if binding.spec.policy_name == ref.name
    ]
    compiler = _Compiler(policy, ref, around)
    return Program(
        policy=ref,
        rules=state_needs(map(compiler.rule, bindings or (None,)), policy.spec),
        emit_warning=any("Warn" in binding.spec.validation_actions for binding in bindings),
    )


class _Compiler(msgspec.Struct, frozen=True):
    policy: ValidatingAdmissionPolicy
    ref: PolicyRef
    around: CelContext

    def rule(self, binding: _Binding | None) -> CompiledRule:
        action = choose_action(binding.spec.validation_actions if binding is not None else ())
        # What cannot be decided passes with "Ignore".
        doubtful = Action.AUDIT if self.policy.spec.failure_policy == "Ignore" else action
        made = make_rule(
            self.ref.name,
            Phase.VALIDATE,
            doubtful,
            select=lambda: self._select(binding),
            check=put_off(lambda: self._check(binding, action), self.around),
        )
        constraints = self.policy.spec.match_constraints
        return bind_rule(made, bound_constrained(constraints, self.ref, self.around))

    def _select(self, binding: _Binding | None) -> Select:
        constraints = self.policy.spec.match_constraints
        if constraints is None:
            return select_none
        if binding is None:
            return spare_guards(self._constrain(constraints, "matchConstraints"))
        # An API server requires operations; Kyverno also evaluates a bound policy without them.
        select = self._constrain(with_operations(constraints), "matchConstraints")
        if binding.spec.match_resources is not None:
            where = f"{binding.metadata.name}: matchResources"
            select = select_both(select, self._constrain(binding.spec.match_resources, where))
        return spare_guards(select)

    def _constrain(self, constraints: MatchResources, where: str) -> Select:
        watch = self.around.watch_rule(self.ref.name)
        return compile_constraints(
            constraints, self.around.resource_names, where=where, watch=watch
        )

    def _check(self, binding: _Binding | None, action: Action) -> Check:
        spec = self.policy.spec
        require_validations(spec.validations, spec.audit_annotations, "validations")
        view = self.around.native_viewpoint.view(list_validation_texts(spec))
        language = compile_language(self.policy, self.around)
        decide = compile_decisions(
            spec.match_conditions,
            spec.validations,
            language,
            ignore_errors=spec.failure_policy == "Ignore",
        )
        told = DecisionResults(
            ResultTemplate(self.ref, RuleType.VALIDATION, action),
            {} if binding is None else {"binding": binding.metadata.name},
            compile_annotations(spec.audit_annotations, language),
            ignores_errors=spec.failure_policy == "Ignore",
        )
        decide_case = decide_with_params(decide, view, self._params(binding))

        def check(case: Case) -> tuple[Result, ...]:
            decision = decide_case(case)
            return told.build(decision.ruling, decision.message, case, view)

        return check

    def _params(self, binding: _Binding | None) -> FindParams | None:
        kind = self.policy.spec.param_kind
        if kind is None or binding is None or binding.spec.param_ref is None:
            return None
        return compile_params(kind, binding.spec.param_ref, self.around)


def list_validation_texts(spec: ValidatingAdmissionSpec) -> list[str]:
    """All expressions of a policy."""
    texts = [*list_decision_texts(spec.match_conditions, spec.variables, spec.validations)]
    return [*texts, *(annotation.value_expression for annotation in spec.audit_annotations)]
