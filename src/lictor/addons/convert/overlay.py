"""`patchStrategicMerge` taken apart: when it is applied, and what is left to be merged."""

from typing import TypeAlias

import msgspec

from lictor.addons.convert.cel_tests import (
    FALSE,
    TRUE,
    Test,
    all_of,
    any_of,
    for_some,
    is_full,
    negate,
)
from lictor.addons.convert.cel_values import TEXT, CelValue, LoopNames
from lictor.addons.convert.pattern import FillIn, translate_element
from lictor.addons.convert.scalar import translate_scalar
from lictor.core.errors import CompileError
from lictor.core.lang.patch.strategic_merge import print_scalar
from lictor.core.lang.pattern.anchor import Modifier, parse_anchor
from lictor.core.lang.template import has_variables
from lictor.core.raw import Json

_KNOWN = (Modifier.CONDITION, Modifier.GLOBAL, Modifier.ADDITION)
_TEMPLATES = ("object", "object.spec.template", "object.spec.jobTemplate.spec.template")
_CERTAIN = frozenset((
    "object.metadata", "object.spec.template", "object.spec.jobTemplate",
    "object.spec.jobTemplate.spec", "object.spec.jobTemplate.spec.template",
    *(f"{template}.spec" for template in _TEMPLATES),
))  # fmt: skip
_ANY = ("*", "?*", "*?")


def descend(target: CelValue, key: str) -> CelValue:
    """A field; fields that every object of a known kind has are never missing."""
    is_certain = bool(target.shape.step(key).forms) and f"{target.text}.{key}" in _CERTAIN
    return target.step(key, certain=is_certain)


class PatchLeaf(msgspec.Struct, frozen=True):
    """A value that takes the place of what was there."""

    value: Json


class PatchField(msgspec.Struct, frozen=True):
    """One field of a map; `addition` leaves alone what is there already."""

    key: str
    node: "Node"
    addition: bool = False


class PatchFields(msgspec.Struct, frozen=True):
    """A map whose fields are merged."""

    fields: tuple[PatchField, ...]


class PatchItems(msgspec.Struct, frozen=True):
    """A list: elements to add or to merge, and a change for each element that is there."""

    constants: tuple[Json, ...] = ()
    each: PatchFields | None = None


Node: TypeAlias = PatchLeaf | PatchFields | PatchItems


class Overlay(msgspec.Struct, frozen=True):
    """The condition for a patch, and the patch without anchors; None where nothing is left."""

    gate: Test
    node: PatchFields | None


def read_overlay(patch: Json, root: CelValue, fill: FillIn) -> Overlay:
    """Take a patch apart; CompileError where its anchors have no equivalent."""
    if not isinstance(patch, dict):
        raise CompileError("a patch that is no object")
    reader = _Reader(fill, [])
    node = reader.map(patch, root)
    return Overlay(all_of(reader.gates), node)


