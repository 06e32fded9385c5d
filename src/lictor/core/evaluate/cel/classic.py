"""CEL in classic policies: `validate.cel`, `celPreconditions`, the webhook's matchConditions."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.expressions import (
    UNDECIDED,
    ExpressionCompiler,
    compile_annotations,
    compile_match_conditions,
)
from lictor.core.evaluate.cel.params import FindParams, compile_params
from lictor.core.evaluate.cel.validations import (
    Ruling,
    compile_decisions,
    decide_with_params,
    list_decision_texts,
    require_validations,
)
from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.model.matching import MatchCondition
from lictor.core.model.policy import Cel, Rule
from lictor.core.model.program import Case, Check
from lictor.core.model.result import Result, Status


def compile_cel_check(cel: Cel, rule: Rule, setting: RuleContext, around: CelContext) -> Check:
    """The check of a rule with `validate.cel`."""
    require_validations(cel.expressions, cel.audit_annotations, "validate.cel.expressions")
    message = rule.validate.message if rule.validate is not None else ""
    validations = [
        each if each.message else replace(each, message=message) for each in cel.expressions
    ]
    language = ExpressionCompiler(
        kubernetes_environment(has_params=_has_params(cel), is_kyverno=True),
        around.host_functions(setting.policy.namespace),
        watch=setting.watch,
        lenient=True,
    ).declare(cel.variables)
    decide = compile_decisions(rule.cel_preconditions, validations, language)
    texts = [*list_decision_texts(rule.cel_preconditions, cel.variables, validations)]
    texts += [annotation.value_expression for annotation in cel.audit_annotations]
    view = around.native_viewpoint.view(texts)
    decide_case = decide_with_params(
        decide, view, _find_params(cel, around, setting.policy.namespace)
    )
    build_results = _compile_results(setting)
    annotate = compile_annotations(cel.audit_annotations, language)

    def check(case: Case) -> tuple[Result, ...]:
        decision = decide_case(case)
        results = build_results(case, decision.ruling, decision.message)
        if annotate is None or decision.ruling is Ruling.UNMATCHED:
            return results
        try:
            extra = annotate(view(case))
        except UNDECIDED:
            return results  # additional report properties never change a verdict
        return tuple(replace(r, properties={**r.properties, **extra}) for r in results)

    return check


def compile_webhook_conditions(
    conditions: Sequence[MatchCondition], around: CelContext, own: str
) -> Callable[[Case], bool]:
    """Whether a policy matches a request at all.

    An API server evaluates this before it calls the webhook, and handles errors. Here an error
    means what it means to Kyverno: the policy is skipped.
    """
    environment = kubernetes_environment(has_params=False, is_kyverno=True)
    matches = compile_match_conditions(
        conditions,
        ExpressionCompiler(environment, around.host_functions(own), lenient=True),
        ignore_errors=True,
    )
    view = around.native_viewpoint.view(condition.expression for condition in conditions)
    return lambda case: matches is None or matches(view(case))


def _compile_results(setting: RuleContext) -> Callable[[Case, Ruling, str], tuple[Result, ...]]:
    passed = f"Validation rule '{setting.rule}' passed."
    answers = {
        Ruling.UNMATCHED: (Status.SKIP, "cel preconditions not met"),
        Ruling.ADMITTED: (Status.PASS, passed),
        Ruling.DENIED: (Status.FAIL, ""),
        # In Kyverno, a rule with an error counts as failed.
        Ruling.UNDECIDED: (Status.FAIL, ""),
    }
    fixed = {
        ruling: setting.fixed(status, words) for ruling, (status, words) in answers.items() if words
    }

    def build_results(case: Case, ruling: Ruling, message: str) -> tuple[Result, ...]:
        made = fixed.get(ruling)
        if made is not None:
            return made
        status, words = answers[ruling]
        return (setting.result(case, RuleOutcome(status, message or words)),)

    return build_results


def _has_params(cel: Cel) -> bool:
    return cel.param_kind is not None and cel.param_ref is not None


def _find_params(cel: Cel, around: CelContext, own: str) -> FindParams | None:
    if cel.param_kind is None or cel.param_ref is None:
        return None
    return compile_params(cel.param_kind, cel.param_ref, around, own)
