"""What is in the cluster that an installation would change, and who set it?

Paths are written in the notation of managedFields: `f:name` is a field, `k:{...}` the element of a
list that has these keys.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.raw import Json, JsonObject

MANAGER = "lictor-install"
Path: TypeAlias = tuple[str, ...]
# A field manager and its fields at one place of an object.
_Owner: TypeAlias = tuple[str, JsonObject]

_FIELD = "f:"
_ELEMENT = "k:"
# An element that does not exist yet.
_NEW = "k:{}"
_LONG = 72


class InstallationDifference(msgspec.Struct, frozen=True):
    """One field that an installation would add or change."""

    path: Path
    here: Json
    ours: Json
    # The other field managers that set it; empty if there are none.
    manager: str = ""


def find_differences(manifest: JsonObject, live: JsonObject) -> list[InstallationDifference]:
    """The fields of a manifest that are missing, or have another value, in the cluster."""
    entries = live["metadata"].get("managedFields") or ()
    owners = [(entry.get("manager") or "", entry.get("fieldsV1") or {}) for entry in entries]
    return list(_compare_fields(manifest, live, owners, ()))


def _compare(
    ours: Json, here: Json, owners: list[_Owner], path: Path
) -> Iterator[InstallationDifference]:
    if ours == here:
        return
    # A field of someone's that has nothing below it is set as a whole.
    is_whole = any(not fields for _, fields in owners)
    if isinstance(ours, dict) and isinstance(here, dict) and not is_whole:
        yield from _compare_fields(ours, here, owners, path)
    elif isinstance(ours, list) and isinstance(here, list) and _have_elements(owners):
        yield from _compare_elements(ours, here, owners, path)
    else:
        others = [manager for manager, _ in owners if manager != MANAGER]
        yield InstallationDifference(path, here, ours, ", ".join(dict.fromkeys(others)))


def _compare_fields(
    ours: JsonObject, here: JsonObject, owners: list[_Owner], path: Path
) -> Iterator[InstallationDifference]:
    for name, value in ours.items():
        step = f"{_FIELD}{name}"
        yield from _compare(value, here.get(name), _descend(owners, step), (*path, step))


def _compare_elements(
    ours: list[Json], here: list[Json], owners: list[_Owner], path: Path
) -> Iterator[InstallationDifference]:
    steps = {key for _, fields in owners for key in fields if key.startswith(_ELEMENT)}
    for element in ours:
        step = next((step for step in sorted(steps) if _is_element(element, step)), _NEW)
        found = next((each for each in here if step != _NEW and _is_element(each, step)), None)
        yield from _compare(element, found, _descend(owners, step), (*path, step))


def _have_elements(owners: Iterable[_Owner]) -> bool:
    return any(key.startswith(_ELEMENT) for _, fields in owners for key in fields)


def _is_element(element: Json, step: str) -> bool:
    keys = orjson.loads(step.removeprefix(_ELEMENT))
    return isinstance(element, dict) and all(element.get(k) == v for k, v in keys.items())


def _descend(owners: Iterable[_Owner], step: str) -> list[_Owner]:
    return [(manager, fields[step]) for manager, fields in owners if step in fields]


# --- keeping what is in the cluster


def keep_fields(manifest: JsonObject, differences: Iterable[InstallationDifference]) -> JsonObject:
    """A manifest that leaves some fields as they are in the cluster.

    What others own is left out. What only lictor owns is repeated: server-side apply would remove a
    field that its last owner no longer names.
    """
    return _keep_fields(manifest, {each.path: each for each in differences})


def _keep_fields(value: JsonObject, kept: Mapping[Path, InstallationDifference]) -> JsonObject:
    result: JsonObject = {}
    for name, child in value.items():
        below = {path[1:]: each for path, each in kept.items() if path[0] == f"{_FIELD}{name}"}
        difference = below.get(())
        if difference is None:
            result[name] = _keep(child, below)
        elif not difference.manager:
            result[name] = difference.here
    return result


def _keep(value: Json, kept: Mapping[Path, InstallationDifference]) -> Json:
    if not kept:
        return value
    if isinstance(value, dict):
        return _keep_fields(value, kept)
    return [
        _keep(element, {path[1:]: d for path, d in kept.items() if _is_element(element, path[0])})
        for element in value
    ]


# --- output


def describe_difference(difference: InstallationDifference) -> list[str]:
    """The field, what is in the cluster, and what lictor has."""
    owner = f" (set by {difference.manager})" if difference.manager else ""
    here, ours = _print(difference.here), _print(difference.ours)
    if max(len(here), len(ours)) > _LONG and " " in here and " " in ours:
        return [f"{print_path(difference.path)}{owner}", *_describe_words(here, ours)]
    return [f"{print_path(difference.path)}{owner}", f"  cluster: {here}", f"  lictor:  {ours}"]


def describe_change(difference: InstallationDifference) -> str:
    """What was, and what is now, in one line."""
    here, ours = _print(difference.here), _print(difference.ours)
    return f"{print_path(difference.path)}: {here} -> {ours}"


def _describe_words(here: str, ours: str) -> list[str]:
    """Long lists of words differ in a few of them."""
    there, mine = here.split(), ours.split()
    only_there = [word for word in there if word not in mine]
    only_mine = [word for word in mine if word not in there]
    return [
        f"  only in the cluster: {' '.join(only_there) or '(nothing)'}",
        f"  only lictor's:       {' '.join(only_mine) or '(nothing)'}",
    ]


def print_path(path: Path) -> str:
    """A path as people write it: `spec.containers[admission].image`."""
    text = ""
    for step in path:
        if step.startswith(_ELEMENT):
            keys = orjson.loads(step.removeprefix(_ELEMENT))
            text += f"[{','.join(str(value) for value in keys.values())}]"
        else:
            text += f".{step.removeprefix(_FIELD)}"
    return text.removeprefix(".")


def _print(value: Json) -> str:
    if value is None:
        return "(not set)"
    return value if isinstance(value, str) else orjson.dumps(value).decode()
