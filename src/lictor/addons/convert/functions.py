"""JMESPath functions, and the variable `images`, as CEL."""

from collections.abc import Callable
from typing import TypeAlias

from lictor.addons.convert.cel_tests import Atom, Test, any_of, choose
from lictor.addons.convert.cel_values import LIST, NUMBER, TEXT, CelValue, LoopNames, ResourceRoot
from lictor.addons.convert.navigation import as_stream
from lictor.addons.convert.value import (
    Constant,
    Count,
    Either,
    ExpressionScope,
    LoopList,
    LoopSource,
    Several,
    TestValue,
    Value,
    as_cel_value,
    is_equal,
    is_present,
    pick,
    quantify,
    settle,
    test_each,
)
from lictor.addons.convert.writing import quote, wrap
from lictor.core.errors import CompileError
from lictor.core.lang.jmespath.syntax import Node, NodeKind

_CONTAINERS = frozenset(("containers", "initContainers", "ephemeralContainers"))


def is_images(node: Node) -> bool:
    """Whether a node is the variable."""
    return node.kind is NodeKind.FIELD and node.value == "images"


def images_of(field: str, subject: ResourceRoot, names: LoopNames) -> Value:
    """The images of the containers of one field, in place of a map by container."""
    if subject.pod is None and not _is_pod(subject):
        raise CompileError("images of what is not known to be a Pod")
    if field not in _CONTAINERS:
        raise CompileError(f"images.{field} has no equivalent")
    stream = as_stream(subject.navigate((*(subject.pod or ()), "spec", field)), names)
    if not isinstance(stream, LoopList) or not isinstance(stream.item, CelValue):
        raise CompileError("images of containers that are no list")
    return LoopList(stream.sources, stream.item.step("image"))


def _is_pod(subject: ResourceRoot) -> bool:
    return subject.shape.step("spec").step("containers").type == "list"


def image_parts(images: Value, part: Node) -> Value:
    """One part of each image's name."""
    if (
        part.kind is not NodeKind.FIELD
        or part.value != "registry"
        or not isinstance(images, LoopList)
    ):
        # Kyverno's CEL writes out what is left out (`library/`, digests without tags).
        raise CompileError(f"images.*.{part.value}: CEL takes image names apart in another way")
    image = settle(images.item)
    if not isinstance(image, CelValue):
        raise CompileError("images that are no texts")
    text = 'image({}).registry().replace("index.docker.io", "docker.io")'
    return LoopList(images.sources, image.become(text, TEXT))


Function: TypeAlias = Callable[..., Value]


def _length(_scope: ExpressionScope, _names: LoopNames, value: Value) -> Value:
    def measure(one: Value) -> Value:
        match one:
            case Constant() if isinstance(one.value, str | list | dict):
                return Constant(len(one.value))
            case Several():
                return Constant(len(one.items))
            case LoopList():
                return Count(_certain_stream(one))
            case CelValue():
                return one.certain().become("{}.size()", NUMBER)
        raise CompileError("the length of what has none")

    return pick(value, measure)


def _certain_stream(stream: LoopList) -> LoopList:
    first, *rest = stream.sources
    return LoopList(
        (LoopSource(first.operand.certain(), first.name, first.keep), *rest), stream.item
    )


def _keys(_scope: ExpressionScope, names: LoopNames, value: Value) -> Value:
    def list_keys(one: Value) -> Value:
        if isinstance(one, Constant) and isinstance(one.value, dict):
            return Constant(list(one.value))
        operand = as_cel_value(one).certain()
        name, _ = names.fresh("keys")
        return LoopList((LoopSource(operand, name),), CelValue(name, TEXT))

    return pick(value, list_keys)


def _contains(_scope: ExpressionScope, _names: LoopNames, hay: Value, needle: Value) -> Value:
    return TestValue(test_each(hay, lambda one: _holds(one, needle)))


