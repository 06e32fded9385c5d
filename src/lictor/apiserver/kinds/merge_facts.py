"""Which lists of built-in kinds does a strategic patch merge, and by which key? Of this release."""

from collections.abc import Mapping
from functools import cache

from lictor.apiserver.kinds.builtin_table import NO_FACTS, load_builtin_table, load_fields
from lictor.lang.patch.merge_table import PLAIN, MergedList, Shape
from lictor.raw import Json, JsonObject

_MERGE = "merge"


def find_merges(document: JsonObject) -> Shape:
    """The shape of an object by its apiVersion and kind; a plain one where nothing is known."""
    version, kind = str(document.get("apiVersion")), str(document.get("kind"))
    name = load_fields()["kinds"].get(version, {}).get(kind)
    return PLAIN if name is None else _load_shapes().get(name, PLAIN)


@cache
def _load_shapes() -> Mapping[str, Shape]:
    """All types at once: they know each other."""
    types = load_fields()["types"]
    shapes: dict[str, Shape] = {name: {} for name in types}
    for name, form in types.items():
        if isinstance(form, dict):
            shapes[name].update(_read_fields(name, form.get("fields", {}), shapes))
    return shapes


def _read_fields(name: str, forms: JsonObject, shapes: Mapping[str, Shape]) -> Shape:
    patches = load_builtin_table().types.get(name, NO_FACTS).patches
    found: Shape = {}
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


def _find_type(form: Json, shapes: Mapping[str, Shape]) -> Shape:
    """The type at a place, or of the elements or values there."""
    if isinstance(form, dict):
        for word in ("list", "set", "keyed", "map", "atomic"):
            if isinstance(form.get(word), str):
                form = form[word]
                break
    return shapes.get(form[1:], PLAIN) if isinstance(form, str) and form[:1] == "=" else PLAIN
