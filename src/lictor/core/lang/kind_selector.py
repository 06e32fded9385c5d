"""Kind selectors such as `apps/v1/Deployment` or `Pod/exec`."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import msgspec

from lictor.core.lang.wildcard import compile_wildcard

# group, version, kind and subresource of a request
KindTest: TypeAlias = Callable[[str, str, str, str], bool]

_VERSION = re.compile(r"v[0-9]((alpha|beta)[0-9])?|\*")


class KindSelector(msgspec.Struct, frozen=True):
    """Four wildcard patterns; an empty subresource means the resource itself."""

    group: str = "*"
    version: str = "*"
    kind: str = ""
    subresource: str = ""


# Nothing has four empty names: more than four parts never match.
_NOTHING = KindSelector(group="", version="")


# Most policies name the same few kinds.
@lru_cache(maxsize=4096)
def parse_kind_selector(text: str) -> KindSelector:
    """Parse `Kind`, `version/Kind` or `group/version/Kind`, with or without `/subresource`.

    After the last `/`, a `.` also starts a subresource.
    """
    *leading, last = text.split("/")
    parts = leading + last.split(".")
    match len(parts):
        case 1:
            return KindSelector(kind=parts[0])
        case 2:
            return _parse_two(*parts)
        case 3 if _VERSION.fullmatch(parts[0]):
            return KindSelector("*", *parts)
        case 3 | 4:
            return KindSelector(*parts)
        case _:
            return _NOTHING


def _parse_two(first: str, second: str) -> KindSelector:
    if first == "*" and second == second.lower():
        # `*/*` is everything; `*/scale` is a subresource of any kind, as kinds are capitalized.
        return KindSelector(kind="*", subresource=second)
    if _VERSION.fullmatch(first):
        return KindSelector(version=first, kind=second)
    return KindSelector(kind=first, subresource=second)


# Each test is four closures.
@lru_cache(maxsize=4096)
def compile_kind_selector(selector: KindSelector) -> KindTest:
    """Compile a selector to a test of group, version, kind and subresource."""
    fits_group = compile_wildcard(selector.group)
    fits_version = compile_wildcard(selector.version)
    fits_kind = compile_wildcard(selector.kind)
    fits_subresource = compile_wildcard(selector.subresource)

    def fits(group: str, version: str, kind: str, subresource: str) -> bool:
        return (
            fits_kind(kind)
            and fits_version(version)
            and fits_group(group)
            and fits_subresource(subresource)
        )

    return fits
