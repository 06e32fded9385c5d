"""ImageValidatingPolicy becomes a program, up to the point where signatures must be verified."""

from collections.abc import Callable, Iterator

import msgspec

from lictor.compile.cel.deferral import build_when_used, make_rule
from lictor.compile.cel.selection import choose_action, select_all, select_constrained
from lictor.compile.context import CompileContext
from lictor.compile.needs import state_needs
from lictor.evaluate.cel.context import CelContext
from lictor.evaluate.cel.exceptions import (
    ResultTemplate,
    compile_exemptions,
)
from lictor.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
from lictor.evaluate.cel.validate import ImageValidatingCheck, compile_images
from lictor.evaluate.cel.validations import compile_validations
from lictor.evaluate.cel.views import View, view_payload
from lictor.families.kyverno_cel.autogen import Floor, list_floors
from lictor.families.kyverno_cel.records import ImageValidatingPolicy
from lictor.families.registry import refer
from lictor.lang.cel.environment import kyverno_environment
from lictor.model.cel_policy import ImageValidatingSpec
from lictor.model.program import Check, CompiledRule, Phase, Program, Select
from lictor.model.result import Action, PolicyRef, RuleType
from lictor.raw import JsonObject


def compile_image_validating(policy: ImageValidatingPolicy, context: CompileContext) -> Program:
    """Turn a policy into a program; one that does not compile answers with the reason."""
    around = context.cel
    ref = refer(policy)
    spec = policy.spec
    compiler = _Compiler(ref, around, choose_action(spec.validation_actions))
    return Program(
        policy=ref,
        rules=state_needs(compiler.rules(spec), spec),
        admission=spec.evaluation.admission.enabled,
        background=spec.evaluation.background.enabled,
        emit_warning="Warn" in spec.validation_actions,
    )


class _Compiler(msgspec.Struct, frozen=True):
    ref: PolicyRef
    around: CelContext
    action: Action

    def rules(self, spec: ImageValidatingSpec) -> Iterator[CompiledRule]:
        if spec.evaluation.mode == "JSON":
            yield self._rule(lambda: select_all, lambda: self._check(spec, view_payload()))
            return
        constraints = spec.match_constraints
        yield self._rule(
            lambda: select_constrained(constraints, self.ref, self.around),
            lambda: self._check(spec, self._view(spec)),
        )
        for floor in list_floors(constraints, spec.autogen.pod_controllers):
            yield self._floor_rule(spec, floor)

    def _floor_rule(self, spec: ImageValidatingSpec, floor: Floor) -> CompiledRule:
        def build() -> Check:
            rewritten = floor.rewrite(spec)
            return self._check(rewritten, self._view(rewritten))

        return self._rule(
            lambda: select_constrained(floor.constraints, self.ref, self.around),
            lambda: build_when_used(build),
        )

    def _rule(self, select: Callable[[], Select], check: Callable[[], Check]) -> CompiledRule:
        phase = Phase.VERIFY_IMAGES
        return make_rule(self.ref.name, phase, self.action, select=select, check=check)

    def _view(self, spec: ImageValidatingSpec) -> View:
        return self.around.viewpoint.view([msgspec.json.encode(spec).decode()])

    def _check(self, spec: ImageValidatingSpec, view: View) -> Check:
        ref, around = self.ref, self.around
        plain = ExpressionCompiler(
            kyverno_environment("image", is_namespaced=bool(ref.namespace)),
            around.host_functions(ref.namespace),
            watch=around.watch_rule(ref.name),
        )
        language = plain.declare(spec.variables)
        template = ResultTemplate(ref, RuleType.IMAGE_VERIFY, self.action)
        ignore = spec.failure_policy == "Ignore"
        return ImageValidatingCheck(
            view,
            compile_match_conditions(spec.match_conditions, plain, ignore_errors=ignore),
            compile_exemptions(around.exceptions, ref, plain, ignore_errors=ignore),
            compile_images(spec.images, spec.match_image_references, language),
            _describe(spec),
            compile_validations(
                spec.validations, spec.audit_annotations, language, template, ref.name
            ),
            template,
        ).check


def _describe(spec: ImageValidatingSpec) -> JsonObject:
    """The variables `attestors` and `attestations`."""
    return {
        "attestors": {each.name: msgspec.to_builtins(each) for each in spec.attestors},
        "attestations": {each.name: each.name for each in spec.attestations},
    }
