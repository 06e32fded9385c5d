"""What a JMESPath expression becomes: a value in CEL, a list that is gone through, or a test."""

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.cel_tests import (
    FALSE,
    TRUE,
    SettledTest,
    Test,
    all_of,
    any_of,
    choose,
    compare,
    for_all,
    for_some,
    is_full,
    negate,
    render,
)
from lictor.addons.convert.cel_values import (
    BOOLEAN,
    LIST,
    NUMBER,
    TEXT,
    CelValue,
    LoopNames,
    ResourceRoot,
    ValueShape,
)
from lictor.addons.convert.writing import PolicyVariables, literal, wrap
from lictor.core.errors import CompileError
from lictor.core.lang.jmespath.functions.spec import equals, is_false
from lictor.core.raw import Json


class Constant(msgspec.Struct, frozen=True):
    """A value that is the same for every request."""

    value: Json


class TestValue(msgspec.Struct, frozen=True):
    """The boolean result of a test."""

    test: Test


class ResourcePath(msgspec.Struct, frozen=True):
    """A path into the resource that may still become longer."""

    subject: ResourceRoot
    steps: tuple[str, ...] = ()

    @property
    def operand(self) -> CelValue:
        return self.subject.navigate(self.steps)


class RequestValue(msgspec.Struct, frozen=True):
    """`request` itself."""

    subject: ResourceRoot


class Several(msgspec.Struct, frozen=True):
    """A list literal."""

    items: "tuple[Value, ...]"


class LoopSource(msgspec.Struct, frozen=True):
    """A list to iterate over: the name of its elements, and which of them are kept."""

    operand: CelValue
    name: str
    keep: Test = TRUE


class LoopList(msgspec.Struct, frozen=True):
    """A list made by iterating over others; elements without a value are left out."""

    sources: tuple[LoopSource, ...]
    item: "Value"

    @property
    def present(self) -> Test:
        return self.sources[0].operand.present

    def or_empty(self) -> "LoopList":
        """The same, but empty where the list it is made of is not there."""
        first, *rest = self.sources
        operand = first.operand
        if not operand.guards:
            return self
        sure = CelValue(operand.or_value("[]"), operand.shape, label=operand.label)
        return LoopList((replace(first, operand=sure), *rest), self.item)


class Count(msgspec.Struct, frozen=True):
    """The number of elements of a list."""

    stream: LoopList


class Either(msgspec.Struct, frozen=True):
    """One value or another, depending on a test."""

    condition: Test
    then: "Value"
    other: "Value"


Value: TypeAlias = (
    Constant
    | TestValue
    | ResourcePath
    | CelValue
    | RequestValue
    | Several
    | LoopList
    | Count
    | Either
)

NOTHING = Constant(None)


def settle(value: Value) -> Value:
    """The same value, with paths resolved."""
    if isinstance(value, ResourcePath):
        return value.operand
    return value


def pick(value: Value, change: Callable[[Value], Value]) -> Value:
    """Change a value, or both that it may be."""
    value = settle(value)
    if isinstance(value, Either):
        return Either(value.condition, pick(value.then, change), pick(value.other, change))
    return change(value)


def test_each(value: Value, check: Callable[[Value], Test]) -> Test:
    """Test a value, or both that it may be."""
    value = settle(value)
    if isinstance(value, Either):
        return choose(value.condition, test_each(value.then, check), test_each(value.other, check))
    return check(value)


def is_present(value: Value) -> Test:
    """Whether the value is not null."""

    def check(one: Value) -> Test:
        if isinstance(one, Constant):
            return SettledTest(one.value is not None)
        if isinstance(one, CelValue | LoopList):
            return one.present
        return TRUE

    return test_each(value, check)


def is_true(value: Value) -> Test:
    """Whether JMESPath takes the value for true: it is there, not false and not empty."""

    def check(one: Value) -> Test:
        match one:
            case Constant():
                return SettledTest(not is_false(one.value))
            case TestValue():
                return one.test
            case CelValue():
                return all_of((one.present, _is_full(one)))
            case LoopList():
                return quantify(one, lambda _: TRUE, every=False)
        return TRUE

    return test_each(value, check)


def _is_full(operand: CelValue) -> Test:
    text = wrap(operand.text)
    match operand.type:
        case "string":
            return compare(text, "!=", '""', risky=operand.risky)
        case "boolean":
            return compare(text, "==", "true", risky=operand.risky)
        case "list" | "map":
            return is_full(operand.text, risky=operand.risky)
        case "number":
            return TRUE
    return all_of(compare(text, "!=", empty) for empty in ('""', "false", "[]", "{}"))


def is_equal(left: Value, right: Value) -> Test:
    """Whether JMESPath takes two values for the same."""
    return test_each(left, lambda one: test_each(right, lambda other: _are_same(one, other)))


def _are_same(one: Value, other: Value) -> Test:
    if isinstance(other, Constant) and not isinstance(one, Constant):
        one, other = other, one
    if isinstance(one, Constant) and isinstance(other, Constant):
        return SettledTest(equals(one.value, other.value))
    if isinstance(one, Constant):
        return _is_constant(other, one.value)
    if isinstance(one, CelValue) and isinstance(other, CelValue):
        risky = one.risky or other.risky
        same = compare(wrap(one.text), "==", wrap(other.text), risky=risky)
        both = all_of((one.present, other.present, same))
        neither = all_of((negate(one.present), negate(other.present)))
        return any_of((both, neither))
    raise CompileError("lists are compared with one another")


