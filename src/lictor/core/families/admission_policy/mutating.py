"""MutatingAdmissionPolicy becomes a program: one rule for each binding that puts it into force."""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import bind_rule, make_rule, put_off
from lictor.core.compile.needs import state_needs
from lictor.core.compile.selection import bound_constrained
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import ResultTemplate
from lictor.core.evaluate.cel.expressions import compile_match_conditions
from lictor.core.evaluate.cel.mutate import AdmissionMutatingCheck
from lictor.core.evaluate.cel.mutations import compile_mutations
from lictor.core.evaluate.cel.params import FindParams, compile_params
from lictor.core.families.admission_policy.bindings import compile_language, select_bound
from lictor.core.families.admission_policy.records import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    MutatingAdmissionSpec,
)
from lictor.core.families.registry import refer
from lictor.core.model.program import Check, CompiledRule, Phase, Program
from lictor.core.model.result import Action, PolicyRef, RuleType

_Binding: TypeAlias = MutatingAdmissionPolicyBinding


def compile_mutating_admission(policy: MutatingAdmissionPolicy, context: CompileContext) -> Program:
    """Turn a policy into a program.

    In a cluster, a policy without binding does nothing; an offline evaluation of such a policy
    wants to know what it would do.
    """
    around = context.cel
    ref = refer(policy)
    bindings = [
        binding for binding in context.select(_Binding) if binding.spec.policy_name == ref.name
    ]
    compiler = _Compiler(policy, ref, around)
    return Program(
        policy=ref, rules=state_needs(map(compiler.rule, bindings or (None,)), policy.spec)
    )


class _Compiler(msgspec.Struct, frozen=True):
    policy: MutatingAdmissionPolicy
    ref: PolicyRef
    around: CelContext

    def rule(self, binding: _Binding | None) -> CompiledRule:
        constraints = self.policy.spec.match_constraints
        made = make_rule(
            self.ref.name,
            Phase.MUTATE,
            self._action(),
            select=lambda: select_bound(constraints, binding, self.ref.name, self.around),
            check=put_off(lambda: self._check(binding), self.around),
        )
        return bind_rule(made, bound_constrained(constraints, self.ref, self.around))

    def _action(self) -> Action:
        ignores = self.policy.spec.failure_policy == "Ignore"
        return Action.AUDIT if ignores else Action.ENFORCE

    def _check(self, binding: _Binding | None) -> Check:
        spec = self.policy.spec
        language = compile_language(self.policy, self.around, has_patches=True)
        texts = [*list_mutation_texts(spec)]
        return AdmissionMutatingCheck(
            view=self.around.viewpoint.view(texts),
            template=ResultTemplate(self.ref, RuleType.MUTATION, self._action()),
            properties={} if binding is None else {"mapBinding": binding.metadata.name},
            matches=compile_match_conditions(
                spec.match_conditions, language, ignore_errors=spec.failure_policy == "Ignore"
            ),
            change=compile_mutations(spec.mutations, language),
            find_params=self._params(binding),
            as_list=any("params.items" in text for text in texts),
        ).check

    def _params(self, binding: _Binding | None) -> FindParams | None:
        kind = self.policy.spec.param_kind
        if kind is None or binding is None or binding.spec.param_ref is None:
            return None
        return compile_params(kind, binding.spec.param_ref, self.around)


def list_mutation_texts(spec: MutatingAdmissionSpec) -> Iterator[str]:
    """All expressions of a policy."""
    for condition in spec.match_conditions:
        yield condition.expression
    for variable in spec.variables:
        yield variable.expression
    for mutation in spec.mutations:
        for patch in (mutation.apply_configuration, mutation.json_patch):
            if patch is not None:
                yield patch.expression
