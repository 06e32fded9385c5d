"""Values inside a resource: how CEL reaches them, and what must be there for that."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.cel_tests import Atom, Test, all_of, compare, render
from lictor.addons.convert.pod_templates import choose_pod_field, name_pod_field, pod_variables
from lictor.addons.convert.writing import field, is_name, optional_field, quote, wrap
from lictor.core.facts.schemas import Form, find_form


class ValueShape(msgspec.Struct, frozen=True):
    """The possible types of a value: the schemas that the matched kinds have there.

    Kinds of which nothing is known have no form; then anything may.
    """

    forms: tuple[Form, ...] = ()
    # The known type without a form, such as that of a function's result.
    declared: str = ""

    @property
    def type(self) -> str:
        """`string`, `number`, `boolean`, `list` or `map`; empty where it may be several."""
        if self.declared:
            return self.declared
        types = {_name_type(form) for form in self.forms}
        return types.pop() if len(types) == 1 else ""

    def step(self, name: str) -> "ValueShape":
        """The shape of a field."""
        found = []
        for form in self.forms:
            inner = form.map.fields.get(name, form.map.others) if form.map is not None else None
            if inner is None:
                return ValueShape()
            found.append(inner)
        return ValueShape(tuple(found))

    @property
    def element(self) -> "ValueShape":
        """The shape of the elements of a list."""
        found = [form.list.element for form in self.forms if form.list is not None]
        return ValueShape(tuple(found)) if len(found) == len(self.forms) else ValueShape()

    @property
    def value(self) -> "ValueShape":
        """The shape of the values of a map."""
        found = [form.map.others for form in self.forms if form.map is not None]
        known = [form for form in found if form is not None]
        return ValueShape(tuple(known)) if len(known) == len(self.forms) else ValueShape()


TEXT = ValueShape(declared="string")
NUMBER = ValueShape(declared="number")
BOOLEAN = ValueShape(declared="boolean")
LIST = ValueShape(declared="list")
ANYTHING = ValueShape()


def _name_type(form: Form) -> str:
    parts = [name for name, there in (("list", form.list), ("map", form.map)) if there is not None]
    if form.scalar:
        parts.append("" if form.scalar == "scalar" else form.scalar)
    return parts[0] if len(parts) == 1 else ""


class CelValue(msgspec.Struct, frozen=True):
    """A value: `text` reaches it where all `guards` hold."""

    text: str
    shape: ValueShape = ANYTHING
    guards: tuple[Test, ...] = ()
    # The same as an optional value; empty where the value is there for certain.
    chain: str = ""
    # Reaching it may fail though all guards hold: they were left out on purpose.
    risky: bool = False
    # The name of the last step, for those who name variables.
    label: str = ""
    # It comes from another object, whose author may have written anything there.
    foreign: bool = False

    @property
    def type(self) -> str:
        return self.shape.type

    @property
    def present(self) -> Test:
        """Whether the value is there."""
        return all_of(self.guards)

    def step(self, name: str, *, certain: bool = False) -> "CelValue":
        """A field of this value."""
        text = field(wrap(self.text), name)
        shape = self.shape.step(name)
        if certain and not self.guards:
            return replace(self, text=text, shape=shape, label=name)
        return CelValue(
            text,
            shape,
            (*self.guards, holds_field(self.text, name)),
            optional_field(wrap(self.chain or self.text), name),
            self.risky,
            name,
            self.foreign,
        )

    def item(self, index: int) -> "CelValue":
        """An element of this list."""
        base = wrap(self.text)
        return CelValue(
            f"{base}[{index}]",
            self.shape.element,
            (*self.guards, compare(f"{base}.size()", ">", str(index))),
            f"{wrap(self.chain or self.text)}[?{index}]",
            self.risky,
            self.label,
            self.foreign,
        )

    def become(self, text: str, shape: ValueShape) -> "CelValue":
        """What a function makes of the value, with `{}` in its text for the value."""
        made = text.replace("{}", wrap(self.text))
        chain = self.chain and f"{wrap(self.chain)}.optMap(value, {text.replace('{}', 'value')})"
        return replace(self, text=made, shape=shape, chain=chain)

    def certain(self) -> "CelValue":
        """The same value, evaluated to an error where it is missing."""
        if not self.guards:
            return self
        return replace(self, guards=(), chain="", risky=True)

    def or_value(self, default: str) -> str:
        """The value, or a literal where it is not there."""
        return f"{wrap(self.chain)}.orValue({default})" if self.chain else self.text


def holds_field(base: str, name: str) -> Test:
    """Whether a map has a field."""
    text = wrap(base)
    if is_name(name):
        return Atom(f"has({text}.{name})")
    return Atom(f"{quote(name)} in {text}")


class LoopNames:
    """Names for the variables of loops, none of them twice within one another."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = frozenset(taken)

    def also(self, name: str) -> "LoopNames":
        """The same, with one more that is taken."""
        return LoopNames((*self.taken, name))

    def fresh(self, label: str) -> "tuple[str, LoopNames]":
        """A name for the elements of the list with this label."""
        name = _singular(label)
        known = name
        count = 2
        while known in self.taken:
            known = f"{name}{count}"
            count += 1
        return known, self.also(known)


