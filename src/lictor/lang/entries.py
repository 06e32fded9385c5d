"""Does a map have an entry that fits a key and a value, wildcards in both?"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lictor.lang.wildcard import compile_wildcard, has_wildcard

MapTest: TypeAlias = Callable[[Mapping[str, str]], bool]


def compile_entry(key: str, value: str) -> MapTest:
    """A test that passes where a map has an entry whose key and value fit these patterns."""
    fits_value = compile_wildcard(value)
    if has_wildcard(key):
        fits_key = compile_wildcard(key)
        return lambda entries: any(fits_key(k) and fits_value(v) for k, v in entries.items())
    return lambda entries: key in entries and fits_value(entries[key])
