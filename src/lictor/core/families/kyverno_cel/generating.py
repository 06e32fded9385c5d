"""GeneratingPolicy and NamespacedGeneratingPolicy become programs."""

from collections.abc import Iterator
from dataclasses import replace as replace_field

from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import bind_rule, make_rule, put_off
from lictor.core.compile.needs import state_needs
from lictor.core.compile.selection import bound_constrained, select_constrained
from lictor.core.errors import CompileError
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import ResultTemplate, compile_exemptions
from lictor.core.evaluate.cel.expressions import (
    UNDECIDED,
    Evaluate,
    ExpressionCompiler,
    compile_annotations,
    compile_match_conditions,
)
from lictor.core.evaluate.cel.generate import GeneratedObjects, GeneratingCheck
from lictor.core.evaluate.cel.generate_template import compile_template
from lictor.core.families.kind_facts import GenerationSettings
from lictor.core.families.kyverno_cel.records import GeneratingPolicy
from lictor.core.families.registry import refer
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.model.cel_policy import GeneratingSpec, Generation
from lictor.core.model.program import Case, Check, Phase, Program
from lictor.core.model.result import Action, PolicyRef, Result, RuleType, Status


def compile_generating(policy: GeneratingPolicy, context: CompileContext) -> Program:
    """Turn a policy into a program; one that does not compile answers with the reason."""
    around = context.cel
    ref = refer(policy)
    spec = policy.spec
    rule = make_rule(
        ref.name,
        Phase.GENERATE,
        Action.AUDIT,
        select=lambda: select_constrained(spec.match_constraints, ref, around),
        check=put_off(lambda: _compile_check(spec, ref, around), around),
        applies=lambda: _compile_applies(spec, ref, around),
    )
    bound = bind_rule(rule, bound_constrained(spec.match_constraints, ref, around))
    return Program(
        policy=ref,
        rules=state_needs((bound,), spec),
        admission=spec.evaluation.admission.enabled,
        background=spec.evaluation.generate_existing.enabled,
    )


def _compile_check(spec: GeneratingSpec, ref: PolicyRef, around: CelContext) -> Check:
    template = ResultTemplate(ref, RuleType.GENERATION, Action.AUDIT)
    parts = _compile_parts(spec, template, around)

    def check(case: Case) -> tuple[Result, ...]:
        try:
            return parts.run(case)
        except UNDECIDED as error:
            text = f"failed to evaluate policy: {error}"
            return template.make(ref.name, Status.ERROR, text)

    return check


def _compile_applies(spec: GeneratingSpec, ref: PolicyRef, around: CelContext) -> Check:
    template = ResultTemplate(ref, RuleType.GENERATION, Action.AUDIT)
    parts = _compile_parts(spec, template, around)

    def applies(case: Case) -> tuple[Result, ...]:
        try:
            return parts.check_applies(case)
        except UNDECIDED as error:
            return template.make(ref.name, Status.ERROR, f"failed to evaluate policy: {error}")

    return applies


def _compile_parts(
    spec: GeneratingSpec, template: ResultTemplate, around: CelContext
) -> GeneratingCheck:
    ref = template.policy
    taker = GeneratedObjects(around.resource_names, ref.namespace)
    plain = ExpressionCompiler(
        kyverno_environment("generating", is_namespaced=bool(ref.namespace)),
        replace_field(around.host_functions(ref.namespace), generate=taker.take),
        watch=around.watch_rule(ref.name),
    )
    language = plain.declare(spec.variables)
    return GeneratingCheck(
        view=around.viewpoint.view(_list_texts(spec)),
        template=template,
        exemptions=compile_exemptions(around.exceptions, ref, plain),
        matches=compile_match_conditions(spec.match_conditions, language),
        expressions=tuple(
            _compile_generation(generation, f"generate[{index}]", language, taker)
            for index, generation in enumerate(spec.generate)
        ),
        annotate=compile_annotations(spec.audit_annotations, language, refuse_null=True),
    )


def _compile_generation(
    generation: Generation, where: str, language: ExpressionCompiler, taker: GeneratedObjects
) -> Evaluate:
    template = generation.template
    if (template is None) == (not generation.expression):
        raise CompileError("exactly one of expression or template must be set", where=where)
    if template is None:
        return language.evaluator(generation.expression, ("bool",), f"{where}.expression")
    return compile_template(template, taker.own, language, taker.take, f"{where}.template")


def _list_texts(spec: GeneratingSpec) -> Iterator[str]:
    for condition in spec.match_conditions:
        yield condition.expression
    for variable in spec.variables:
        yield variable.expression
    for generation in spec.generate:
        yield generation.expression
        if generation.template is not None:
            yield generation.template.value
    for annotation in spec.audit_annotations:
        yield annotation.value_expression


def list_generations(policy: GeneratingPolicy) -> tuple[GenerationSettings]:
    """How a policy looks after what it made."""
    how = policy.spec.evaluation
    settings = GenerationSettings(
        "",
        how.synchronize.enabled,
        how.orphan_downstream_on_policy_delete.enabled,
        how.generate_existing.enabled,
        policy.spec.use_server_side_apply,
    )
    return (settings,)
