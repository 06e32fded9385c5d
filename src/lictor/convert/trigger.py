"""Which requests a mutate or a generate rule concerns, as the parts of a CEL policy."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from lictor.convert.condition import translate_conditions
from lictor.convert.context import bind_context
from lictor.convert.kinds import Meant, resource_rules
from lictor.convert.plan import Ground
from lictor.convert.scope import Hoisted, Scope
from lictor.convert.selection import select, translate_match
from lictor.convert.subject import Subject, find_shape
from lictor.convert.truth import FALSE, TRUE, Test, render
from lictor.errors import CompileError
from lictor.model.policy import Rule
from lictor.raw import JsonObject

_ROLES = "rbac.authorization.k8s.io"
_USUAL = ("CREATE", "UPDATE")


class Trigger(msgspec.Struct, frozen=True):
    """What a rule concerns, and the scope of its expressions."""

    kinds: tuple[Meant, ...]
    operations: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...]
    namespace_selector: JsonObject | None
    scope: Scope

    @property
    def constraints(self) -> JsonObject:
        """`matchConstraints`."""
        made: JsonObject = {"resourceRules": resource_rules(self.kinds, self.operations)}
        if self.namespace_selector is not None:
            made["namespaceSelector"] = self.namespace_selector
        return made


def find_trigger(
    rule: Rule, pod: tuple[str, ...] | None, hoisted: Hoisted, ground: Ground
) -> Trigger:
    """The trigger of a rule; CompileError says what has no equivalent."""
    selection = select(rule, ground.names, ground.groups)
    kinds = [(kind.api_version, kind.kind) for kind in selection.kinds]
    subject = Subject(shape=find_shape(kinds), pod=pod, inline=True)

    def scope_of(operation: str, names: Hoisted) -> Scope:
        scope = Scope(
            replace(subject, operation=operation),
            names,
            wildcards=all(kind.group == _ROLES for kind in selection.kinds),
        )
        return bind_context(rule.context, scope)

    def ask(operation: str) -> Test:
        return translate_conditions(rule.preconditions, scope_of(operation, Hoisted(inline=True)))

    wanted = selection.operations or _USUAL
    operations = tuple(op for op in wanted if op in _USUAL and ask(op) != FALSE)
    if not operations:
        raise CompileError("a rule that concerns no request")
    asked = [ask(operation) for operation in operations]
    condition = asked[0] if all(test == asked[0] for test in asked) else ask("")
    match = translate_match(rule, selection.kinds, subject)
    return Trigger(
        selection.kinds,
        operations,
        tuple(_name(match, condition, rule)),
        selection.namespace_selector,
        scope_of("", hoisted),
    )


def _name(match: Test, asked: Test, rule: Rule) -> Iterable[tuple[str, str]]:
    for name, test in (("match", match), ("preconditions", asked)):
        if test != TRUE:
            yield name, render(test)
    for condition in rule.cel_preconditions:
        yield condition.name, condition.expression
