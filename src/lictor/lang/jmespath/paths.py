"""Closures that fetch a value by a path of keys: the hottest code of all queries."""

from collections.abc import Callable
from typing import TypeAlias

from lictor.errors import UnknownKeyError
from lictor.raw import Json

Run: TypeAlias = Callable[[Json], Json]


def fetch_strict(keys: tuple[str, ...]) -> Run:
    """Fetch, or raise UnknownKeyError where an object lacks a key. What is no object has null."""

    def fetch(value: Json) -> Json:
        found = value
        try:
            for key in keys:
                found = found[key]
        except (KeyError, TypeError):
            return _walk(value, keys)
        return found

    return fetch


def fetch_root(keys: tuple[str, ...]) -> Run:
    """Fetch from an object whose entries may load when first asked for; null where a key lacks."""
    first, rest = keys[0], fetch_lenient(keys[1:])

    def fetch(value: Json) -> Json:
        if not isinstance(value, dict):
            return None
        try:
            # Only this way of asking lets an object load the entry.
            found = value[first]
        except KeyError:
            return None
        return rest(found)

    return fetch


def fetch_lenient(keys: tuple[str, ...]) -> Run:
    """Fetch from plain JSON, or give null where a key lacks."""
    if len(keys) == 1:
        (only,) = keys
        return lambda value: value.get(only) if isinstance(value, dict) else None

    def fetch(value: Json) -> Json:
        for key in keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value

    return fetch


def _walk(value: Json, keys: tuple[str, ...]) -> Json:
    for key in keys:
        if not isinstance(value, dict):
            return None
        try:
            value = value[key]
        except KeyError:
            raise UnknownKeyError(f'Unknown key "{key}" in path') from None
    return value