class _Reader(msgspec.Struct, frozen=True):
    fill: FillIn
    gates: list[Test]

    def map(self, patch: dict[str, Json], target: CelValue) -> PatchFields | None:
        fields = []
        for key, value in patch.items():
            anchor = parse_anchor(key)
            if anchor is None or anchor.modifier not in _KNOWN:
                node = self._node(value, descend(target, key))
                if node is not None:
                    fields.append(PatchField(key, node))
            elif anchor.modifier is Modifier.ADDITION:
                node = self._node(value, descend(target, anchor.key))
                if node is not None:
                    fields.append(PatchField(anchor.key, node, addition=True))
            else:
                self.gates.append(self._meets(value, descend(target, anchor.key)))
        return PatchFields(tuple(fields)) if fields else None

    def _node(self, value: Json, target: CelValue) -> Node | None:
        if isinstance(value, dict):
            return self.map(value, target)
        if isinstance(value, list):
            return self._list(value, target)
        return PatchLeaf(value)

    def _meets(self, pattern: Json, target: CelValue) -> Test:
        if isinstance(pattern, dict) and any(_is_addition(key) for key in pattern):
            raise CompileError("additions below a condition")
        there = CelValue(target.text, target.shape, label=target.label)
        if isinstance(pattern, dict | list):
            fits = translate_element(pattern, there, self.fill, LoopNames()).fits
        elif isinstance(pattern, str) and has_variables(pattern):
            fits = self.fill(pattern, there)
        else:
            # Scalars of any type are compared as texts.
            shape = TEXT if target.type == "string" else target.shape
            fits = translate_scalar(print_scalar(pattern), CelValue(target.text, shape))
        return all_of((target.present, fits))

    # --- lists

    def _list(self, items: list[Json], target: CelValue) -> Node | None:
        constants: list[Json] = []
        each: list[dict[str, Json]] = []
        for item in items:
            if isinstance(item, dict) and _holds(item, Modifier.GLOBAL):
                self.gates.append(self._passes(item, target))
            elif isinstance(item, dict) and (
                _holds(item, Modifier.CONDITION) or _holds(item, Modifier.ADDITION)
            ):
                each.append(item)
            else:
                constants.append(item)
        if not each:
            return PatchItems(tuple(constants)) if constants or not items else None
        if len(each) > 1 or constants:
            raise CompileError("several patches for the elements of one list")
        change = self._each(each[0], target)
        return None if change is None else PatchItems(each=change)

    def _passes(self, item: dict[str, Json], target: CelValue) -> Test:
        """One element that meets the condition is enough; and so is an empty list."""
        name, _ = LoopNames().fresh(target.label)
        reader = _Reader(self.fill, [])
        if reader.map(item, CelValue(name, target.shape.element)) is not None:
            raise CompileError("a global condition beside a patch in one element")
        there = CelValue(target.text, target.shape)
        found = for_some(there.text, name, all_of(reader.gates))
        return all_of((target.present, any_of((negate(is_full(there.text)), found))))

    def _each(self, item: dict[str, Json], target: CelValue) -> PatchFields | None:
        reader = _Reader(self.fill, [])
        rest = dict(item)
        for key, value in item.items():
            anchor = parse_anchor(key)
            if anchor is not None and anchor.modifier is Modifier.CONDITION:
                if anchor.key != "name" or value not in _ANY:
                    # Elements that fit come before those that do not: no patch does that in CEL.
                    raise CompileError(f"the condition {key} on elements of a list")
                del rest[key]
        made = reader.map(rest, CelValue("", target.shape.element))
        if reader.gates not in ([], [TRUE], [FALSE]):
            raise CompileError("conditions below the elements of a list")
        return made


def _is_addition(key: str) -> bool:
    anchor = parse_anchor(key)
    return anchor is not None and anchor.modifier is Modifier.ADDITION


def _holds(node: Json, modifier: Modifier) -> bool:
    if isinstance(node, dict):
        for key, value in node.items():
            anchor = parse_anchor(key)
            if anchor is not None and anchor.modifier is modifier:
                return True
            if _holds(value, modifier):
                return True
    return isinstance(node, list) and any(_holds(item, modifier) for item in node)


def split(node: PatchFields) -> list[PatchFields]:
    """The same patch in several, none of which has more than one list.

    Each sees what those before it left; together they come to the same.
    """
    plain, lists = _split(node)
    return ([plain] if plain is not None else []) + lists


def _split(node: PatchFields) -> tuple[PatchFields | None, list[PatchFields]]:
    kept: list[PatchField] = []
    lists: list[PatchFields] = []
    for field in node.fields:
        if isinstance(field.node, PatchItems) and not field.addition:
            lists.append(PatchFields((field,)))
        elif isinstance(field.node, PatchFields) and not field.addition:
            plain, inner = _split(field.node)
            if plain is not None:
                kept.append(PatchField(field.key, plain))
            lists += [PatchFields((PatchField(field.key, each),)) for each in inner]
        else:
            kept.append(field)
    return (PatchFields(tuple(kept)) if kept else None), lists
