"""Finds the literal kinds, namespaces and names outside of which a rule never matches.

The index finds rules by these. A rule is skipped only if its matcher would return False without
evaluating anything that can fail: using the index changes no result.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.model.matching import Match, ResourceDescription
from lictor.core.model.program import Bounds


def find_bounds(match: Match, home: str = "") -> Bounds:
    """The bounds of a rule of a classic policy; `home` is the policy's namespace.

    Exclusions do not count: they only narrow what the rule matches.
    """
    if len(match.any) == 1:
        found = _bound_by(match.any[0].resources)
    elif match.any:
        found = _join([_bound_by(each.resources) for each in match.any])
    elif match.all:
        found = _narrow([each.resources for each in match.all])
    else:
        found = _bound_by(match.resources)
    return Bounds(found.kinds, found.namespaces, found.names, home=home)


def _bound_by(wanted: ResourceDescription) -> Bounds:
    kinds = _list_kinds(wanted.kinds)
    if wanted.namespace_selector is not None:
        # It is evaluated before names, and fails if the namespace is unknown.
        return Bounds(kinds)
    names = _read_literals((wanted.name,)) if wanted.name else None
    return Bounds(
        kinds,
        _read_literals(wanted.namespaces),
        _read_literals(wanted.names) if names is None else names,
    )


@lru_cache(maxsize=1024)
def _list_kinds(kinds: tuple[str, ...]) -> frozenset[str] | None:
    return _read_literals(tuple([parse_kind_selector(kind).kind for kind in kinds]))


# The rules of a policy, and those generated from them, mostly have equal bounds.
@lru_cache(maxsize=1024)
def _read_literals(texts: tuple[str, ...]) -> frozenset[str] | None:
    """None if there are none, or if one is a wildcard, which may match any text."""
    return None if not texts or any(map(has_wildcard, texts)) else frozenset(texts)


def _join(parts: Sequence[Bounds]) -> Bounds:
    """Of filters of which one must match: unbounded if one of them is."""
    return Bounds(
        _unite(part.kinds for part in parts),
        _unite(part.namespaces for part in parts),
        _unite(part.names for part in parts),
    )


def _unite(sets: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    united: frozenset[str] | None = None
    for each in sets:
        if each is None:
            return None
        # A single one is shared with equal ones.
        united = each if united is None or united == each else united | each
    return united


def _narrow(wanted: Sequence[ResourceDescription]) -> Bounds:
    """Of filters that must all match, the first bound of each field.

    They are evaluated in order: a filter after one that can fail does not count.
    """
    found = Bounds()
    for each in wanted:
        bounds = _bound_by(each)
        found = Bounds(
            bounds.kinds if found.kinds is None else found.kinds,
            bounds.namespaces if found.namespaces is None else found.namespaces,
            bounds.names if found.names is None else found.names,
        )
        if each.namespace_selector is not None:
            break
    return found
