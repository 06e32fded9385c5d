"""ImageValidatingPolicy and NamespacedImageValidatingPolicy become programs."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import msgspec
from msgspec.structs import replace

from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import bind_rule, build_when_used, make_rule, put_off
from lictor.core.compile.needs import state_needs
from lictor.core.compile.selection import (
    bound_constrained,
    choose_action,
    select_all,
    select_constrained,
)
from lictor.core.errors import CompileError
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import ResultTemplate, compile_exemptions
from lictor.core.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
from lictor.core.evaluate.cel.image_attestors import (
    build_access,
    compile_attestations,
    compile_attestors,
)
from lictor.core.evaluate.cel.image_checks import (
    DigestPatch,
    ImagePolicyParts,
    ImageValidatingCheck,
    compile_images,
)
from lictor.core.evaluate.cel.image_verification import VerificationRules, bind_verification
from lictor.core.evaluate.cel.pod_extraction import check_templates
from lictor.core.evaluate.cel.validations import EvaluateActivation, compile_validations
from lictor.core.evaluate.cel.views import View, view_payload
from lictor.core.families.kyverno_cel.autogen import (
    TemplatePath,
    find_custom_workloads,
    list_requests,
    list_template_paths,
)
from lictor.core.families.kyverno_cel.records import ImageValidatingPolicy
from lictor.core.families.registry import refer
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.lang.watch import watch_nothing
from lictor.core.model.cel_policy import ImageValidatingSpec
from lictor.core.model.constraints import MatchResources
from lictor.core.model.program import Check, CompiledRule, Needs, Phase, Program, Select
from lictor.core.model.result import Action, PolicyRef, RuleType
from lictor.core.raw import JsonObject


def compile_image_validating(policy: ImageValidatingPolicy, context: CompileContext) -> Program:
    """Turn a policy into a program; one that does not compile answers with the reason."""
    around = context.cel
    ref = refer(policy)
    spec = policy.spec
    compiler = _Compiler(ref, around, choose_action(spec.validation_actions))
    return Program(
        policy=ref,
        # Digests are looked up independently of the expressions.
        rules=tuple(
            replace(rule, needs=rule.needs | Needs.IMAGES)
            for rule in state_needs(compiler.rules(spec), spec)
        ),
        admission=spec.evaluation.admission.enabled,
        background=spec.evaluation.background.enabled,
        emit_warning="Warn" in spec.validation_actions,
    )


class _Compiler(msgspec.Struct, frozen=True):
    ref: PolicyRef
    around: CelContext
    action: Action

    def rules(self, spec: ImageValidatingSpec) -> Iterator[CompiledRule]:
        yield from self._rules(spec, list_requests(spec), lambda: spec)
        if spec.evaluation.mode != "JSON":
            for template_path in list_template_paths(
                spec.match_constraints, spec.autogen.pod_controllers
            ):
                yield from self._template_rules(spec, template_path)
            custom = find_custom_workloads(spec.match_constraints, spec.autogen.pod_controllers)
            if custom is not None:
                yield self._extracting_rule(spec, custom)

    def _extracting_rule(self, spec: ImageValidatingSpec, custom: MatchResources) -> CompiledRule:
        """Digests are not written into custom workloads: where images are is not known."""

        def build() -> Check:
            check = ImageValidatingCheck(*self.compile(spec)).check
            template = ResultTemplate(self.ref, RuleType.IMAGE_VERIFY, self.action)
            return check_templates(check, template, self.ref.name)

        return self.rule(spec, Phase.VERIFY_IMAGES, custom, lambda: build_when_used(build))

    def _template_rules(
        self, spec: ImageValidatingSpec, template_path: TemplatePath
    ) -> Iterator[CompiledRule]:
        rewrite = partial(template_path.rewrite, spec)
        return self._rules(spec, template_path.constraints, rewrite, is_deferred=True)

    def _rules(
        self,
        spec: ImageValidatingSpec,
        constraints: MatchResources | None,
        rewrite: Callable[[], ImageValidatingSpec],
        *,
        is_deferred: bool = False,
    ) -> Iterator[CompiledRule]:
        """The rule that writes digests, where that is wanted, and the one that validates."""
        compiled = cache(lambda: self.compile(rewrite()))
        if spec.validation_configurations.mutate_digest:
            yield self._patch_rule(spec, constraints, rewrite, compiled)

        def build() -> Check:
            return ImageValidatingCheck(*compiled()).check

        check = (lambda: build_when_used(build)) if is_deferred else put_off(build, self.around)
        yield self.rule(spec, Phase.VERIFY_IMAGES, constraints, check)

    def _patch_rule(
        self,
        spec: ImageValidatingSpec,
        constraints: MatchResources | None,
        rewrite: Callable[[], ImageValidatingSpec],
        compiled: Callable[[], tuple[ImagePolicyParts, EvaluateActivation]],
    ) -> CompiledRule:
        maker = self
        if self.around.watch_rule is not watch_nothing:
            # An explanation need not contain the same answer twice.
            maker = replace(self, around=replace(self.around, watch_rule=watch_nothing))
            compiled = cache(lambda: maker.compile(rewrite()))

        def build() -> Check:
            return DigestPatch(compiled()[0]).check

        return maker.rule(
            spec, Phase.MUTATE, constraints, lambda: build_when_used(_build_or_none(build))
        )

    def rule(
        self,
        spec: ImageValidatingSpec,
        phase: Phase,
        constraints: MatchResources | None,
        check: Callable[[], Check],
    ) -> CompiledRule:
        def select() -> Select:
            if spec.evaluation.mode == "JSON":
                return select_all
            return select_constrained(constraints, self.ref, self.around)

        made = make_rule(self.ref.name, phase, self.action, select=select, check=check)
        return bind_rule(made, bound_constrained(constraints, self.ref, self.around))

    def _view(self, spec: ImageValidatingSpec) -> View:
        if spec.evaluation.mode == "JSON":
            return view_payload()
        return self.around.viewpoint.view([msgspec.json.encode(spec).decode()])

    def compile(self, spec: ImageValidatingSpec) -> tuple[ImagePolicyParts, EvaluateActivation]:
        ref, around = self.ref, self.around
        access = build_access(spec, ref.namespace)
        plain = ExpressionCompiler(
            kyverno_environment("image", is_namespaced=bool(ref.namespace)),
            bind_verification(around.host_functions(ref.namespace), around.lookups, access),
            watch=around.watch_rule(ref.name),
        )
        language = plain.declare(spec.variables)
        template = ResultTemplate(ref, RuleType.IMAGE_VERIFY, self.action)
        ignore = spec.failure_policy == "Ignore"
        parts = ImagePolicyParts(
            self._view(spec),
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
    """A check that changes nothing if the policy is invalid: the other rule returns the error."""

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
