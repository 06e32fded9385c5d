"""Operations on resources into the fewest rules of a webhook, always in the same order."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from lictor.raw import Json, JsonObject

ALL = "*"
EVERY_OPERATION = ("CONNECT", "CREATE", "DELETE", "UPDATE")


class Entry(msgspec.Struct, frozen=True):
    """One operation on one resource, or on what wildcards stand for."""

    group: str
    version: str
    resource: str
    subresource: str
    # `*` or `Namespaced`
    scope: str
    operation: str

    @property
    def path(self) -> str:
        """Such as `pods` or `pods/exec`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def build_rules(entries: Iterable[Entry]) -> list[JsonObject]:
    """The rules that stand for these entries."""
    kept = set(entries)
    operations: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for entry in kept:
        if not any(wider in kept for wider in _list_wider(entry)):
            operations[entry.group, entry.version, entry.scope, entry.path].add(entry.operation)
    resources: dict[tuple[str, str, str, tuple[str, ...]], set[str]] = defaultdict(set)
    for (group, version, scope, path), done in operations.items():
        resources[group, version, scope, tuple(sorted(done))].add(path)
    return order_rules(
        make_rule(group, version, _add_debug_containers(group, version, paths), done, scope)
        for (group, version, scope, done), paths in resources.items()
    )


def make_rule(
    group: str, version: str, resources: Iterable[str], operations: Iterable[str], scope: str = ALL
) -> JsonObject:
    """One rule of one group and version, in the API's form."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": sorted(operations),
        "resources": sorted(resources),
        "scope": scope,
    }


def order_rules(rules: Iterable[JsonObject]) -> list[JsonObject]:
    """The rules without doubles, in one order for everyone who computes them."""
    sorted_rules = [
        {name: sorted(part) if isinstance(part, list) else part for name, part in rule.items()}
        for rule in rules
    ]
    unique = {_rank_rule(rule): rule for rule in sorted_rules}
    return [unique[rank] for rank in sorted(unique)]


def _rank_rule(rule: JsonObject) -> tuple[Json, ...]:
    lists = ("apiGroups", "apiVersions", "resources", "operations")
    ranks = [(len(rule[name]), tuple(rule[name])) for name in lists]
    return (*ranks, rule["scope"])


def _add_debug_containers(group: str, version: str, paths: set[str]) -> set[str]:
    # A debug container is a change of the Pod, through a subresource of its own.
    core = group in ("", ALL) and version in ("v1", ALL)
    if core and not paths.isdisjoint(("pods", ALL)):
        return paths | {"pods/ephemeralcontainers"}
    return paths


def _list_wider(entry: Entry) -> Iterator[Entry]:
    for resource, subresource in _list_wider_paths(entry.resource, entry.subresource):
        for group in {entry.group, ALL}:
            for version in {entry.version, ALL}:
                for scope in {entry.scope, ALL}:
                    wider = Entry(group, version, resource, subresource, scope, entry.operation)
                    if wider != entry:
                        yield wider


def _list_wider_paths(resource: str, subresource: str) -> set[tuple[str, str]]:
    """Paths that take in this one: `*` has no subresources in it, `pods/*` no Pods for us."""
    if not subresource:
        return {(resource, ""), (ALL, ""), (ALL, ALL)}
    return {(resource, subresource), (resource, ALL), (ALL, subresource), (ALL, ALL)}
