"""Which resources is a rule asked about, and are they all among those of another rule?"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import Final

import msgspec

from lictor.kubernetes.resource_names import ResourceNames
from lictor.lang.kind_selector import parse_kind_selector
from lictor.lang.wildcard import has_wildcard
from lictor.lint.field import Field
from lictor.lint.match import CALLERS, list_filters
from lictor.lint.value_sets import is_wider
from lictor.model.request import GroupVersionKind, Operation

_OPERATIONS: Final = frozenset(Operation)
_WRITING: Final = frozenset((Operation.CREATE, Operation.UPDATE))
_NARROWING = ("selector", "namespaceSelector", "annotations")


class MatchFilter(msgspec.Struct, frozen=True):
    """Resources of some kinds, in some namespaces, with some names."""

    kinds: frozenset[GroupVersionKind]
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    operations: frozenset[str] = _OPERATIONS
    # Labels that resources and namespaces have, where selectors name some.
    labels: tuple[tuple[str, str], ...] = ()
    namespace_labels: tuple[tuple[str, str], ...] = ()
    # All else that leaves some out, as it is written; empty where nothing does.
    others: bytes = b""

    def covers(self, other: "MatchFilter") -> bool:
        """Does it take all that the other takes? In doubt it does not."""
        return (
            other.kinds <= self.kinds
            and other.operations <= self.operations
            and _take(self.namespaces, other.namespaces)
            and _take(self.names, other.names)
            and self.others in (b"", other.others)
        )


def _take(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    if not outer:
        return True
    return bool(inner) and all(any(is_wider(one, each) for one in outer) for each in inner)


class RuleMatch(msgspec.Struct, frozen=True):
    """What a rule is asked about: what fits one of the filters, and nothing excludes."""

    filters: tuple[MatchFilter, ...] = ()
    # Excludes and conditions as they are written; empty where there are none.
    excludes: bytes = b""
    conditions: bytes = b""

    @property
    def kinds(self) -> frozenset[GroupVersionKind]:
        return frozenset(kind for each in self.filters for kind in each.kinds)

    def covers(self, other: "RuleMatch") -> bool:
        """Is it asked about all that the other is asked about? In doubt it is not."""
        return (
            self.excludes in (b"", other.excludes)
            and self.conditions in (b"", other.conditions)
            and bool(other.filters)
            and all(any(one.covers(each) for one in self.filters) for each in other.filters)
        )


def write_parts(*parts: Field) -> bytes:
    """What is written there, to be compared; empty where nothing is."""
    if all(part.is_empty for part in parts):
        return b""
    return msgspec.json.encode([part.value for part in parts], order="deterministic")


FindKinds = Callable[[str], frozenset[GroupVersionKind]]


class KnownKinds:
    """The kinds that texts such as `apps/v1/Deployment` stand for."""

    def __init__(self, names: ResourceNames) -> None:
        self.names = names
        self._by_kind: dict[str, list[GroupVersionKind]] = {}
        for each in names.known:
            if "/" not in each.resource:
                found = GroupVersionKind(each.group, each.version, each.kind)
                self._by_kind.setdefault(each.kind, []).append(found)
        self.find: FindKinds = lru_cache(maxsize=1024)(self._find)

    def _find(self, text: str) -> frozenset[GroupVersionKind]:
        """None for subresources, and for wildcards."""
        selector = parse_kind_selector(text)
        if selector.subresource or has_wildcard(selector.kind) or not selector.kind:
            return frozenset()
        known = self._by_kind.get(selector.kind)
        if known is None:
            is_whole = not has_wildcard(selector.group + selector.version)
            made = GroupVersionKind(selector.group, selector.version, selector.kind)
            return frozenset((made,)) if is_whole else frozenset()
        return frozenset(
            each
            for each in known
            if selector.group in ("*", each.group) and selector.version in ("*", each.version)
        )


# --- classic rules


def read_classic_match(policy: Field, rule: Field, kinds: KnownKinds) -> RuleMatch | None:
    """None where it is not understood."""
    match = rule["match"]
    if len(list(match["all"].each())) > 1:
        return None
    filters = [_read_filter(each, policy, kinds) for each in list_filters(match)]
    if not filters or any(each is None for each in filters):
        return None
    spec = policy["spec"]
    conditions = (
        rule["preconditions"],
        rule["celPreconditions"],
        spec["webhookConfiguration"]["matchConditions"],
    )
    return RuleMatch(
        tuple(each for each in filters if each is not None),
        write_parts(rule["exclude"]),
        write_parts(*conditions),
    )


def _read_filter(each: Field, policy: Field, kinds: KnownKinds) -> MatchFilter | None:
    resources = each["resources"]
    found = [kinds.find(text) for text in resources["kinds"].texts]
    if not found or not all(found):
        return None
    own = policy["metadata"]["namespace"].text if policy["kind"].text == "Policy" else ""
    name = resources["name"].text
    parts = (*(resources[key] for key in _NARROWING), *(each[key] for key in CALLERS))
    return MatchFilter(
        frozenset().union(*found),
        (own,) if own else resources["namespaces"].texts,
        (name,) if name else resources["names"].texts,
        frozenset(resources["operations"].texts) or _OPERATIONS,
        _list_labels(resources["selector"]),
        _list_labels(resources["namespaceSelector"]),
        write_parts(*parts),
    )


def _list_labels(selector: Field) -> tuple[tuple[str, str], ...]:
    return tuple((key, each.text) for key, each in selector["matchLabels"].entries())


# --- resourceRules


def read_constraints_match(policy: Field, kinds: KnownKinds) -> RuleMatch | None:
    """What a policy in CEL is asked about; None where it is not understood."""
    spec = policy["spec"]
    constraints = spec["matchConstraints"]
    filters = [_read_rule(each, policy, kinds) for each in constraints["resourceRules"].each()]
    if not filters or any(each is None for each in filters):
        return None
    return RuleMatch(
        tuple(each for each in filters if each is not None),
        write_parts(constraints["excludeResourceRules"]),
        write_parts(spec["matchConditions"], spec["variables"])
        if spec["matchConditions"].value
        else b"",
    )


def _read_rule(rule: Field, policy: Field, kinds: KnownKinds) -> MatchFilter | None:
    found = list(_list_resources(rule, kinds))
    if not found or any(kind is None for kind in found):
        return None
    constraints = policy["spec"]["matchConstraints"]
    selectors = (constraints["objectSelector"], constraints["namespaceSelector"])
    operations = frozenset(rule["operations"].texts)
    own = policy["metadata"]["namespace"].text
    return MatchFilter(
        frozenset(kind for kind in found if kind is not None),
        (own,) if own else (),
        rule["resourceNames"].texts,
        _OPERATIONS if "*" in operations else operations,
        _list_labels(constraints["objectSelector"]),
        _list_labels(constraints["namespaceSelector"]),
        write_parts(*selectors, rule["scope"]),
    )


def _list_resources(rule: Field, kinds: KnownKinds) -> Iterator[GroupVersionKind | None]:
    parts = (rule["apiGroups"].texts, rule["apiVersions"].texts, rule["resources"].texts)
    for group, version, resource in product(*parts):
        known = kinds.names.of_resource(group, "" if version == "*" else version, resource)
        if known is None or "*" in (group, resource):
            yield None
            continue
        # matchPolicy: Equivalent is the default: all versions of a resource are asked about.
        for each in kinds.find(f"{group}/*/{known.kind}" if group else known.kind):
            if each.group == group:
                yield each


def is_written(match: RuleMatch) -> bool:
    """Is it asked when something is created or changed?"""
    return any(each.operations & _WRITING for each in match.filters)
