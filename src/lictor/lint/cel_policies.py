"""Checks of CEL policies, and of the CEL expressions in classic policies."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.lang.cel_template import Placeholder, parse_template
from lictor.core.lang.schedule import compile_schedule
from lictor.core.model.finding import Finding
from lictor.core.model.program import Phase
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.lint.images import check_image_policy
from lictor.lint.resource_rules import (
    ObjectForms,
    check_constraints,
    list_forms,
    make_object_forms,
    require_rules,
)
from lictor.lint.rules import check_name
from lictor.lint.schema_kinds import KnownSchemas, list_matched_kinds

if TYPE_CHECKING:
    from lictor.core.lang.cel.program import Environment
    from lictor.lint.cel_expressions import ExpressionContext


_BOOL = ("bool",)
_TEXT = ("string",)
_MAYBE_TEXT = ("string", "null_type")
_TARGETS = ("map(string, dyn)", "dyn")
_IMAGES = ("list(string)", "list(dyn)", "dyn")


class CelField(msgspec.Struct, frozen=True):
    """An expression, and its allowed types."""

    part: Field
    types: tuple[str, ...]


def list_cel_fields(spec: Field) -> Iterator[CelField]:
    """Every expression that may use variables; of any kind of policy."""
    for validation in spec["validations"].each():
        yield CelField(validation["expression"], _BOOL)
        yield CelField(validation["messageExpression"], _TEXT)
    for annotation in spec["auditAnnotations"].each():
        yield CelField(annotation["valueExpression"], _MAYBE_TEXT)
    for mutation in spec["mutations"].each():
        yield CelField(mutation["applyConfiguration"]["expression"], ("Object",))
        yield CelField(mutation["jsonPatch"]["expression"], ("list(JSONPatch)",))
    for generation in spec["generate"].each():
        yield CelField(generation["expression"], _BOOL)
    for condition in spec["conditions"].each():
        yield CelField(condition["expression"], _BOOL)
    for condition in spec["targetMatchConditions"].each():
        yield CelField(condition["expression"], _BOOL)
    yield CelField(spec["targetMatchConstraints"]["expression"], _TARGETS)
    for extractor in spec["images"].each():
        yield CelField(extractor["expression"], _IMAGES)


def list_condition_fields(spec: Field) -> Iterator[CelField]:
    """The conditions that decide whether a policy matches a request."""
    for condition in spec["matchConditions"].each():
        yield CelField(condition["expression"], _BOOL)


def list_cel_texts(spec: Field) -> Iterator[str]:
    """All expressions, including those of variables."""
    for variable in spec["variables"].each():
        yield variable["expression"].text
    for field in (*list_cel_fields(spec), *list_condition_fields(spec)):
        yield field.part.text
    for template in _list_templates(spec):
        with suppress(CompileError):
            for document in parse_template(template["value"].text, interpolate=True):
                for parts in document.scalars.values():
                    yield from (part.expression for part in parts if isinstance(part, Placeholder))


def _list_templates(spec: Field) -> Iterator[Field]:
    """The templates whose placeholders are evaluated."""
    for generation in spec["generate"].each():
        if generation["template"]["interpolate"].text == "cel":
            yield generation["template"]


def _check_templates(spec: Field) -> Iterator[Finding]:
    for generation in spec["generate"].each():
        template = generation["template"]
        if bool(template) == bool(generation["expression"].text):
            message = "exactly one of expression or template must be set"
            yield flag("bad-settings", generation.path, message)
    for template in _list_templates(spec):
        try:
            parse_template(template["value"].text, interpolate=True)
        except CompileError as error:
            yield flag("bad-expression", template["value"].path, error.message)


_AUTHORIZING = {
    "HTTP": ("http.CheckResponse", "null_type", "dyn"),
    "Envoy": ("envoy.service.auth.v3.CheckResponse", "null_type", "dyn"),
}
_PATCHES = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
# Policies that evaluate their conditions without variables.
_BLIND = ("validating", "image")
# re: linear - one word and one dot
_VARIABLE = re.compile(r"\bvariables\s?\.")
_NO_VARIABLES = (
    "variables cannot be referenced in matchConditions when "
    "spec.autogen.mutatingAdmissionPolicy.enabled is true; native MutatingAdmissionPolicy "
    "evaluates match conditions before variables, so inline the expression instead"
)
_CONSTRAINED = ("matchConstraints", "targetMatchConstraints")


def lint_cel_policy(body: Json, names: ResourceNames, schemas: KnownSchemas) -> list[Finding]:
    """The findings of a policy of one of the CEL kinds, as plain JSON of any shape."""
    policy = Field(body)
    kind, spec = _find_kind(policy), policy["spec"]
    findings = [*check_name(policy["metadata"]["name"], "policy")]
    if spec.is_object:
        findings += _check_subject(spec, kind, names)
        findings += _check_content(spec, kind)
        findings += _check_names(spec)
        findings += _check_templates(spec)
        forms = list_forms(spec, _subject(spec), names, schemas)
        findings += _check_expressions(policy, kind, forms, schemas)
    return findings


def _find_kind(policy: Field) -> PolicyKind:
    """The declaration of the kind; for a document of any shape, the most likely one."""
    group, name = policy["apiVersion"].text.rpartition("/")[0], policy["kind"].text
    known = [kind for kind in registry().kinds if kind.cel_profile or kind.is_native]
    named = (kind for kind in known if kind.kind == name)
    return registry().find(group, name) or next(named, known[-1])


# --- what it is about, and what it does


def _check_subject(spec: Field, kind: PolicyKind, names: ResourceNames) -> Iterator[Finding]:
    mode = spec["evaluation"]["mode"].text or "Kubernetes"
    if mode == "Kubernetes":
        yield from require_rules(spec["matchConstraints"], spec)
    for field in _CONSTRAINED:
        # Targets of deletions and mutations are found, not requested.
        asks = kind.role is Role.POLICY and field == "matchConstraints"
        yield from check_constraints(spec[field], names, needs_operations=asks)


def _check_content(spec: Field, kind: PolicyKind) -> Iterator[Finding]:
    if kind.phases == (Phase.VALIDATE,) and not spec.present("validations", "auditAnnotations"):
        message = "the policy checks nothing: give validations or auditAnnotations"
        yield flag("bad-validate", spec.path, message)
    if kind.phases == (Phase.MUTATE,) and spec["mutations"].is_empty:
        yield flag("bad-mutate", spec.path, "the policy changes nothing: give mutations")
    if kind.phases == (Phase.MUTATE,):
        yield from _check_evaluation(spec)
    if kind.phases == (Phase.VERIFY_IMAGES,):
        yield from check_image_policy(spec)
    for mutation in spec["mutations"].each():
        wanted = _PATCHES.get(mutation["patchType"].text)
        if wanted is not None and not mutation[wanted]:
            message = f"a mutation of type {mutation['patchType'].text} needs {wanted}"
            yield flag("bad-mutate", mutation.path, message)
    yield from check_schedule(spec["schedule"])


def _check_evaluation(spec: Field) -> Iterator[Finding]:
    """Settings that exclude each other, in the words of Kyverno 1.19."""
    evaluation = spec["evaluation"]
    is_off = evaluation["admission"]["enabled"].value is False
    if is_off and evaluation["mutateExisting"]["enabled"].value is not True:
        message = "disabling both admission and mutateExisting evaluation modes is not allowed"
        yield flag("bad-settings", evaluation.path, message)
    if spec["autogen"]["mutatingAdmissionPolicy"]["enabled"].value is True:
        for condition in spec["matchConditions"].each():
            if _VARIABLE.search(condition["expression"].text):
                yield flag("bad-settings", condition["expression"].path, _NO_VARIABLES)


def check_schedule(schedule: Field) -> Iterator[Finding]:
    """A schedule in cron's format, where one is given."""
    if not schedule.text:
        return
    try:
        compile_schedule(schedule.text)
    except CompileError as error:
        yield flag("bad-schedule", schedule.path, error.message)