def _is_constant(value: Value, sought: Json) -> Test:
    if isinstance(value, TestValue):
        if not isinstance(sought, bool):
            return FALSE
        return value.test if sought else negate(value.test)
    if isinstance(value, Count):
        value = as_cel_value(value)
    if not isinstance(value, CelValue):
        raise CompileError("a list is compared with a constant")
    if sought is None:
        return negate(value.present)
    same = compare(wrap(value.text), "==", literal(sought), risky=value.risky)
    return all_of((value.present, same))


# --- lists that are gone through


def quantify(stream: LoopList, check: Callable[[Value], Test], *, every: bool) -> Test:
    """Test all elements, or whether one passes."""
    item = settle(stream.item)
    present, tested = is_present(item), check(_there(item))
    test = any_of((negate(present), tested)) if every else all_of((present, tested))
    for source in reversed(stream.sources):
        operand = source.operand
        if every:
            body = any_of((negate(source.keep), test))
            looped = for_all(operand.text, source.name, body, risky=operand.risky)
            test = any_of((negate(operand.present), looped))
        else:
            body = all_of((source.keep, test))
            looped = for_some(operand.text, source.name, body, risky=operand.risky)
            if body == TRUE:
                looped = is_full(operand.text, risky=operand.risky)
            test = all_of((operand.present, looped))
    return test


def _there(value: Value) -> Value:
    if isinstance(value, CelValue) and value.guards:
        return replace(value, guards=(), chain="")
    return value


def count(stream: LoopList) -> str:
    """The number of elements, as an expression; an error where the list is not there."""
    text = _count(stream.sources, settle(stream.item))
    first = stream.sources[0].operand
    if not first.guards or first.risky:
        return text
    return f"({render(first.present)} ? {text} : 0)"


def _count(sources: tuple[LoopSource, ...], item: Value) -> str:
    source, *rest = sources
    kept = source.keep if rest else all_of((source.keep, is_present(item)))
    operand = source.operand
    if rest and rest[0].operand.guards:
        kept = all_of((kept, rest[0].operand.present))
    text = wrap(operand.text)
    if kept != TRUE:
        text = f"{text}.filter({source.name}, {render(kept)})"
    if not rest:
        return f"{text}.size()"
    return f"{text}.map({source.name}, {_count(tuple(rest), item)}).sum()"


def collect(stream: LoopList) -> str:
    """The list itself, as an expression; empty where what it is made of is not there."""
    item = settle(stream.item)
    if len(stream.sources) != 1 or not isinstance(item, CelValue):
        raise CompileError("a list that is made of several others is needed as a whole")
    (source,) = stream.sources
    kept = all_of((source.keep, item.present))
    text = wrap(source.operand.or_value("[]"))
    if kept != TRUE:
        text = f"{text}.filter({source.name}, {render(kept)})"
    return text if item.text == source.name else f"{text}.map({source.name}, {item.text})"


def as_cel_value(value: Value) -> CelValue:
    """A value that is needed as such."""
    value = settle(value)
    match value:
        case CelValue():
            return value
        case Constant() if value.value is not None:
            shapes = {str: TEXT, bool: BOOLEAN, int: NUMBER, float: NUMBER}
            shape = shapes.get(type(value.value), ValueShape())
            return CelValue(literal(value.value), shape)
        case TestValue():
            return CelValue(render(value.test), BOOLEAN, risky=value.test.risky)
        case Count():
            risky = value.stream.sources[0].operand.risky
            return CelValue(count(value.stream), NUMBER, risky=risky)
        case LoopList():
            return CelValue(collect(value), LIST)
    raise CompileError("a value that may be one of several kinds is needed as a whole")


def guard(value: Value, guards: tuple[Test, ...]) -> Value:
    """The same value, that is there only where these hold."""
    if not guards:
        return value
    value = settle(value)
    match value:
        case CelValue():
            chain = f"({render(all_of(guards))} ? optional.of({value.text}) : optional.none())"
            return replace(value, guards=(*guards, *value.guards), chain=chain)
        case LoopList():
            first, *rest = value.sources
            operand = guard(first.operand, guards)
            if isinstance(operand, CelValue):
                return LoopList((replace(first, operand=operand), *rest), value.item)
    return Either(all_of(guards), value, NOTHING)


class ExpressionScope(msgspec.Struct, frozen=True):
    """The names that an expression may use."""

    subject: ResourceRoot
    hoisted: PolicyVariables
    # `element` and the rule's context entries.
    bindings: dict[str, Value] = {}
    names: LoopNames = LoopNames()
    # Texts of the resource may be wildcards themselves, as they are in roles.
    wildcards: bool = False
    # A path to what is not there is an error.
    strict: bool = True
    # Functions that only Kyverno has may be used.
    kyverno: bool = True

    def bind(self, /, **values: Value) -> "ExpressionScope":
        """The same with more names."""
        return msgspec.structs.replace(self, bindings={**self.bindings, **values})

    def hoist(self, name: str, text: str) -> str:
        """A variable for a text, unless it uses the variables of a loop."""
        # re: linear - fixed letters between conditions
        if any(re.search(rf"\b{taken}\b", text) for taken in self.names.taken):
            return f"({text})"
        return self.hoisted.add(name, text)

    def find(self, name: str) -> Value:
        """The value of a name; CompileError where there is none."""
        found = self.bindings.get(name)
        if found is not None:
            return found
        if name == "serviceAccountName":
            return _SERVICE_ACCOUNT
        raise CompileError(f"the variable {name} has no equivalent")


_USER = "request.userInfo.username"
_SERVICE_ACCOUNT = CelValue(
    f'({_USER}.startsWith("system:serviceaccount:") ? {_USER}.split(":")[3] : "")',
    TEXT,
    risky=True,
)
