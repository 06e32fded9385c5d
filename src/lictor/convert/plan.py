"""One rule of a classic policy as the parts of a CEL policy."""

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from lictor.convert.body import translate_fails
from lictor.convert.cel_tests import (
    FALSE,
    TRUE,
    Test,
    all_of,
    compare,
    negate,
    render,
)
from lictor.convert.cel_values import EITHER, CelValue, ResourceRoot, either_variables, find_shape
from lictor.convert.condition import translate_conditions
from lictor.convert.context import bind_context
from lictor.convert.query import translate_text
from lictor.convert.selection import ResolvedKind, RuleSelection, select, translate_match
from lictor.convert.value import ExpressionScope, as_cel_value
from lictor.convert.writing import PolicyVariables
from lictor.errors import CompileError
from lictor.families.classic.actions import base_action
from lictor.kubernetes.resource_names import ResourceNames
from lictor.lang.template import has_variables
from lictor.model.policy import Cel, Policy, Rule, Validate
from lictor.model.result import Action
from lictor.raw import JsonObject

_VARIABLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def translate_message(
    validate: Validate, scope: ExpressionScope
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The message of a rule, and notes about it."""
    text = " ".join(validate.message.split()) if "\n" in validate.message else validate.message
    text = text.strip()
    if not text:
        return {}, ()
    if not has_variables(text):
        return {"message": text}, ()
    plain = _VARIABLE.sub(lambda found: found.group(1).strip(), text)
    try:
        place = as_cel_value(translate_text(text, scope))
    except CompileError as error:
        return {"message": plain}, (f"the message is told without its variables: {error.message}",)
    return {"message": plain, "messageExpression": _as_text(place)}, ()


def _as_text(place: CelValue) -> str:
    return place.text if place.type == "string" else f"string({place.text})"


_ROLES = "rbac.authorization.k8s.io"


class ConversionContext(msgspec.Struct, frozen=True):
    """What all rules of a conversion share."""

    policy: Policy
    names: ResourceNames
    # Groups in which kinds are looked for before those of Kubernetes itself.
    groups: tuple[str, ...] = ()
    # Kyverno's own functions may be used.
    kyverno: bool = True


class RulePlan(msgspec.Struct, frozen=True):
    """The parts of a CEL policy that one rule becomes."""

    rule: str
    kinds: tuple[ResolvedKind, ...]
    operations: tuple[str, ...]
    pod: tuple[str, ...] | None = None
    namespace_selector: JsonObject | None = None
    conditions: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    validations: tuple[JsonObject, ...] = ()
    audit_annotations: tuple[JsonObject, ...] = ()
    params: JsonObject | None = None
    action: Action = Action.AUDIT
    notes: tuple[str, ...] = ()


def plan_validate(
    rule: Rule, pod: tuple[str, ...] | None, hoisted: PolicyVariables, context: ConversionContext
) -> RulePlan:
    """A validate rule; CompileError says what has no equivalent."""
    validate = rule.validate
    if validate is None:
        raise CompileError("not a validate rule")
    selection = select(rule, context.names, context.groups)
    if validate.cel is not None:
        return plan_cel(rule, pod, selection, context)
    return _Planner(rule, validate, pod, hoisted, context, selection).plan()


class _Planner(msgspec.Struct, frozen=True):
    rule: Rule
    validate: Validate
    pod: tuple[str, ...] | None
    hoisted: PolicyVariables
    context: ConversionContext
    selection: RuleSelection

    def plan(self) -> RulePlan:
        operations = self._operations()
        if not operations:
            raise CompileError("a rule that can never fail")
        subject = self._subject(operations)
        if subject.root == EITHER:
            for name, text in either_variables(self.pod).items():
                self.hoisted.expressions.setdefault(name, text)
        match = self._for_each(operations, subject, self._match)
        asked = self._for_each(operations, subject, self._asked)
        fails = self._relaxed(operations, subject)
        message, notes = translate_message(self.validate, self._scope(subject))
        validation = {"expression": render(negate(fails)), **message}
        return RulePlan(
            self.rule.name,
            self.selection.kinds,
            operations,
            self.pod,
            self.selection.namespace_selector,
            tuple(_conditions((("match", match), ("preconditions", asked)))),
            (),
            (validation,),
            action=base_action(self.context.policy, self.rule),
            notes=notes,
        )

    # --- operations

    def _operations(self) -> tuple[str, ...]:
        """Those on which the rule can fail."""
        given = self.selection.operations or self._usual()
        return tuple(op for op in given if self._can_fail(op))

    def _usual(self) -> tuple[str, ...]:
        if all(kind.subresource not in ("", "ephemeralcontainers") for kind in self._kinds):
            return ("CREATE", "UPDATE", "CONNECT")
        return ("CREATE", "UPDATE", "DELETE")

    @property
    def _kinds(self) -> tuple[ResolvedKind, ...]:
        return self.selection.kinds

    def _can_fail(self, operation: str) -> bool:
        if operation == "DELETE" and self.validate.deny is None:
            # Nothing is left to have a shape, or elements.
            return False
        root = "oldObject" if operation == "DELETE" else "object"
        subject = replace(self._base, root=root, operation=operation)
        parts = (self._asked(subject), self._fails(subject, PolicyVariables(inline=True)))
        return all_of(parts) != FALSE

    # --- where the resource is

    @property
    def _base(self) -> ResourceRoot:
        kinds = [(kind.api_version, kind.kind) for kind in self._kinds]
        return ResourceRoot(shape=find_shape(kinds), pod=self.pod)

    def _subject(self, operations: tuple[str, ...]) -> ResourceRoot:
        if "DELETE" not in operations:
            return self._base
        root = "oldObject" if operations == ("DELETE",) else EITHER
        return replace(self._base, root=root)

    def _scope(
        self, subject: ResourceRoot, hoisted: PolicyVariables | None = None
    ) -> ExpressionScope:
        scope = ExpressionScope(
            subject,
            self.hoisted if hoisted is None else hoisted,
            wildcards=all(kind.group == _ROLES for kind in self._kinds),
            kyverno=self.context.kyverno,
        )
        return bind_context(self.rule.context, scope)

    def _for_each(
        self,
        operations: Iterable[str],
        subject: ResourceRoot,
        build: Callable[[ResourceRoot], Test],
    ) -> Test:
        """Without the operation where it makes no difference."""
        made = [build(replace(subject, operation=operation)) for operation in operations]
        return made[0] if all(test == made[0] for test in made) else build(subject)

    # --- parts

    def _match(self, subject: ResourceRoot) -> Test:
        return translate_match(self.rule, self._kinds, replace(subject, inline=True))

    def _asked(self, subject: ResourceRoot) -> Test:
        scope = self._scope(replace(subject, inline=True), PolicyVariables(inline=True))
        return translate_conditions(self.rule.preconditions, scope)

    def _fails(self, subject: ResourceRoot, hoisted: PolicyVariables | None = None) -> Test:
        return translate_fails(self.validate, self._scope(subject, hoisted))

    def _relaxed(self, operations: tuple[str, ...], subject: ResourceRoot) -> Test:
        """Fail, unless the old object was as bad and that is allowed."""
        fails = self._for_each(operations, subject, self._fails)
        enforced = base_action(self.context.policy, self.rule) is Action.ENFORCE
        if not enforced or not self.validate.allow_existing_violations:
            return fails
        if "UPDATE" not in operations or not self._concerns_old():
            return fails
        return all_of((fails, negate(self._was_bad(operations))))

    def _concerns_old(self) -> bool:
        """In Kyverno a rule with preconditions, or about subresources only, never does."""
        return self.rule.preconditions is None and not all(each.subresource for each in self._kinds)

    def _was_bad(self, operations: tuple[str, ...]) -> Test:
        # Kyverno judges the old object as if it were created now, by nobody it knows.
        old = replace(self._base, root="oldObject", operation="CREATE")
        before = all_of((self._match(old), self._fails(old)))
        is_update = (
            compare("request.operation", "==", '"UPDATE"')
            if set(operations) - {"CREATE", "UPDATE"}
            else TRUE
        )
        return all_of((is_update, compare("oldObject", "!=", "null"), before))


def _conditions(named: Iterable[tuple[str, Test]]) -> Iterable[tuple[str, str]]:
    for name, test in named:
        if test != TRUE:
            yield name, render(test)


def plan_cel(
    rule: Rule, pod: tuple[str, ...] | None, selection: RuleSelection, context: ConversionContext
) -> RulePlan:
    """The parts of the rule under their new names."""
    validate = rule.validate
    if validate is None or validate.cel is None:
        raise CompileError("not a rule in CEL")
    cel = validate.cel
    operations = selection.operations or ("CREATE", "UPDATE", "DELETE")
    return RulePlan(
        rule.name,
        selection.kinds,
        operations,
        pod,
        selection.namespace_selector,
        tuple(_write_cel_conditions(rule, pod, selection, operations)),
        tuple((each.name, each.expression) for each in cel.variables),
        tuple(_validations(validate, cel)),
        tuple(msgspec.to_builtins(each) for each in cel.audit_annotations),
        _params(cel),
        base_action(context.policy, rule),
    )


def _write_cel_conditions(
    rule: Rule, pod: tuple[str, ...] | None, selection: RuleSelection, operations: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    kinds = [(kind.api_version, kind.kind) for kind in selection.kinds]
    root = EITHER if "DELETE" in operations else "object"
    subject = ResourceRoot(root, find_shape(kinds), pod, inline=True)
    match = translate_match(rule, selection.kinds, subject)
    if match != TRUE:
        yield "match", render(match)
    scope = bind_context(rule.context, ExpressionScope(subject, PolicyVariables(inline=True)))
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