def _check_names(spec: Field) -> Iterator[Finding]:
    for field in ("matchConditions", "conditions"):
        seen = set()
        for condition in spec[field].each():
            name = condition["name"]
            if name.text in seen:
                message = f'there are two conditions "{name.text}"'
                yield flag("duplicate-name", name.path, message)
            seen.add(name.text)


# --- expressions


def _check_expressions(
    policy: Field, kind: PolicyKind, forms: ObjectForms, schemas: KnownSchemas
) -> list[Finding]:
    from lictor.core.lang.cel.kubernetes import list_newer_functions
    from lictor.lint.cel_expressions import ExpressionContext, check_unused

    spec = policy["spec"]
    newer = list_newer_functions() if kind.is_native else frozenset[str]()
    environment = choose_environment(policy, kind)
    plain = ExpressionContext(environment, forms=forms, source=schemas, newer=newer)
    context, findings = plain.declare(spec["variables"])
    asking = plain if kind.cel_profile in _BLIND else context
    if spec["targetMatchConstraints"]:
        # Evaluated for the trigger, and for each target: `object` is either.
        asking = replace(asking, forms=())
    findings += check_cel_fields(_adapt(list_cel_fields(spec), spec), context)
    findings += check_cel_fields(list_condition_fields(spec), asking)
    findings += _check_image_references(spec)
    findings += check_unused(spec["variables"], list_cel_texts(spec))
    return findings


