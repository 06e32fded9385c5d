"""Which lists of which kinds are merged, and by which keys? Facts of Kubernetes, read once."""

from functools import cache
from importlib.resources import files
from typing import TypeAlias, Union

import msgspec
import orjson

from lictor.raw import Json, JsonObject


class MergedList(msgspec.Struct, frozen=True):
    """A list whose elements are merged by `keys`; a list of scalars has none."""

    keys: tuple[str, ...]
    element: "Shape"


Shape: TypeAlias = dict[str, Union["Shape", MergedList]]

# A place of a known kind below which nothing is merged.
PLAIN: Shape = {}


def find_shape(resource: Json) -> Shape | None:
    """Give the shape of a resource by its apiVersion and kind; None for kinds without facts."""
    if not isinstance(resource, dict) or "kind" not in resource:
        return None
    version, kind = resource.get("apiVersion"), resource["kind"]
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    return _load_shapes().get((version, kind))


@cache
def _load_shapes() -> dict[tuple[str, str], Shape]:
    table = orjson.loads(files(__package__).joinpath("merge_keys.json").read_bytes())
    shapes: dict[str, Shape] = {name: {} for name in table["types"]}
    for name, fields in table["types"].items():
        shapes[name].update({key: _resolve(field, shapes) for key, field in fields.items()})
    return {
        (version, kind): shapes[name]
        for version, kinds in _items(table["kinds"])
        for kind, name in kinds.items()
    }


@cache
def list_merge_keys() -> frozenset[str]:
    """Every field by which elements of some list are told apart: `name`, `port`, `mountPath`."""
    table = orjson.loads(files(__package__).joinpath("merge_keys.json").read_bytes())
    fields = [field for fields in table["types"].values() for field in fields.values()]
    return frozenset(key for field in fields if isinstance(field, list) for key in field[1:])


def _items(kinds: JsonObject) -> list[tuple[str, dict[str, str]]]:
    return list(kinds.items())


def _resolve(field: Json, shapes: dict[str, Shape]) -> Shape | MergedList:
    if isinstance(field, str):
        return shapes[field]
    element, *keys = field
    return MergedList(tuple(keys), PLAIN if element is None else shapes[element])
