"""Rules that are in CEL already: `validate.cel` as it is."""

from collections.abc import Iterator

import msgspec

from lictor.compile.actions import base_action
from lictor.convert.condition import translate_conditions
from lictor.convert.context import bind_context
from lictor.convert.plan import Ground, Plan
from lictor.convert.scope import Hoisted, Scope
from lictor.convert.selection import Selection, translate_match
from lictor.convert.subject import EITHER, Subject, find_shape
from lictor.convert.truth import TRUE, render
from lictor.errors import CompileError
from lictor.model.policy import Cel, Rule, Validate
from lictor.raw import JsonObject


def plan_cel(rule: Rule, pod: tuple[str, ...] | None, selection: Selection, ground: Ground) -> Plan:
    """The parts of the rule under their new names."""
    validate = rule.validate
    if validate is None or validate.cel is None:
        raise CompileError("not a rule in CEL")
    cel = validate.cel
    operations = selection.operations or ("CREATE", "UPDATE", "DELETE")
    return Plan(
        rule.name,
        selection.kinds,
        operations,
        pod,
        selection.namespace_selector,
        tuple(_conditions(rule, pod, selection, operations)),
        tuple((each.name, each.expression) for each in cel.variables),
        tuple(_validations(validate, cel)),
        tuple(msgspec.to_builtins(each) for each in cel.audit_annotations),
        _params(cel),
        base_action(ground.policy, rule),
    )


def _conditions(
    rule: Rule, pod: tuple[str, ...] | None, selection: Selection, operations: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    kinds = [(kind.api_version, kind.kind) for kind in selection.kinds]
    root = EITHER if "DELETE" in operations else "object"
    subject = Subject(root, find_shape(kinds), pod, inline=True)
    match = translate_match(rule, selection.kinds, subject)
    if match != TRUE:
        yield "match", render(match)
    scope = bind_context(rule.context, Scope(subject, Hoisted(inline=True)))
    asked = translate_conditions(rule.preconditions, scope)
    if asked != TRUE:
        yield "preconditions", render(asked)
    for condition in rule.cel_preconditions:
        yield condition.name, condition.expression


def _validations(validate: Validate, cel: Cel) -> Iterator[JsonObject]:
    for each in cel.expressions:
        made: JsonObject = msgspec.to_builtins(each)
        if not each.message and validate.message.strip():
            made["message"] = validate.message.strip()
        yield made


def _params(cel: Cel) -> JsonObject | None:
    if cel.param_kind is None and cel.param_ref is None:
        return None
    if cel.param_kind is None or cel.param_ref is None:
        raise CompileError("paramKind and paramRef belong together")
    return {
        "paramKind": msgspec.to_builtins(cel.param_kind),
        "paramRef": msgspec.to_builtins(cel.param_ref),
    }
