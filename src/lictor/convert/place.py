"""Values inside a resource: how CEL reaches them, and what must be there for that."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from lictor.convert.truth import Atom, Test, all_of, compare
from lictor.convert.writing import field, is_name, optional_field, quote, wrap
from lictor.lang.kind_schema import Form


class Shape(msgspec.Struct, frozen=True):
    """What may stand at a place: the forms that the kinds in question have there.

    Kinds of which nothing is known have no form; then anything may.
    """

    forms: tuple[Form, ...] = ()
    # What is known where there are no forms: a type that a function gives, say.
    told: str = ""

    @property
    def type(self) -> str:
        """`string`, `number`, `boolean`, `list` or `map`; empty where it may be several."""
        if self.told:
            return self.told
        types = {_name_type(form) for form in self.forms}
        return types.pop() if len(types) == 1 else ""

    def step(self, name: str) -> "Shape":
        """The shape of a field."""
        found = []
        for form in self.forms:
            inner = form.map.fields.get(name, form.map.others) if form.map is not None else None
            if inner is None:
                return Shape()
            found.append(inner)
        return Shape(tuple(found))

    @property
    def element(self) -> "Shape":
        """The shape of the elements of a list."""
        found = [form.list.element for form in self.forms if form.list is not None]
        return Shape(tuple(found)) if len(found) == len(self.forms) else Shape()

    @property
    def value(self) -> "Shape":
        """The shape of the values of a map."""
        found = [form.map.others for form in self.forms if form.map is not None]
        known = [form for form in found if form is not None]
        return Shape(tuple(known)) if len(known) == len(self.forms) else Shape()


TEXT = Shape(told="string")
NUMBER = Shape(told="number")
BOOLEAN = Shape(told="boolean")
LIST = Shape(told="list")
ANYTHING = Shape()


def _name_type(form: Form) -> str:
    parts = [name for name, there in (("list", form.list), ("map", form.map)) if there is not None]
    if form.scalar:
        parts.append("" if form.scalar == "scalar" else form.scalar)
    return parts[0] if len(parts) == 1 else ""


class Place(msgspec.Struct, frozen=True):
    """A value: `text` reaches it where all `guards` hold."""

    text: str
    shape: Shape = ANYTHING
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

    def step(self, name: str, *, certain: bool = False) -> "Place":
        """A field of this value."""
        text = field(wrap(self.text), name)
        shape = self.shape.step(name)
        if certain and not self.guards:
            return replace(self, text=text, shape=shape, label=name)
        return Place(
            text,
            shape,
            (*self.guards, holds_field(self.text, name)),
            optional_field(wrap(self.chain or self.text), name),
            self.risky,
            name,
            self.foreign,
        )

    def item(self, index: int) -> "Place":
        """An element of this list."""
        base = wrap(self.text)
        return Place(
            f"{base}[{index}]",
            self.shape.element,
            (*self.guards, compare(f"{base}.size()", ">", str(index))),
            f"{wrap(self.chain or self.text)}[?{index}]",
            self.risky,
            self.label,
            self.foreign,
        )

    def become(self, text: str, shape: Shape) -> "Place":
        """What a function makes of the value, with `{}` in its text for the value."""
        made = text.replace("{}", wrap(self.text))
        chain = self.chain and f"{wrap(self.chain)}.optMap(value, {text.replace('{}', 'value')})"
        return replace(self, text=made, shape=shape, chain=chain)

    def certain(self) -> "Place":
        """The same for one who wants an error where the value is not there."""
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


class Names:
    """Names for the variables of loops, none of them twice within one another."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = frozenset(taken)

    def also(self, name: str) -> "Names":
        """The same, with one more that is taken."""
        return Names((*self.taken, name))

    def fresh(self, label: str) -> "tuple[str, Names]":
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
