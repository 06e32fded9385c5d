"""One rule of a classic policy as the parts of a CEL policy."""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.body import translate_fails
from lictor.addons.convert.cel_tests import (
    FALSE,
    TRUE,
    Atom,
    Test,
    all_of,
    any_of,
    compare,
    negate,
    render,
)
from lictor.addons.convert.cel_values import EITHER, CelValue, LoopNames, ResourceRoot, find_shape
from lictor.addons.convert.condition import translate_conditions
from lictor.addons.convert.context import bind_context
from lictor.addons.convert.pod_templates import EACH, LOOPED, list_both, pod_variables, share_text
from lictor.addons.convert.query import translate_text
from lictor.addons.convert.rule_group import RulePlan
from lictor.addons.convert.selection import (
    ResolvedKind,
    RuleSelection,
    build_for,
    select,
    translate_match,
    translate_match_for,
)
from lictor.addons.convert.simplify import simplify
from lictor.addons.convert.value import ExpressionScope, as_cel_value
from lictor.addons.convert.writing import PolicyVariables
from lictor.core.errors import CompileError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.classic.actions import base_action
from lictor.core.lang.template import VARIABLE, has_variables
from lictor.core.model.policy import Cel, Policy, Rule, Validate
from lictor.core.model.result import Action
from lictor.core.raw import JsonObject


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
    plain = VARIABLE.sub(lambda found: found.group(1).strip(), text)
    try:
        operand = as_cel_value(translate_text(text, scope))
    except CompileError as error:
        return {"message": plain}, (f"the message is shown without its variables: {error.message}",)
    return {"message": plain, "messageExpression": _as_text(operand)}, ()


def _as_text(operand: CelValue) -> str:
    return operand.text if operand.type == "string" else f"string({operand.text})"


_ROLES = "rbac.authorization.k8s.io"


class PolicyForm(StrEnum):
    """How much of a policy is written out."""

    SHORT = "short"
    # The same, but a Pod template without metadata is an error.
    STRICT = "strict"
    # A policy for each place of a Pod.
    LONG = "long"


class ConversionContext(msgspec.Struct, frozen=True):
    """What all rules of a conversion share."""

    policy: Policy
    names: ResourceNames
    # Groups in which kinds are looked for before those of Kubernetes itself.
    groups: tuple[str, ...] = ()
    # Kyverno's own functions may be used.
    kyverno: bool = True
    form: PolicyForm = PolicyForm.SHORT

    @property
    def short(self) -> bool:
        """Whether as few policies, and as little in them, are written as possible."""
        return self.form is not PolicyForm.LONG


def plan_validate(
    rule: Rule,
    pod: tuple[str, ...] | None,
    hoisted: PolicyVariables,
    context: ConversionContext,
    *,
    shared: bool = False,
) -> RulePlan:
    """A validate rule; raises CompileError if it has no equivalent.

    `shared`: its expressions refer to the Pod by variables, at any path of the object.
    """
    validate = rule.validate
    if validate is None:
        raise CompileError("not a validate rule")
    selection = select(rule, context.names, context.groups)
    if validate.cel is None:
        return _Planner(rule, validate, pod, hoisted, context, selection, shared).plan()
    plan = plan_cel(rule, pod, selection, context)
    return share_plan(plan, hoisted) if shared else plan


