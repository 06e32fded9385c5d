"""ImageValidatingPolicy and NamespacedImageValidatingPolicy become programs."""

from collections.abc import Callable, Iterator
from functools import cache

import msgspec

from lictor.compile.cel.deferral import build_when_used, make_rule
from lictor.compile.cel.selection import choose_action, select_all, select_constrained
from lictor.compile.context import CompileContext
from lictor.compile.needs import state_needs
from lictor.errors import CompileError
from lictor.evaluate.cel.context import CelContext
from lictor.evaluate.cel.exceptions import (
    ResultTemplate,
    compile_exemptions,
)
from lictor.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
from lictor.evaluate.cel.image_attestors import (
    build_access,
    compile_attestations,
    compile_attestors,
)
from lictor.evaluate.cel.image_checks import (
    DigestPatch,
    ImagePolicyParts,
    ImageValidatingCheck,
    compile_images,
)
from lictor.evaluate.cel.image_verification import VerificationRules, bind_verification
from lictor.evaluate.cel.validations import Judge, compile_validations
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
            yield from self._rules(spec, lambda: select_all, lambda: spec, view_payload())
            return
        constraints = spec.match_constraints
        yield from self._rules(
            spec, lambda: select_constrained(constraints, self.ref, self.around), lambda: spec
        )
        for floor in list_floors(constraints, spec.autogen.pod_controllers):
            yield from self._floor_rules(spec, floor)

    def _floor_rules(self, spec: ImageValidatingSpec, floor: Floor) -> Iterator[CompiledRule]:
        return self._rules(
            spec,
            lambda: select_constrained(floor.constraints, self.ref, self.around),
            lambda: floor.rewrite(spec),
            is_deferred=True,
        )

    def _rules(
        self,
        spec: ImageValidatingSpec,
        select: Callable[[], Select],
        rewrite: Callable[[], ImageValidatingSpec],
        view: View | None = None,
        *,
        is_deferred: bool = False,
    ) -> Iterator[CompiledRule]:
        """The rule that writes digests, where that is wanted, and the one that validates."""

        @cache
        def compile_once() -> tuple[ImagePolicyParts, Judge]:
            rewritten = rewrite()
            return self._compile(rewritten, view or self._view(rewritten))

        def build_patch() -> Check:
            return DigestPatch(compile_once()[0]).check

        def build_check() -> Check:
            return ImageValidatingCheck(*compile_once()).check

        if spec.validation_configurations.mutate_digest:
            yield self._rule(
                Phase.MUTATE, select, lambda: build_when_used(_build_or_none(build_patch))
            )
        yield self._rule(
            Phase.VERIFY_IMAGES,
            select,
            (lambda: build_when_used(build_check)) if is_deferred else build_check,
        )

    def _rule(
        self, phase: Phase, select: Callable[[], Select], check: Callable[[], Check]
    ) -> CompiledRule:
        return make_rule(self.ref.name, phase, self.action, select=select, check=check)

    def _view(self, spec: ImageValidatingSpec) -> View:
        return self.around.viewpoint.view([msgspec.json.encode(spec).decode()])

    def _compile(self, spec: ImageValidatingSpec, view: View) -> tuple[ImagePolicyParts, Judge]:
        ref, around = self.ref, self.around
        plain = ExpressionCompiler(
            kyverno_environment("image", is_namespaced=bool(ref.namespace)),
            bind_verification(around.host_functions(ref.namespace)),
            watch=around.watch_rule(ref.name),
        )
        language = plain.declare(spec.variables)
        template = ResultTemplate(ref, RuleType.IMAGE_VERIFY, self.action)
        ignore = spec.failure_policy == "Ignore"
        access = build_access(spec.credentials, ref.namespace)
        parts = ImagePolicyParts(
            view,
            compile_match_conditions(spec.match_conditions, plain, ignore_errors=ignore),
            compile_exemptions(around.exceptions, ref, plain, ignore_errors=ignore),
            compile_images(spec.images, spec.match_image_references, language),
            _describe(spec),
            VerificationRules(
                compile_attestors(spec, access, language),
                compile_attestations(spec),
                access,
                around.lookups,
                around.image_outcomes,
            ),
            spec.validation_configurations,
            template,
        )
        judge = compile_validations(
            spec.validations, spec.audit_annotations, language, template, ref.name
        )
        return parts, judge


def _build_or_none(build: Callable[[], Check]) -> Callable[[], Check]:
    """A check that changes nothing where the policy is wrong: the other rule says what is."""

    def build_anyway() -> Check:
        try:
            return build()
        except CompileError:
            return lambda _: ()

    return build_anyway


def _describe(spec: ImageValidatingSpec) -> JsonObject:
    """The variables `attestors` and `attestations`."""
    return {
        # Through JSON, as CEL knows lists and no tuples.
        "attestors": {
            each.name: msgspec.json.decode(msgspec.json.encode(each)) for each in spec.attestors
        },
        "attestations": {each.name: each.name for each in spec.attestations},
    }
