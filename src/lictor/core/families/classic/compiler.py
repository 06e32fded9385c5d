"""Kyverno's classic policies: ClusterPolicy and Policy become programs."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import defer_check, fail_always
from lictor.core.compile.needs import find_rule_needs
from lictor.core.errors import CompileError, DeadlineError, LictorError, SlowRequestError
from lictor.core.evaluate.conditions import compile_conditions
from lictor.core.evaluate.context import compile_context
from lictor.core.evaluate.guard import Exempt, RuleGuard, allow_existing, compile_exceptions, guard
from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.evaluate.validate import compile_validate
from lictor.core.families.classic.actions import (
    base_action,
    checks_finished_images,
    compile_override,
)
from lictor.core.families.classic.autogen import ExpandedRule, list_expanded
from lictor.core.families.registry import registry
from lictor.core.lang.watch import Watch, unwatched, watch_nothing
from lictor.core.match.bounds import find_bounds
from lictor.core.match.classic import (
    compile_match,
    has_selectors,
    names_deletion,
    names_operations,
    without_selectors,
)
from lictor.core.match.combine import DeferredSelect, but_deletions, remember, within
from lictor.core.model.exception import PolicyException
from lictor.core.model.matching import Match
from lictor.core.model.policy import Generate, Mutate, Policy, Rule, Validate
from lictor.core.model.program import (
    Bounds,
    Check,
    CompiledRule,
    Matcher,
    Needs,
    Phase,
    Program,
    Select,
)
from lictor.core.model.request import Request
from lictor.core.model.result import Action, PolicyRef, RuleType, Status


def compile_policy(policy: Policy, context: CompileContext) -> Program:
    """Turn a policy into a program; a rule that cannot be compiled answers with an error."""
    if not context.is_lazy:
        context.expressions.begin_policy()
    return _build_program(policy, context, _RuleCompiler.compile)


def compile_failing(policy: Policy, error: LictorError, context: CompileContext) -> Program:
    """A program of which every rule answers with an error; of a policy that is not compiled."""
    return _build_program(policy, context, lambda compiler: compiler.fail(error))


def _build_program(
    policy: Policy,
    context: CompileContext,
    compile_rule: "Callable[[_RuleCompiler], Iterator[CompiledRule]]",
) -> Program:
    ref = registry().of(policy).refer(policy)
    # Most policies need nothing, which one look shows for all their rules.
    has_needs = find_rule_needs(policy.spec) is not Needs.NOTHING
    compilers = [
        _RuleCompiler(policy, ref, each.rule, context, has_needs, each)
        for each in list_expanded(policy)
    ]
    return Program(
        policy=ref,
        rules=tuple(compiled for compiler in compilers for compiled in compile_rule(compiler)),
        first_only=policy.spec.apply_rules == "One",
        admission=policy.spec.admission,
        background=policy.spec.background,
        emit_warning=policy.spec.emit_warning,
    )


class _RuleCompiler(msgspec.Struct, frozen=True):
    policy: Policy
    ref: PolicyRef
    rule: Rule
    context: CompileContext
    # May the rule need something beside the request?
    has_needs: bool
    # Writes the rule: its body may not be moved yet.
    expanded: ExpandedRule

    def compile(self) -> Iterator[CompiledRule]:
        """One compiled rule for each thing that the rule does."""
        action = base_action(self.policy, self.rule)
        try:
            select = self._select(self.rule.match, self.rule.exclude)
            override = compile_override(self.policy, self.rule)
        except CompileError as error:
            yield from self.fail(error)
            return
        needs = find_rule_needs(self.rule) if self.has_needs else Needs.NOTHING
        for phase, kind, build in self._bodies():
            if self.context.is_lazy:
                check = defer_check(_RuleCompiler._compile_check, self, kind, build)
            else:
                check = self._compile_check(kind, build)
            chosen = select
            if phase is Phase.GENERATE and not names_deletion(self.rule.match):
                chosen = but_deletions(select)
            applies = self._applies(kind) if self._works_elsewhere(phase) else None
            yield CompiledRule(
                self.rule.name,
                phase,
                chosen,
                check,
                action,
                override,
                applies,
                any_operation=not names_operations(self.rule.match),
                needs=needs,
                bounds=self._bound(self.rule.match),
            )

    def fail(self, error: LictorError) -> Iterator[CompiledRule]:
        """The same with an error for an answer.

        Which requests the rule matches is unknown: all that it might match get the error.
        """
        action = base_action(self.policy, self.rule)
        match = without_selectors(self.rule.match)
        select, bounds = self._select(match, None), self._bound(match)
        check = fail_always(error)
        for phase, _, _ in self._bodies():
            applies = check if self._works_elsewhere(phase) else None
            yield CompiledRule(
                self.rule.name, phase, select, check, action, applies=applies, bounds=bounds
            )

    def _works_elsewhere(self, phase: Phase) -> bool:
        mutate = self.rule.mutate
        return phase is Phase.GENERATE or (
            # Rules for pod controllers have no targets.
            self.expanded.nesting is None
            and phase is Phase.MUTATE
            and mutate is not None
            and bool(mutate.targets)
        )

    def _applies(self, kind: RuleType) -> Check:
        """Everything that stands before the rule's body, without the body."""
        return defer_check(_RuleCompiler._compile_later, self, kind, _RuleCompiler._pass)

    def _bodies(self) -> "Iterator[tuple[Phase, RuleType, _Build]]":
        rule = self.rule
        if rule.mutate is not None:
            yield Phase.MUTATE, RuleType.MUTATION, _RuleCompiler._mutate
        if rule.verify_images:
            yield Phase.VERIFY_IMAGES, RuleType.IMAGE_VERIFY, _RuleCompiler._verify_images
            if checks_finished_images(rule):
                yield Phase.VALIDATE, RuleType.IMAGE_VERIFY, _RuleCompiler._check_images
        if rule.validate is not None:
            yield Phase.VALIDATE, RuleType.VALIDATION, _RuleCompiler._validate
        if rule.generate is not None:
            yield Phase.GENERATE, RuleType.GENERATION, _RuleCompiler._generate
        if not (rule.mutate or rule.verify_images or rule.validate or rule.generate):
            # Its body may be misspelt: it must not look like a rule that has nothing to object to.
            yield Phase.VALIDATE, RuleType.VALIDATION, _RuleCompiler._miss_body

    def _compile_later(self, kind: RuleType, build: "_Build") -> Check:
        self.context.expressions.begin_policy()
        return self._compile_check(kind, build)

    def _compile_moved(self, kind: RuleType, build: "_Build") -> Check:
        """The check of a rule for pod controllers, whose body is moved now."""
        try:
            rule = self.expanded.write()
        except CompileError as error:
            return fail_always(error)
        moved = replace(self, rule=rule, expanded=ExpandedRule(rule))
        return _RuleCompiler._compile_check(moved, kind, build)

    def _compile_check(self, kind: RuleType, build: "_Build") -> Check:
        if self.expanded.nesting is not None:
            return self._compile_moved(kind, build)
        if self.context.is_lazy:
            self.context.expressions.begin_policy()
        setting = self._setting(kind)
        try:
            check = guard(build(self, setting), self._guard(setting), setting)
            if kind is RuleType.VALIDATION:
                check = self._relax(check, setting)
            if self.policy.spec.webhook_configuration is not None:
                check = self._guard_conditions(check)
        except (DeadlineError, SlowRequestError):
            # The deadline of the caller has passed; that is no fault of the rule.
            raise
        except LictorError as error:
            check = fail_always(error)
        return self._only_named_images(check) if kind is RuleType.IMAGE_VERIFY else check

    def _only_named_images(self, check: Check) -> Check:
        # Also where the rule itself is broken: images that it does not name are none of its affair.
        from lictor.core.evaluate.verify_images.image_rule import only_named

        try:
            return only_named(check, self.rule, self.context.expressions)
        except (DeadlineError, SlowRequestError):
            raise
        except LictorError as error:
            return fail_always(error)

    def _verify_images(self, setting: RuleContext) -> Check:
        from lictor.core.evaluate.verify_images.image_rule import compile_image_rule

        return compile_image_rule(self.rule, setting, self.context.image_outcomes).verify

    def _check_images(self, setting: RuleContext) -> Check:
        from lictor.core.evaluate.verify_images.image_rule import compile_image_rule

        return compile_image_rule(self.rule, setting, self.context.image_outcomes).check_images

    def _guard(self, setting: RuleContext) -> RuleGuard:
        rule = self.rule
        validates_pods = rule.validate is not None and rule.validate.pod_security is not None
        return RuleGuard(
            enter=compile_context(rule.context, setting),
            asks=None
            if rule.preconditions is None
            else compile_conditions(
                rule.preconditions,
                setting.expressions,
                watch=setting.watch,
                where="preconditions",
            ),
            # Exceptions from single controls of a Pod Security Standard are the check's own affair.
            exempt=None if validates_pods else self._exempt(setting),
        )

    def _exempt(self, setting: RuleContext) -> Exempt | None:
        exceptions = self.context.select(PolicyException)
        if not exceptions:
            return None
        return compile_exceptions(exceptions, self.ref.key, self.rule.name, setting.expressions)

    def _relax(self, check: Check, setting: RuleContext) -> Check:
        validate = self.rule.validate
        if setting.action is not Action.ENFORCE or validate is None:
            return check
        if validate.cel is not None or validate.manifests is not None:
            return check
        if not validate.allow_existing_violations:
            return check
        if validate.assert_ is not None:
            # Kyverno does not check here whether the rule matches the old object.
            return allow_existing(check, lambda _: True)
        if self.rule.preconditions is not None:
            # In Kyverno such a rule never matches the old object.
            return check
        return allow_existing(check, self._match_stored())

    # Few policies need all kinds of rules: what one does not use is not imported, as start-up
    # counts.

    def _mutate(self, setting: RuleContext) -> Check:
        from lictor.core.evaluate.mutate import compile_mutate

        return compile_mutate(self.rule.mutate or Mutate(), setting)

    def _generate(self, setting: RuleContext) -> Check:
        from lictor.core.evaluate.generate import compile_generate

        return compile_generate(self.rule.generate or Generate(), setting)

    def _miss_body(self, _: RuleContext) -> Check:
        raise CompileError("expected validate, mutate, generate or verifyImages, found none")

    def _pass(self, setting: RuleContext) -> Check:
        return lambda case: (setting.result(case, RuleOutcome(Status.PASS)),)

    def _validate(self, setting: RuleContext) -> Check:
        validate = self.rule.validate or Validate()
        if validate.assert_ is not None:
            names = tuple(entry.name for entry in self.rule.context)
            from lictor.core.evaluate.assertions import compile_assert

            return compile_assert(validate.assert_, names, setting)
        if validate.manifests is not None:
            from lictor.core.evaluate.manifests import compile_manifests

            return compile_manifests(validate.manifests, setting)
        if validate.pod_security is not None:
            from lictor.core.evaluate.pod_security import compile_pod_security_check

            return compile_pod_security_check(validate.pod_security, self._exempt(setting), setting)
        if validate.cel is not None:
            from lictor.core.evaluate.cel.classic import compile_cel_check

            return compile_cel_check(validate.cel, self.rule, setting, self.context.cel)
        return compile_validate(validate, setting)

    def _match_stored(self) -> Matcher:
        """Does the rule match an object alone? Evaluated only for updates that violate it."""
        made: list[Select] = []

        def matches(request: Request) -> bool:
            if not made:
                made.append(self._select(self.rule.match, self.rule.exclude))
            test = made[0](request.kind, request.subresource, request.operation)
            return test is not None and test(request)

        return matches

    def _select(self, match: Match, exclude: Match | None) -> Select:
        if not self.context.is_lazy or has_selectors(match, exclude):
            return remember(self._compile_select(match, exclude))
        # Nothing but a selector can be wrong here.
        return DeferredSelect(_RuleCompiler._compile_select, self, match, exclude)

    def _compile_select(self, match: Match, exclude: Match | None) -> Select:
        select = compile_match(match, exclude, watch=self._watch)
        return within(self.ref.namespace, select) if self.ref.namespace else select

    def _bound(self, match: Match) -> Bounds:
        # A recorder gets the reason of every rule why it does not match the request.
        is_watched = self.context.watch_rule is not watch_nothing
        return Bounds() if is_watched else find_bounds(match, self.ref.namespace)

    def _setting(self, kind: RuleType) -> RuleContext:
        return RuleContext(
            policy=self.ref,
            rule=self.rule.name,
            type=kind,
            expressions=self.context.expressions,
            lookups=self.context.lookups,
            properties=self.context.expressions.document(self.rule.report_properties),
            action=base_action(self.policy, self.rule),
            override=compile_override(self.policy, self.rule),
            watch=self._watch,
        )

    @property
    def _watch(self) -> Watch:
        watch_rule = self.context.watch_rule
        return unwatched if watch_rule is watch_nothing else watch_rule(self.rule.name)

    def _guard_conditions(self, check: Check) -> Check:
        configuration = self.policy.spec.webhook_configuration
        if configuration is None or not configuration.match_conditions:
            return check
        from lictor.core.evaluate.cel.classic import compile_webhook_conditions

        concerns = compile_webhook_conditions(
            configuration.match_conditions, self.context.cel, self.ref.namespace
        )
        return lambda case: check(case) if concerns(case) else ()


# Turns the body of a rule into a check.
_Build: TypeAlias = Callable[[_RuleCompiler, RuleContext], Check]
