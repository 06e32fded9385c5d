"""Kyverno's `patchStrategicMerge`: a merge patch with anchors that test the resource first.

`(key)` is a condition for its map or list element, `<(key)` for the whole patch, `+(key)` adds a
missing value. What remains without the anchors is merged.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Final

import msgspec

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.facts.merge_keys import find_shape, list_merge_keys
from lictor.core.lang.patch.pointer import MISSING
from lictor.core.lang.patch.strategic_merge import merge_strategic, print_scalar, require_kind
from lictor.core.lang.pattern import compile_pattern
from lictor.core.lang.pattern.anchor import Anchor, Modifier, parse_anchor
from lictor.core.lang.pattern.scalar import is_word
from lictor.core.raw import Json, JsonObject

# From a part of the resource, or MISSING, to its patch, or DROPPED; may raise ConditionNotMet.
Prepare = Callable[[Json], Json]
Check = Callable[[Mapping[str, Json]], None]
# The fields of a list element by which a patch identifies it.
Aim = Callable[[JsonObject], JsonObject]

# Nothing remains of a part of the patch: only anchors, or empty.
DROPPED: Final = object()
_NO_FIELDS: Final[JsonObject] = {}
_NAME_OF = itemgetter("name")


class ConditionNotMet(EvaluationError):  # noqa: N818 - not an error
    """A condition of the patch does not hold, so it does not apply to this resource."""


class _GlobalConditionNotMet(ConditionNotMet):
    """A condition for the whole patch does not hold."""


class OverlayPart(msgspec.Struct, frozen=True):
    """A part of a patch: `constant` is its value if it has no anchors."""

    prepare: Prepare
    has_anchors: bool
    has_globals: bool = False
    constant: Json = None
    # The only name of elements that the patch applies to; None if there are others.
    name: str | None = None


def compile_overlay(patch: Json) -> Callable[[Json], Json]:
    """Compile a patch to a function from resource to patched resource.

    It returns the same object if nothing changes, and raises ConditionNotMet if a condition of the
    patch does not hold.
    """
    try:
        require_kind(dict, patch)
        prepare, prepare_known = _compile_both(patch)
    except EvaluationError as error:
        raise CompileError(f"failed to preProcess rule: {error}") from error
    except RecursionError as error:
        raise CompileError("the patch is nested too deeply") from error

    def overlay(resource: Json) -> Json:
        is_known = prepare_known is not prepare and find_shape(resource) is not None
        prepared = prepare_known(resource) if is_known else prepare(resource)
        return resource if prepared is DROPPED else merge_strategic(resource, prepared)

    return overlay


def _compile_both(patch: Json) -> tuple[Prepare, Prepare]:
    """The patch for unknown kinds, and that for kinds with merge keys."""
    part = _compile(patch)
    if not part.has_anchors:
        return part.prepare, part.prepare
    return part.prepare, _compile(patch, keyed=True).prepare


def _compile(pattern: Json, *, keyed: bool = False) -> OverlayPart:
    """A part of the patch; if `keyed`, list elements keep the fields that identify them."""
    if isinstance(pattern, dict):
        return _compile_map(pattern, keyed=keyed)
    if isinstance(pattern, list):
        return _compile_list(pattern, keyed=keyed)
    return _hold(pattern)


def _hold(constant: Json) -> OverlayPart:
    return OverlayPart(lambda _: constant, has_anchors=False, constant=constant)


def _compile_map(pattern: JsonObject, *, keyed: bool) -> OverlayPart:
    checks: list[Check] = []
    fields: dict[str, OverlayPart] = {}
    additions: dict[str, OverlayPart] = {}
    has_globals = False
    # In Kyverno's order: conditions for the whole patch first, each type by name.
    for key, anchor in sorted([(key, _parse_key(key)) for key in pattern], key=_order):
        value = pattern[key]
        if anchor is None:
            fields[key] = part = _compile(value, keyed=keyed)
        elif anchor.modifier is Modifier.ADDITION:
            additions[anchor.key] = part = _compile(value, keyed=keyed)
        else:
            checks.append(_compile_check(anchor, value))
            part = _hold(DROPPED)
            if _holds_additions(value):
                fields[anchor.key] = part = _compile_map(value, keyed=keyed)
            has_globals |= anchor.modifier is Modifier.GLOBAL
        has_globals |= part.has_globals
    if not checks and not additions and not any([part.has_anchors for part in fields.values()]):
        return _hold(_keep({key: part.constant for key, part in fields.items()}))
    return OverlayPart(
        _bind_map(checks, fields, additions),
        has_anchors=True,
        has_globals=has_globals,
        name=_find_name(pattern),
    )


def _find_name(pattern: JsonObject) -> str | None:
    """The name that a condition requires, if it matches nothing else."""
    name = pattern.get("(name)")
    if not isinstance(name, str) or "|" in name or "&" in name:
        return None
    return name if is_word(name) else None


def _parse_key(key: Json) -> Anchor | None:
    """Parse the anchors of patches; others are plain keys."""
    if not isinstance(key, str):
        raise EvaluationError(f"{key!r} cannot be the key of a JSON object")
    anchor = parse_anchor(key)
    return anchor if anchor is not None and anchor.modifier in _RANKS else None


_RANKS = {Modifier.GLOBAL: 0, Modifier.CONDITION: 1, Modifier.ADDITION: 2}


def _order(entry: tuple[str, Anchor | None]) -> tuple[int, str]:
    key, anchor = entry
    return (3 if anchor is None else _RANKS[anchor.modifier], key)


def _keep(fields: JsonObject) -> Json:
    """Kyverno drops empty maps: it cannot distinguish them from maps with anchors only."""
    return {key: value for key, value in fields.items() if value is not DROPPED} or DROPPED


def _bind_map(
    checks: list[Check], fields: dict[str, OverlayPart], additions: dict[str, OverlayPart]
) -> Prepare:
    constants = {key: part.constant for key, part in fields.items() if not part.has_anchors}
    constants = {key: value for key, value in constants.items() if value is not DROPPED}
    prepares = [(key, part.prepare) for key, part in fields.items() if part.has_anchors]
    adds = [(key, part.prepare) for key, part in additions.items()]

    def prepare(resource: Json) -> Json:
        found = resource if isinstance(resource, dict) else _NO_FIELDS
        for check in checks:
            check(found)
        patch = dict(constants)
        for key, prepare_addition in adds:
            if key not in found:
                patch[key] = prepare_addition(MISSING)
        for key, prepare_field in prepares:
            patch[key] = prepare_field(found.get(key, MISSING))
        return _keep(patch)

    return prepare


def _compile_check(anchor: Anchor, pattern: Json) -> Check:
    key, is_global = anchor.key, anchor.modifier is Modifier.GLOBAL
    refuse = _GlobalConditionNotMet if is_global else ConditionNotMet
    prefix = "global condition failed" if is_global else "condition failed"
    missing = f'{prefix}: could not found "{key}" key in the resource'
    if _holds_additions(pattern):
        # The map is completed, not compared.
        return lambda found: _refuse_unless(refuse(missing), holds=key in found)
    fits = compile_pattern(_to_text(pattern), references=False)

    def check(found: Mapping[str, Json]) -> None:
        if key not in found:
            raise refuse(missing)
        mismatch = fits(_to_text(found[key]))
        if mismatch is not None:
            raise refuse(f"{prefix}: {mismatch.reason}")

    return check


def _refuse_unless(refusal: ConditionNotMet, *, holds: bool) -> None:
    if not holds:
        raise refusal


def _to_text(value: Json) -> Json:
    """Scalars are compared as texts, of any type."""
    return value if isinstance(value, (dict, list)) else print_scalar(value)


def _holds_additions(pattern: Json) -> bool:
    if not isinstance(pattern, dict):
        return False
    anchors = [_parse_key(key) for key in pattern]
    return any([anchor.modifier is Modifier.ADDITION for anchor in anchors if anchor is not None])


def _compile_list(pattern: list[Json], *, keyed: bool) -> OverlayPart:
    parts = [_compile(item, keyed=keyed) for item in pattern]
    plain = [part.constant for part in parts if not part.has_anchors]
    plain = [value for value in plain if value is not DROPPED]
    anchored = [part for part in parts if part.has_anchors]
    # An empty list is a value; a list that becomes empty is not.
    if not anchored:
        return _hold(plain if plain or not pattern else DROPPED)
    gates = [part.prepare for part in anchored if part.has_globals]
    changes = [part for part in anchored if not part.has_globals]
    aim = _read_merge_keys if keyed else _read_name
    prepare = _bind_list(plain, gates, changes, aim)
    return OverlayPart(prepare, has_anchors=True, has_globals=bool(gates))


def _bind_list(
    plain: list[Json], gates: list[Prepare], changes: list[OverlayPart], aim: Aim
) -> Prepare:
    def prepare(resource: Json) -> Json:
        elements = _get_elements(resource)
        for gate in gates:
            _pass_gate(gate, elements if resource is not MISSING else [MISSING])
        patch = list(plain)
        for change in changes:
            patch += _match_elements(change.prepare, _preselect(change.name, elements), aim)
        return patch or DROPPED

    return prepare


def _get_elements(resource: Json) -> list[Json]:
    if resource is MISSING or resource is None:
        return []
    try:
        require_kind(list, resource)
    except EvaluationError as error:
        raise EvaluationError(f"failed to preProcess rule: {error}") from error
    return resource if isinstance(resource, list) else []


def _pass_gate(gate: Prepare, elements: list[Json]) -> None:
    """One element that meets a condition for the whole patch is enough."""
    refusal: _GlobalConditionNotMet | None = None
    for element in elements:
        try:
            gate(element)
        except _GlobalConditionNotMet as not_met:
            refusal = not_met
        except ConditionNotMet:
            continue
        else:
            return
    if refusal is not None:
        raise refusal


def _preselect(name: str | None, elements: list[Json]) -> list[Json]:
    """The elements that can have this name: otherwise each of a long list would be tested."""
    if name is None:
        return elements
    try:
        names = list(map(_NAME_OF, elements))
    except (KeyError, TypeError):
        return elements
    if name not in names:
        return []
    if names.count(name) == 1:
        return [elements[names.index(name)]]
    return [elements[at] for at, found in enumerate(names) if found == name]


def _match_elements(change: Prepare, elements: list[Json], aim: Aim) -> list[Json]:
    """Build a patch for each element that meets the conditions; its name identifies it."""
    patches = []
    for element in elements:
        name = element.get("name") if isinstance(element, dict) else None
        if name is None or name in ({}, []):
            continue
        try:
            patch = change(element)
        except ConditionNotMet:
            continue
        if patch is not DROPPED:
            patches.append({**aim(element), **patch, "name": name})
    return patches


def _read_name(_: JsonObject) -> JsonObject:
    """Elements are identified by name only."""
    return _NO_FIELDS


def _read_merge_keys(element: JsonObject) -> JsonObject:
    """The identity of an element if its list is merged by a field other than `name`."""
    keys = list_merge_keys()
    return {key: value for key, value in element.items() if key in keys}
