"""Rules and label selectors of webhooks, from policies and settings, in a stable order."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from lictor.core.families.kind_facts import SharedWebhookMatch
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.model.metadata import LabelSelector
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.stored_policy import StoredPolicy

# Every Namespace has this label, and its name as the value.
NAME_LABEL = "kubernetes.io/metadata.name"


def write_selector(selector: LabelSelector | None) -> JsonObject:
    """A selector in the API's form; the empty one matches everything."""
    return {} if selector is None else dict(msgspec.to_builtins(selector))


def merge_selectors(*selectors: JsonObject | None) -> JsonObject:
    """A selector that matches what each of these matches."""
    labels: JsonObject = {}
    expressions: list[Json] = []
    for selector in selectors:
        for key, value in ((selector or {}).get("matchLabels") or {}).items():
            if labels.setdefault(key, value) != value:
                # Two values of one label: nothing has both, and a map cannot express it.
                expressions.append({"key": key, "operator": "In", "values": [value]})
        for expression in (selector or {}).get("matchExpressions") or ():
            if expression not in expressions:
                expressions.append(expression)
    merged: JsonObject = {}
    if labels:
        merged["matchLabels"] = labels
    if expressions:
        merged["matchExpressions"] = expressions
    return merged


def select_namespaces(policies: Iterable[StoredPolicy]) -> JsonObject:
    """The namespaces of namespaced policies; no selector where one is cluster-scoped."""
    namespaces = {policy.namespace for policy in policies}
    if not namespaces or "" in namespaces:
        return {}
    only = {"key": NAME_LABEL, "operator": "In", "values": sorted(namespaces)}
    return {"matchExpressions": [only]}


def find_shared_match(policy: StoredPolicy, *, mutating: bool) -> SharedWebhookMatch:
    """What a policy needs of a shared webhook; nothing for other kinds."""

    def find() -> SharedWebhookMatch:
        if policy.record is None:
            return SharedWebhookMatch({})
        return policy.kind.family.describe_shared_webhook(policy.record, mutating=mutating)

    return policy.derive(("shared_webhook", mutating), find)


def select_labels(policies: Iterable[StoredPolicy], *, mutating: bool) -> JsonObject:
    """The namespaceSelector that is the scope of every rule; everywhere if they differ.

    The API server then never calls for other namespaces. It still calls for cluster-scoped objects,
    and such rules never match a Namespace itself: nothing is lost.
    """
    scopes = [find_shared_match(policy, mutating=mutating).namespaces for policy in policies]
    first = scopes[0] if scopes else None
    if first is None or any(scope != first for scope in scopes):
        return {}
    return write_selector(first)


def excludes_namespace(selector: JsonObject | None, namespace: str) -> bool:
    """Whether a namespace selector excludes this one, by its name."""
    if (selector or {}).get("matchLabels", {}).get(NAME_LABEL, namespace) != namespace:
        return True
    for expression in (selector or {}).get("matchExpressions") or ():
        named = namespace in (expression.get("values") or ())
        if expression.get("key") == NAME_LABEL and (
            (expression.get("operator") == "NotIn" and named)
            or (expression.get("operator") == "In" and not named)
        ):
            return True
    return False


def names_namespace(policy: StoredPolicy, namespace: str) -> bool:
    """Whether a policy names this namespace explicitly."""
    return policy.derive(
        ("names_namespace", namespace), lambda: _names_namespace(policy, namespace)
    )


def _names_namespace(policy: StoredPolicy, namespace: str) -> bool:
    if policy.namespace == namespace:
        return True
    record, family = policy.record, policy.kind.family
    written = None if record is None else family.list_named_namespaces(record)
    if written is not None:
        return any(each != "*" and compile_wildcard(each)(namespace) for each in written)
    constraints = (policy.document.get("spec") or {}).get("matchConstraints") or {}
    selector = constraints.get("namespaceSelector") or {}
    if (selector.get("matchLabels") or {}).get(NAME_LABEL) == namespace:
        return True
    return any(
        each.get("key") == NAME_LABEL
        and each.get("operator") == "In"
        and namespace in (each.get("values") or ())
        for each in selector.get("matchExpressions") or ()
    )


ALL = "*"
EVERY_OPERATION = ("CONNECT", "CREATE", "DELETE", "UPDATE")


class RuleEntry(msgspec.Struct, frozen=True):
    """One operation on one resource, or on what wildcards stand for."""

    group: str
    version: str
    resource: str
    subresource: str
    # `*` or `Namespaced`
    scope: str
    operation: str = ""
    # Set if the cluster does not serve this kind yet: its resource may have any name.
    unserved_kind: str = ""

    @property
    def path(self) -> str:
        """Such as `pods` or `pods/exec`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def build_rules(entries: Iterable[RuleEntry]) -> list[JsonObject]:
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
    """The rules without duplicates, in a deterministic order."""
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
    # A debug container changes the Pod through a separate subresource.
    core = group in ("", ALL) and version in ("v1", ALL)
    if core and not paths.isdisjoint(("pods", ALL)):
        return paths | {"pods/ephemeralcontainers"}
    return paths


def _list_wider(entry: RuleEntry) -> Iterator[RuleEntry]:
    for resource, subresource in _list_wider_paths(entry.resource, entry.subresource):
        for group in {entry.group, ALL}:
            for version in {entry.version, ALL}:
                for scope in {entry.scope, ALL}:
                    wider = RuleEntry(group, version, resource, subresource, scope, entry.operation)
                    if wider != entry:
                        yield wider


def _list_wider_paths(resource: str, subresource: str) -> set[tuple[str, str]]:
    """Paths that include this one: `*` has no subresources, `pods/*` no Pods here."""
    if not subresource:
        return {(resource, ""), (ALL, ""), (ALL, ALL)}
    return {(resource, subresource), (resource, ALL), (ALL, subresource), (ALL, ALL)}
