"""MutatingAdmissionPolicy becomes a program: one rule for each binding that puts it into force."""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.compile.cel.answers import Voice
from lictor.compile.cel.bindings import select_bound
from lictor.compile.cel.conditions import (
    UNDECIDED,
    Holds,
    Language,
    compile_match_conditions,
)
from lictor.compile.cel.deferral import make_rule
from lictor.compile.cel.mutations import Change, compile_mutations
from lictor.compile.cel.params import FindParams, compile_params
from lictor.compile.cel.surroundings import CelSurroundings, refer
from lictor.evaluate.cel import View
from lictor.lang.cel.activation import Activation
from lictor.lang.cel.environment import kubernetes_environment
from lictor.model.admission import MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding
from lictor.model.program import Case, Check, CompiledRule, Phase, Program
from lictor.model.result import Action, PolicyRef, Result, RuleType, Status
from lictor.raw import JsonObject

_SOURCE = "MutatingAdmissionPolicy"

_Binding: TypeAlias = MutatingAdmissionPolicyBinding


def compile_mutating_admission(policy: MutatingAdmissionPolicy, around: CelSurroundings) -> Program:
    """Turn a policy into a program.

    In a cluster, a policy without binding does nothing; whoever asks offline about such a policy
    wants to know what it would do.
    """
    ref = refer(policy.api_version, policy.kind, policy.metadata, _SOURCE)
    bindings = [
        binding
        for binding in around.bindings_of(ref.name, policy.kind)
        if isinstance(binding, _Binding)
    ]
    compiler = _Compiler(policy, ref, around)
    return Program(
        policy=ref, rules=tuple(compiler.rule(binding) for binding in bindings or (None,))
    )


class _Compiler(msgspec.Struct, frozen=True):
    policy: MutatingAdmissionPolicy
    ref: PolicyRef
    around: CelSurroundings

    def rule(self, binding: _Binding | None) -> CompiledRule:
        constraints = self.policy.spec.match_constraints
        return make_rule(
            self.ref.name,
            Phase.MUTATE,
            self._action(),
            select=lambda: select_bound(constraints, binding, self.ref.name, self.around),
            check=lambda: self._check(binding),
        )

    def _action(self) -> Action:
        ignores = self.policy.spec.failure_policy == "Ignore"
        return Action.AUDIT if ignores else Action.ENFORCE

    def _check(self, binding: _Binding | None) -> Check:
        spec = self.policy.spec
        language = self._language().declare(spec.variables)
        return _Parts(
            view=self.around.viewpoint.view(self._list_texts()),
            voice=Voice(self.ref, RuleType.MUTATION, self._action()),
            properties={} if binding is None else {"mapBinding": binding.metadata.name},
            matches=compile_match_conditions(
                spec.match_conditions, language, ignore_errors=spec.failure_policy == "Ignore"
            ),
            change=compile_mutations(spec.mutations, language),
            find_params=self._params(binding),
            as_list=any("params.items" in text for text in self._list_texts()),
        ).check

    def _language(self) -> Language:
        environment = kubernetes_environment(
            has_params=self.policy.spec.param_kind is not None, has_patches=True
        )
        watch = self.around.watch_rule(self.ref.name)
        return Language(environment, self.around.world(), watch=watch, lenient=True)

    def _params(self, binding: _Binding | None) -> FindParams | None:
        kind = self.policy.spec.param_kind
        if kind is None or binding is None or binding.spec.param_ref is None:
            return None
        return compile_params(kind, binding.spec.param_ref, self.around)

    def _list_texts(self) -> Iterator[str]:
        spec = self.policy.spec
        for condition in spec.match_conditions:
            yield condition.expression
        for variable in spec.variables:
            yield variable.expression
        for mutation in spec.mutations:
            for patch in (mutation.apply_configuration, mutation.json_patch):
                if patch is not None:
                    yield patch.expression


class _Parts(msgspec.Struct, frozen=True):
    """A policy's compiled parts, with those of one binding."""

    view: View
    voice: Voice
    properties: dict[str, str]
    matches: Holds | None
    change: Change
    find_params: FindParams | None
    as_list: bool

    def check(self, case: Case) -> tuple[Result, ...]:
        """Change the object; once for each parameter, as the one before left it."""
        before = case.request.object
        if before is None:
            return ()
        try:
            after = self._run(case, before)
        except UNDECIDED as error:
            return self._say(Status.ERROR, str(error))
        if after is None:
            return self._say(Status.SKIP, "match conditions aren't met")
        if case.request.background and after != before:
            # A scan changes nothing: it tells what a request would have changed.
            return self._say(Status.FAIL, "mutation is not applied")
        passed = self._say(Status.PASS, "mutation is successfully applied")
        return (replace(passed[0], patched=after),)

    def _run(self, case: Case, before: JsonObject) -> JsonObject | None:
        if self.find_params is None:
            return self._run_once(case, before, {})
        found = self.find_params(case.request)
        if self.as_list:
            # Kyverno hands all objects of a selector over at once; the API server, one by one.
            return self._run_once(case, before, {"params": {"items": list(found)}})
        after: JsonObject | None = None
        for params in found:
            current = after if after is not None else before
            others = {"params": params, "object": current}
            changed = self._run_once(case, current, others)
            after = changed if changed is not None else after
        return before if not found else after

    def _run_once(self, case: Case, before: JsonObject, others: JsonObject) -> JsonObject | None:
        view = self.view
        activation = view.adding(case, **others) if others else view(case)
        if self.matches is not None and not self.matches(activation):
            return None

        def see(changed: JsonObject, _: JsonObject) -> Activation:
            return view.adding(case, **{**others, "object": changed})

        return self.change(activation, before, see)

    def _say(self, status: Status, message: str) -> tuple[Result]:
        name = self.voice.policy.name
        return self.voice.say(name, status, message, properties=self.properties)