def check_cel_fields(fields: Iterable[CelField], context: "ExpressionContext") -> Iterator[Finding]:
    """The findings of the expressions at these fields."""
    from lictor.lint.cel_expressions import check_expression

    for field in fields:
        yield from check_expression(field.part, field.types, context)


def choose_environment(policy: Field, kind: PolicyKind) -> "Environment":
    """What the expressions of a kind may use."""
    from lictor.core.lang.cel.kubernetes import kubernetes_environment
    from lictor.core.lang.cel.kyverno import authorization_environment, kyverno_environment

    spec = policy["spec"]
    if kind.is_native:
        return kubernetes_environment(
            has_params=bool(spec["paramKind"]), has_patches=kind.phases == (Phase.MUTATE,)
        )
    mode = spec["evaluation"]["mode"].text
    if mode in _AUTHORIZING:
        return authorization_environment(mode)
    return kyverno_environment(kind.cel_profile, is_namespaced=kind.namespaced)


def _subject(spec: Field) -> Field:
    """The form of `object`: that of the targets if a policy changes other objects."""
    targets = spec["targetMatchConstraints"]
    return targets if targets["resourceRules"] else spec["matchConstraints"]


def _adapt(fields: Iterable[CelField], spec: Field) -> Iterator[CelField]:
    answers = _AUTHORIZING.get(spec["evaluation"]["mode"].text)
    for field in fields:
        is_validation = field.part.path[1:2] == ("validations",)
        is_answer = is_validation and field.part.path[-1] == "expression"
        yield CelField(field.part, answers) if answers and is_answer else field


def _check_image_references(spec: Field) -> Iterator[Finding]:
    references = [each["expression"] for each in spec["matchImageReferences"].each()]
    if not any(references):
        return
    from lictor.core.lang.cel.kyverno import image_environment
    from lictor.lint.cel_expressions import ExpressionContext

    context = ExpressionContext(image_environment())
    yield from check_cel_fields((CelField(part, ("bool",)) for part in references), context)


def check_rule_cel(rule: Field, schemas: KnownSchemas) -> Iterator[Finding]:
    """The findings of a rule's expressions."""
    cel, conditions = rule["validate"]["cel"], rule["celPreconditions"]
    if not cel and not conditions:
        return
    from lictor.core.lang.cel.kubernetes import kubernetes_environment
    from lictor.lint.cel_expressions import ExpressionContext, check_unused

    has_params = bool(cel["paramKind"]) and bool(cel["paramRef"])
    environment = kubernetes_environment(has_params=has_params)
    forms = make_object_forms(schemas.find_forms(list_matched_kinds(rule)), cel, schemas)
    context, findings = ExpressionContext(environment, forms=forms, source=schemas).declare(
        cel["variables"]
    )
    fields = [
        *_list_rule_cel(cel),
        *(CelField(c["expression"], _BOOL) for c in conditions.each()),
    ]
    yield from findings
    yield from check_cel_fields(fields, context)
    variables = [variable["expression"].text for variable in cel["variables"].each()]
    yield from check_unused(cel["variables"], [*variables, *(p.part.text for p in fields)])


def check_webhook_conditions(policy: Field) -> Iterator[Finding]:
    """The findings of a policy's webhook match conditions."""
    conditions = policy["spec"]["webhookConfiguration"]["matchConditions"]
    if conditions.is_empty:
        return
    from lictor.core.lang.cel.kubernetes import kubernetes_environment, list_newer_functions
    from lictor.lint.cel_expressions import ExpressionContext

    environment = kubernetes_environment(has_params=False)
    context = ExpressionContext(environment, newer=list_newer_functions())
    yield from check_cel_fields(
        (CelField(c["expression"], _BOOL) for c in conditions.each()), context
    )


def _list_rule_cel(cel: Field) -> Iterator[CelField]:
    for expression in cel["expressions"].each():
        yield CelField(expression["expression"], _BOOL)
        yield CelField(expression["messageExpression"], ("string",))
    for annotation in cel["auditAnnotations"].each():
        yield CelField(annotation["valueExpression"], ("string", "null_type"))
