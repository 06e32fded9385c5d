"""Which lists of which kinds a strategic merge patch merges, and by which keys.

Policies merge as Kyverno does, by the keys of the release that it was built with (`find_shape`);
the API server merges by those of the release in use (`find_merges`).
"""

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias, Union

import msgspec

from lictor.core.facts.facts import NO_FACTS, find_type_name, load_section, load_type_facts
from lictor.core.raw import Json, JsonObject


class MergedList(msgspec.Struct, frozen=True):
    """A list whose elements are merged by `keys`; none for a list of scalars."""

    keys: tuple[str, ...]
    element: "MergeShape"


MergeShape: TypeAlias = dict[str, Union["MergeShape", MergedList]]

# A field of a known kind below which nothing is merged.
PLAIN: MergeShape = {}


def find_shape(resource: Json) -> MergeShape | None:
    """What Kyverno merges in a resource of this kind; None for kinds unknown to it."""
    if not isinstance(resource, dict) or "kind" not in resource:
        return None
    version, kind = resource.get("apiVersion"), resource["kind"]
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    return _load_shapes().get((version, kind))


@cache
def _load_shapes() -> dict[tuple[str, str], MergeShape]:
    types = load_section("merge_types")
    shapes: dict[str, MergeShape] = {name: {} for name in types}
    for name, fields in types.items():
        shapes[name].update({key: _resolve(field, shapes) for key, field in fields.items()})
    return {
        (version, kind): shapes[name]
        for version, kinds in load_section("merge_kinds").items()
        for kind, name in kinds.items()
    }


@cache
def list_merge_keys() -> frozenset[str]:
    """Every field that identifies elements of some list: `name`, `port`, `mountPath`."""
    fields = [field for fields in load_section("merge_types").values() for field in fields.values()]
    return frozenset(key for field in fields if isinstance(field, list) for key in field[1:])


def _resolve(field: Json, shapes: dict[str, MergeShape]) -> MergeShape | MergedList:
    if isinstance(field, str):
        return shapes[field]
    element, *keys = field
    return MergedList(tuple(keys), PLAIN if element is None else shapes[element])


_MERGE = "merge"


def find_merges(document: JsonObject) -> MergeShape:
    """What the API server merges in an object; nothing if the kind is unknown."""
    name = find_type_name(str(document.get("apiVersion")), str(document.get("kind")))
    return PLAIN if name is None else _load_release_shapes().get(name, PLAIN)


@cache
def _load_release_shapes() -> Mapping[str, MergeShape]:
    """All types at once: they refer to each other."""
    types = load_section("types")
    shapes: dict[str, MergeShape] = {name: {} for name in types}
    for name, form in types.items():
        if isinstance(form, dict):
            shapes[name].update(_read_fields(name, form.get("fields", {}), shapes))
    return shapes


def _read_fields(name: str, forms: JsonObject, shapes: Mapping[str, MergeShape]) -> MergeShape:
    patches = load_type_facts().get(name, NO_FACTS).patches
    found: MergeShape = {}
    for field, form in forms.items():
        inner = _find_type(form, shapes)
        strategy, *key = patches.get(field, ("",))
        if _MERGE in strategy.split(","):
            found[field] = MergedList(tuple(key), inner)
        elif not _is_list(form) and inner is not PLAIN:
            found[field] = inner
    return found


def _is_list(form: Json) -> bool:
    return isinstance(form, dict) and not {"list", "set", "keyed"}.isdisjoint(form)


def _find_type(form: Json, shapes: Mapping[str, MergeShape]) -> MergeShape:
    """The type of a field, or of its elements or values."""
    if isinstance(form, dict):
        for word in ("list", "set", "keyed", "map", "atomic"):
            if isinstance(form.get(word), str):
                form = form[word]
                break
    return shapes.get(form[1:], PLAIN) if isinstance(form, str) and form[:1] == "=" else PLAIN
