"""One rule of a policy as the parts of a CEL policy: what it concerns and what it asks."""

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from lictor.compile.actions import base_action
from lictor.convert.body import translate_fails
from lictor.convert.condition import translate_conditions
from lictor.convert.context import bind_context
from lictor.convert.kinds import Meant
from lictor.convert.message import translate_message
from lictor.convert.scope import Hoisted, Scope
from lictor.convert.selection import Selection, select, translate_match
from lictor.convert.subject import EITHER, Subject, either_variables, find_shape
from lictor.convert.truth import (
    FALSE,
    TRUE,
    Test,
    all_of,
    compare,
    negate,
    render,
)
from lictor.errors import CompileError
from lictor.lang.resource_names import ResourceNames
from lictor.model.policy import Policy, Rule, Validate
from lictor.model.result import Action
from lictor.raw import JsonObject

_ROLES = "rbac.authorization.k8s.io"


class Ground(msgspec.Struct, frozen=True):
    """What all rules of a conversion share."""

    policy: Policy
    names: ResourceNames
    # Groups in which kinds are looked for before those of Kubernetes itself.
    groups: tuple[str, ...] = ()
    # Kyverno's own functions may be used.
    kyverno: bool = True


class Plan(msgspec.Struct, frozen=True):
    """The parts of a CEL policy that one rule becomes."""

    rule: str
    kinds: tuple[Meant, ...]
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
    rule: Rule, pod: tuple[str, ...] | None, hoisted: Hoisted, ground: Ground
) -> Plan:
    """A validate rule; CompileError says what has no equivalent."""
    validate = rule.validate
    if validate is None:
        raise CompileError("not a validate rule")
    selection = select(rule, ground.names, ground.groups)
    if validate.cel is not None:
        from lictor.convert.cel import plan_cel

        return plan_cel(rule, pod, selection, ground)
    return _Planner(rule, validate, pod, hoisted, ground, selection).plan()


class _Planner(msgspec.Struct, frozen=True):
    rule: Rule
    validate: Validate
    pod: tuple[str, ...] | None
    hoisted: Hoisted
    ground: Ground
    selection: Selection

    def plan(self) -> Plan:
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
        return Plan(
            self.rule.name,
            self.selection.kinds,
            operations,
            self.pod,
            self.selection.namespace_selector,
            tuple(_conditions((("match", match), ("preconditions", asked)))),
            (),
            (validation,),
            action=base_action(self.ground.policy, self.rule),
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
    def _kinds(self) -> tuple[Meant, ...]:
        return self.selection.kinds

    def _can_fail(self, operation: str) -> bool:
        if operation == "DELETE" and self.validate.deny is None:
            # Nothing is left to have a shape, or elements.
            return False
        root = "oldObject" if operation == "DELETE" else "object"
        subject = replace(self._base, root=root, operation=operation)
        parts = (self._asked(subject), self._fails(subject, Hoisted(inline=True)))
        return all_of(parts) != FALSE

    # --- where the resource is

    @property
    def _base(self) -> Subject:
        kinds = [(kind.api_version, kind.kind) for kind in self._kinds]
        return Subject(shape=find_shape(kinds), pod=self.pod)

    def _subject(self, operations: tuple[str, ...]) -> Subject:
        if "DELETE" not in operations:
            return self._base
        root = "oldObject" if operations == ("DELETE",) else EITHER
        return replace(self._base, root=root)

    def _scope(self, subject: Subject, hoisted: Hoisted | None = None) -> Scope:
        scope = Scope(
            subject,
            self.hoisted if hoisted is None else hoisted,
            wildcards=all(kind.group == _ROLES for kind in self._kinds),
            kyverno=self.ground.kyverno,
        )
        return bind_context(self.rule.context, scope)

    def _for_each(
        self, operations: Iterable[str], subject: Subject, build: Callable[[Subject], Test]
    ) -> Test:
        """Without the operation where it makes no difference."""
        made = [build(replace(subject, operation=operation)) for operation in operations]
        return made[0] if all(test == made[0] for test in made) else build(subject)

    # --- parts

    def _match(self, subject: Subject) -> Test:
        return translate_match(self.rule, self._kinds, replace(subject, inline=True))

    def _asked(self, subject: Subject) -> Test:
        scope = self._scope(replace(subject, inline=True), Hoisted(inline=True))
        return translate_conditions(self.rule.preconditions, scope)

    def _fails(self, subject: Subject, hoisted: Hoisted | None = None) -> Test:
        return translate_fails(self.validate, self._scope(subject, hoisted))

    def _relaxed(self, operations: tuple[str, ...], subject: Subject) -> Test:
        """Fail, unless the old object was as bad and that is allowed."""
        fails = self._for_each(operations, subject, self._fails)
        enforced = base_action(self.ground.policy, self.rule) is Action.ENFORCE
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