class _Planner(msgspec.Struct, frozen=True):
    rule: Rule
    validate: Validate
    pod: tuple[str, ...] | None
    hoisted: PolicyVariables
    context: ConversionContext
    selection: RuleSelection
    shared: bool = False

    def plan(self) -> RulePlan:
        operations = self._operations()
        if not operations:
            raise CompileError("a rule that can never fail")
        subject = self._subject(operations)
        is_strict = self.context.form is PolicyForm.STRICT
        for name, text in subject.variables(is_strict=is_strict).items():
            self.hoisted.expressions.setdefault(name, text)
        match = self._for_each(operations, subject, self._match)
        tested = self._for_each(operations, subject, self._preconditions)
        fails = self._relaxed(operations, subject)
        message, notes = translate_message(self.validate, self._scope(subject))
        validation = {"expression": render(self._plain(negate(fails))), **message}
        return RulePlan(
            (self.rule.name,),
            self.selection.kinds,
            operations,
            self.pod,
            self.selection.namespace_selector,
            tuple(self._conditions((("match", match), ("preconditions", tested)))),
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
        parts = (self._preconditions(subject), self._fails(subject, PolicyVariables(inline=True)))
        return all_of(parts) != FALSE

    # --- where the resource is

    @property
    def _base(self) -> ResourceRoot:
        kinds = [(kind.api_version, kind.kind) for kind in self._kinds]
        return ResourceRoot(shape=find_shape(kinds), pod=self.pod, shared=self.shared)

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
            names=LoopNames(LOOPED if subject.root == EACH else ()),
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
        return build_for(operations, lambda each: build(replace(subject, operation=each)))

    # --- parts

    def _plain(self, test: Test) -> Test:
        return simplify(test) if self.context.short else test

    def _conditions(self, named: Iterable[tuple[str, Test]]) -> Iterable[tuple[str, Test]]:
        for name, test in named:
            if (plain := self._plain(test)) != TRUE:
                yield name, plain

    def _match(self, subject: ResourceRoot) -> Test:
        # A controller is matched by its own name and labels, not by those of its Pods.
        return translate_match(self.rule, self._kinds, replace(subject, inline=True, pod=None))

    def _preconditions(self, subject: ResourceRoot) -> Test:
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
        is_update = self._is_update(operations)
        in_one = self._compare_objects(operations, subject) if self.context.short else None
        if in_one is not None:
            return negate(any_of((in_one[0], all_of((is_update, negate(in_one[1]), in_one[2])))))
        return all_of((fails, negate(all_of((is_update, self._was_bad())))))

    def _concerns_old(self) -> bool:
        """In Kyverno a rule with preconditions, or about subresources only, never does."""
        return self.rule.preconditions is None and not all(each.subresource for each in self._kinds)

    def _is_update(self, operations: tuple[str, ...]) -> Test:
        if set(operations) - {"CREATE", "UPDATE"}:
            return compare("request.operation", "==", '"UPDATE"')
        return TRUE

    def _was_bad(self) -> Test:
        # Kyverno evaluates the old object as if it were created now, without a known caller.
        old = replace(self._base, root="oldObject", operation="CREATE")
        before = all_of((self._old_matches(), self._fails(old)))
        return all_of((compare("oldObject", "!=", "null"), before))

    def _old_matches(self) -> Test:
        return self._match(replace(self._base, root="oldObject", operation="UPDATE"))

    def _compare_objects(
        self, operations: tuple[str, ...], subject: ResourceRoot
    ) -> tuple[Test, Test, Test] | None:
        """The new object passes, the old one did, and the old one matches; in one expression.

        None if the tests differ.
        """
        each = replace(self._base, root=EACH)
        tested = self._for_each(operations, each, self._fails)
        if tested != self._fails(replace(each, operation="CREATE")):
            return None
        good = simplify(negate(tested))
        # re: linear - fixed letters between conditions
        used = [n for n in LOOPED if re.search(rf"(?<![\w.]){n}\b", render(good))]
        if len(used) != 1:
            return None
        (name,) = used
        both = list_both(subject.root, name)
        if name != EACH:
            both = self.hoisted.add(f"{name}s", both)
        # What is not there is not wrong.
        right = render(any_of((compare(name, "==", "null"), good)))
        variable = self.hoisted.add("isRight", f"{both}.map({name}, {right})")
        return Atom(f"{variable}[0]"), Atom(f"{variable}[1]"), self._old_matches()


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
        (rule.name,),
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
) -> Iterator[tuple[str, Test]]:
    kinds = [(kind.api_version, kind.kind) for kind in selection.kinds]
    root = EITHER if "DELETE" in operations else "object"
    subject = ResourceRoot(root, find_shape(kinds), pod, inline=True)
    match = translate_match_for(rule, selection.kinds, subject, operations)
    if match != TRUE:
        yield "match", match
    scope = bind_context(rule.context, ExpressionScope(subject, PolicyVariables(inline=True)))
    tested = translate_conditions(rule.preconditions, scope)
    if tested != TRUE:
        yield "preconditions", tested
    for condition in rule.cel_preconditions:
        yield condition.name, Atom(condition.expression, risky=True)


def share_plan(plan: RulePlan, hoisted: PolicyVariables) -> RulePlan:
    """The plan of a rule in CEL, with variables that name the Pod."""
    known = pod_variables("object", is_strict=True)
    if any(hoisted.expressions.setdefault(name, text) != text for name, text in known.items()):
        raise CompileError("other rules of the policy do not need all of the Pod")
    if set(hoisted.expressions) & {name for name, _ in plan.variables}:
        raise CompileError("a variable of the rule has the name of one that is needed")
    return replace(
        plan,
        variables=tuple((name, share_text(text)) for name, text in plan.variables),
        validations=tuple(map(_share_all, plan.validations)),
        audit_annotations=tuple(map(_share_all, plan.audit_annotations)),
    )


def _share_all(part: JsonObject) -> JsonObject:
    return {k: share_text(v) if k.lower().endswith("expression") else v for k, v in part.items()}


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
