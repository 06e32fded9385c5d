"""Where the resource is that a rule speaks of: the new object, the old one, or whichever is there.

A rule about Pods has twins for the controllers that make Pods. CEL policies have such twins too,
made by looking for `object.spec` and `object.metadata` in the text: both must come out the same, so
paths begin with these words, and a Pod's metadata is taken for something that may be left out, as
it may in a template.
"""

import msgspec
from msgspec.structs import replace

from lictor.convert.place import ANYTHING, TEXT, Place, Shape
from lictor.convert.truth import Atom, all_of, compare, render
from lictor.lang.kind_schema import find_form

EITHER = "variables.resource"
_EITHER = "object == null ? oldObject : object"
# What every object has once an API server took it.
_CERTAIN = frozenset(("metadata", "spec", "kind", "apiVersion"))
# Lists that an API server writes as null where they are empty: those of roles and bindings.
_NULLABLE = frozenset(("rules", "subjects"))
_TEXTS = frozenset(("kind", "apiVersion"))
_MOVED = ("spec", "metadata")


class Subject(msgspec.Struct, frozen=True):
    """The root of paths, in the words of CEL."""

    # `object` or `oldObject`; EITHER is whichever is there.
    root: str = "object"
    shape: Shape = ANYTHING
    # Where the Pod is inside of the object; None where the rule is not about Pods at all.
    pod: tuple[str, ...] | None = None
    # The operation, where it is taken for another than the request's.
    operation: str = ""
    # Variables cannot be used: what they stand for is written out.
    inline: bool = False

    @property
    def place(self) -> Place:
        if self.root == EITHER and self.inline:
            return Place(f"({_EITHER})", self.shape)
        return Place(self.root, self.shape)

    def navigate(self, steps: tuple[str, ...]) -> Place:
        """The value at the end of a path."""
        if not steps:
            return self.place
        if self.pod is not None and steps[: len(self.pod)] == self.pod:
            inner = steps[len(self.pod) :]
            if inner and inner[0] in _MOVED:
                return _walk(self._pod_field(self.pod, inner[0]), inner[1:])
        first = self.place.step(steps[0], certain=steps[0] in _CERTAIN)
        if steps[0] in _NULLABLE and first.type == "list":
            first = _not_null(first)
        if steps[0] in _TEXTS:
            first = replace(first, shape=TEXT)
        return _walk(first, steps[1:])

    def _pod_field(self, pod: tuple[str, ...], name: str) -> Place:
        shape = self.shape
        for step in (*pod, name):
            shape = shape.step(step)
        if self.root == EITHER:
            expression = _choose_field(pod, name)
            text = f"({expression})" if self.inline else f"variables.{name}"
            return Place(text, shape, label=name)
        text = ".".join((self.root, *pod, name))
        if name == "spec":
            return Place(text, shape, label=name)
        chain = f"(has({text}) ? optional.of({text}) : optional.none())"
        return Place(text, shape, (Atom(f"has({text})"),), chain, label=name)


def _not_null(place: Place) -> Place:
    given = all_of((*place.guards, compare(place.text, "!=", "null")))
    chain = f"({render(given)} ? optional.of({place.text}) : optional.none())"
    return replace(place, guards=(given,), chain=chain)


def _walk(place: Place, steps: tuple[str, ...]) -> Place:
    for step in steps:
        place = place.step(step)
    return place


def find_shape(kinds: list[tuple[str, str]]) -> Shape:
    """The shape of objects of these kinds (API version and kind); unknown if one of them is."""
    forms = [find_form(api_version, kind) for api_version, kind in kinds]
    known = [form for form in forms if form is not None]
    return Shape(tuple(known)) if forms and len(known) == len(forms) else ANYTHING


def either_variables(pod: tuple[str, ...] | None) -> dict[str, str]:
    """The variables that EITHER stands for."""
    if pod is None:
        return {"resource": _EITHER}
    return {"resource": _EITHER, **{name: _choose_field(pod, name) for name in _MOVED}}


def _choose_field(pod: tuple[str, ...], name: str) -> str:
    new, old = (".".join((root, *pod, name)) for root in ("object", "oldObject"))
    if name == "metadata":
        new, old = (f"(has({text}) ? {text} : {{}})" for text in (new, old))
    return f"object == null ? {old} : {new}"
