"""Where do expressions stand in the kinds of policies, and what must each of them answer?"""

from collections.abc import Iterator

import msgspec

from lictor.lint.part import Part

_BOOL = ("bool",)
_TEXT = ("string",)
_MAYBE_TEXT = ("string", "null_type")
_TARGETS = ("map(string, dyn)", "dyn")
_IMAGES = ("list(string)", "list(dyn)", "dyn")


class Place(msgspec.Struct, frozen=True):
    """An expression, and the types that it may answer."""

    part: Part
    types: tuple[str, ...]


def list_places(spec: Part) -> Iterator[Place]:
    """Every expression that may use variables; of any kind of policy."""
    for validation in spec["validations"].each():
        yield Place(validation["expression"], _BOOL)
        yield Place(validation["messageExpression"], _TEXT)
    for annotation in spec["auditAnnotations"].each():
        yield Place(annotation["valueExpression"], _MAYBE_TEXT)
    for mutation in spec["mutations"].each():
        yield Place(mutation["applyConfiguration"]["expression"], ("Object",))
        yield Place(mutation["jsonPatch"]["expression"], ("list(JSONPatch)",))
    for generation in spec["generate"].each():
        yield Place(generation["expression"], _BOOL)
    for condition in spec["conditions"].each():
        yield Place(condition["expression"], _BOOL)
    yield Place(spec["targetMatchConstraints"]["expression"], _TARGETS)
    for extractor in spec["images"].each():
        yield Place(extractor["expression"], _IMAGES)


def list_conditions(spec: Part) -> Iterator[Place]:
    """The conditions that say whether a policy concerns a request at all."""
    for condition in spec["matchConditions"].each():
        yield Place(condition["expression"], _BOOL)


def list_texts(spec: Part) -> Iterator[str]:
    """All expressions, those of variables among them."""
    for variable in spec["variables"].each():
        yield variable["expression"].text
    for place in (*list_places(spec), *list_conditions(spec)):
        yield place.part.text