def _holds(hay: Value, needle: Value) -> Test:
    match hay:
        case Constant() if isinstance(hay.value, list):
            return any_of(is_equal(Constant(item), needle) for item in hay.value)
        case Several():
            return any_of(is_equal(item, needle) for item in hay.items)
        case LoopList():
            return quantify(_certain_stream(hay), lambda one: is_equal(one, needle), every=False)
    operand = as_cel_value(hay).certain()
    sought = as_cel_value(needle)
    within = Atom(f"{wrap(operand.text)}.contains({sought.text})", risky=operand.risky)
    member = Atom(f"{sought.text} in {wrap(operand.text)}", risky=operand.risky)
    if operand.type == "string":
        return within
    if operand.type == "list":
        return member
    is_text = Atom(
        f"type({operand.text}) == string", f"type({operand.text}) != string", operand.risky
    )
    return choose(is_text, within, member)


def _on_text(method: str) -> Function:
    def call(_scope: ExpressionScope, _names: LoopNames, *arguments: Value) -> Value:
        subject, *rest = arguments
        given = ", ".join(as_cel_value(one).text for one in rest)

        def apply(one: Value) -> Value:
            return as_cel_value(one).certain().become(f"{{}}.{method}({given})", TEXT)

        return pick(subject, apply)

    return call


def _check_text(method: str) -> Function:
    def call(_scope: ExpressionScope, _names: LoopNames, subject: Value, sought: Value) -> Value:
        def check(one: Value) -> Test:
            operand, other = as_cel_value(one).certain(), as_cel_value(sought).certain()
            text = f"{wrap(operand.text)}.{method}({other.text})"
            return Atom(text, risky=operand.risky or other.risky)

        return TestValue(test_each(subject, check))

    return call


def _regex_match(
    _scope: ExpressionScope, _names: LoopNames, pattern: Value, subject: Value
) -> Value:
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        raise CompileError("a regular expression that is not a constant")
    expression = quote(pattern.value)

    def check(one: Value) -> Test:
        operand = as_cel_value(one).certain()
        text = wrap(operand.text) if operand.type in ("string", "") else f"string({operand.text})"
        return Atom(f"{text}.matches({expression})", risky=operand.risky)

    return TestValue(test_each(subject, check))


def _to_string(_scope: ExpressionScope, _names: LoopNames, value: Value) -> Value:
    def write(one: Value) -> Value:
        operand = as_cel_value(one)
        if operand.type == "string":
            return operand
        if operand.type in ("number", "boolean"):
            return operand.become("string({})", TEXT)
        raise CompileError("to_string of what may be a list or a map")

    return pick(value, write)


def _split(_scope: ExpressionScope, _names: LoopNames, subject: Value, separator: Value) -> Value:
    operand = as_cel_value(subject).certain()
    return operand.become(f"{{}}.split({as_cel_value(separator).text})", LIST)


def _join(_scope: ExpressionScope, _names: LoopNames, separator: Value, items: Value) -> Value:
    between = as_cel_value(separator).text
    if isinstance(items, Several):
        texts = f" + {between} + ".join(wrap(as_cel_value(item).text) for item in items.items)
        return CelValue(texts, TEXT)
    return as_cel_value(items).become(f"{{}}.join({between})", TEXT)


def _to_array(_scope: ExpressionScope, _names: LoopNames, value: Value) -> Value:
    def wrap_one(one: Value) -> Value:
        if isinstance(one, LoopList):
            return one.or_empty()
        if isinstance(one, Several) or (isinstance(one, CelValue) and one.type == "list"):
            return one
        return Several((one,))

    return pick(value, wrap_one)


def _not_null(_scope: ExpressionScope, _names: LoopNames, *values: Value) -> Value:
    *before, last = values
    made = last
    for value in reversed(before):
        made = Either(is_present(value), value, made)
    return made


FUNCTIONS: dict[str, Function] = {
    "contains": _contains,
    "ends_with": _check_text("endsWith"),
    "join": _join,
    "keys": _keys,
    "length": _length,
    "not_null": _not_null,
    "regex_match": _regex_match,
    "split": _split,
    "starts_with": _check_text("startsWith"),
    "to_array": _to_array,
    "to_lower": _on_text("lowerAscii"),
    "to_string": _to_string,
    "to_upper": _on_text("upperAscii"),
}