_RESERVED = frozenset(("object", "request", "params", "variables", "image", "type", "size", "has"))


def _singular(label: str) -> str:
    word = label[label.find("variables.") + 10 :] if label.startswith("variables.") else label
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    elif word.endswith("ses") and not word.endswith("uses"):
        word = word[:-2]
    elif word.endswith("s"):
        word = word[:-1]
    lower = word[:1].lower() + word[1:]
    return lower if is_name(lower) and lower not in _RESERVED else "item"


EITHER = "variables.resource"
_EITHER = "object == null ? oldObject : object"
# What every object has once an API server took it.
_CERTAIN = frozenset(("metadata", "spec", "kind", "apiVersion"))
# Lists that an API server writes as null where they are empty: those of roles and bindings.
_NULLABLE = frozenset(("rules", "subjects"))
_TEXTS = frozenset(("kind", "apiVersion"))
_MOVED = ("spec", "metadata")


class ResourceRoot(msgspec.Struct, frozen=True):
    """The root of paths in CEL."""

    # `object` or `oldObject`; EITHER is the one that exists.
    root: str = "object"
    shape: ValueShape = ANYTHING
    # Where the Pod is inside of the object; None where the rule is not about Pods at all.
    pod: tuple[str, ...] | None = None
    # The operation, where it is taken for another than the request's.
    operation: str = ""
    # Variables cannot be used: what they stand for is written out.
    inline: bool = False
    # The Pod is named by variables that stand for its place in objects of all kinds.
    shared: bool = False

    @property
    def operand(self) -> CelValue:
        if self.root == EITHER and self.inline:
            return CelValue(f"({_EITHER})", self.shape)
        return CelValue(self.root, self.shape)

    def navigate(self, steps: tuple[str, ...]) -> CelValue:
        """The value at the end of a path."""
        if not steps:
            return self.operand
        if self.pod is not None and steps[: len(self.pod)] == self.pod:
            inner = steps[len(self.pod) :]
            if inner and inner[0] in _MOVED:
                return _walk(self._pod_field(self.pod, inner[0]), inner[1:])
        first = self.operand.step(steps[0], certain=steps[0] in _CERTAIN)
        if steps[0] in _NULLABLE and first.type == "list":
            first = _not_null(first)
        if steps[0] in _TEXTS:
            first = replace(first, shape=TEXT)
        return _walk(first, steps[1:])

    def _pod_field(self, pod: tuple[str, ...], name: str) -> CelValue:
        shape = self.shape
        for step in (*pod, name):
            shape = shape.step(step)
        if self.shared:
            return CelValue(self._shared_field(name), shape, label=name)
        if self.root == EITHER:
            expression = _choose_field(pod, name)
            text = f"({expression})" if self.inline else f"variables.{name}"
            return CelValue(text, shape, label=name)
        text = ".".join((self.root, *pod, name))
        if name == "spec":
            return CelValue(text, shape, label=name)
        chain = f"(has({text}) ? optional.of({text}) : optional.none())"
        return CelValue(text, shape, (Atom(f"has({text})"),), chain, label=name)

    def _shared_field(self, name: str) -> str:
        if not self.inline:
            return name_pod_field(self.root, name)
        return f"({choose_pod_field(self.operand.text, name)})"

    def variables(self, *, is_strict: bool = False) -> dict[str, str]:
        """The variables that paths from here may refer to."""
        made = {"resource": _EITHER} if self.root == EITHER else {}
        if self.shared:
            return {**made, **pod_variables(self.root, is_strict=is_strict)}
        if self.root != EITHER or self.pod is None:
            return made
        return {**made, **{name: _choose_field(self.pod, name) for name in _MOVED}}


def _not_null(operand: CelValue) -> CelValue:
    given = all_of((*operand.guards, compare(operand.text, "!=", "null")))
    chain = f"({render(given)} ? optional.of({operand.text}) : optional.none())"
    return replace(operand, guards=(given,), chain=chain)


def _walk(operand: CelValue, steps: tuple[str, ...]) -> CelValue:
    for step in steps:
        operand = operand.step(step)
    return operand


def find_shape(kinds: list[tuple[str, str]]) -> ValueShape:
    """The shape of objects of these kinds (API version and kind); unknown if one of them is."""
    forms = [find_form(api_version, kind) for api_version, kind in kinds]
    known = [form for form in forms if form is not None]
    return ValueShape(tuple(known)) if forms and len(known) == len(forms) else ANYTHING


def _choose_field(pod: tuple[str, ...], name: str) -> str:
    new, old = (".".join((root, *pod, name)) for root in ("object", "oldObject"))
    if name == "metadata":
        new, old = (f"(has({text}) ? {text} : {{}})" for text in (new, old))
    return f"object == null ? {old} : {new}"
