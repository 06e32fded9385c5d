"""Values given by hand for what only a cluster could tell: by file, inline, or as `name=value`."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lictor.load.test_files import parse_settings
from lictor.model.offline import Subresource, ValuesSpec
from lictor.model.request import GroupVersionKind
from lictor.raw import Json, JsonObject

_NOTHING: Mapping[str, Json] = MappingProxyType({})
_AUTOGEN_PREFIXES = ("autogen-cronjob-", "autogen-")


class GivenValues:
    """Values, looked up by policy and resource, by policy and rule, and by namespace."""

    def __init__(self, values: ValuesSpec | None = None, settings: Sequence[str] = ()) -> None:
        spec = values if values is not None else ValuesSpec()
        self._global = dict(spec.global_values)
        self._settings, self.ignored_settings = parse_settings(settings)
        self._by_resource: dict[tuple[str, str], dict[str, Json]] = {}
        self._by_rule: dict[tuple[str, str], Mapping[str, Json]] = {}
        self._foreach: dict[tuple[str, str], Mapping[str, Sequence[Json]]] = {}
        for policy in spec.policies:
            for resource in policy.resources:
                key = (policy.name, resource.name)
                self._by_resource.setdefault(key, {}).update(resource.values)
            for rule in policy.rules:
                # The first entry of a name is the one that counts.
                self._by_rule.setdefault((policy.name, rule.name), rule.values)
                self._foreach.setdefault((policy.name, rule.name), rule.foreach_values)
        self._namespaces = _read_namespaces(spec)
        self._namespace_objects = {
            str(found["metadata"].get("name")): found
            for found in spec.namespaces
            if isinstance(found, dict) and isinstance(found.get("metadata"), dict)
        }
        self._subresources = _read_subresources(spec.subresources)

    @property
    def change_requests(self) -> bool:
        """Whether any request can look different because of these values."""
        return bool(self._global or self._by_resource or self._settings)

    def of_resource(self, policy: str, resource: str) -> dict[str, Json]:
        """The variables of one policy on one resource; the nearest value wins."""
        given = self._by_resource.get((policy, resource), _NOTHING)
        return {**self._global, **given, **self._settings}

    def of_rule(self, policy: str, rule: str, index: int = 0) -> Mapping[str, Json]:
        """The context entries of one rule, and those of one pass of its foreach.

        Both hold everywhere in the rule; a list with too few values begins anew.
        """
        key = self._find_rule(policy, rule)
        listed = self._foreach.get(key)
        if not listed:
            return self._by_rule.get(key, _NOTHING)
        chosen = {
            name: values[index] if index < len(values) else values[0]
            for name, values in listed.items()
            if values
        }
        return {**self._by_rule.get(key, _NOTHING), **chosen}

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace, as far as they were given."""
        return self._namespaces.get(namespace, MappingProxyType({}))

    def namespace(self, name: str) -> JsonObject | None:
        """The whole object of a namespace, where it was given."""
        return self._namespace_objects.get(name)

    def parent_of(self, kind: GroupVersionKind) -> tuple[GroupVersionKind, str]:
        """The kind that owns a subresource, and its name there; a plain kind owns itself."""
        return self._subresources.get(kind, (kind, ""))

    def _find_rule(self, policy: str, rule: str) -> tuple[str, str]:
        key = (policy, rule)
        if key in self._by_rule:
            return key
        for prefix in _AUTOGEN_PREFIXES:
            shorter = (policy, rule.removeprefix(prefix))
            if shorter in self._by_rule:
                return shorter
        return key


def _read_namespaces(spec: ValuesSpec) -> dict[str, Mapping[str, str]]:
    labels: dict[str, Mapping[str, str]] = {
        given.name: given.labels for given in spec.namespace_selector
    }
    for namespace in spec.namespaces:
        metadata = namespace.get("metadata") if isinstance(namespace, dict) else None
        if isinstance(metadata, dict):
            labels[str(metadata.get("name"))] = metadata.get("labels") or {}
    return labels


def _read_subresources(
    given: Sequence[Subresource],
) -> dict[GroupVersionKind, tuple[GroupVersionKind, str]]:
    found = {}
    for entry in given:
        child, parent = entry.subresource, entry.parent_resource
        name = child.name.partition("/")[2]
        kind = GroupVersionKind(child.group, child.version, child.kind)
        found[kind] = (GroupVersionKind(parent.group, parent.version, parent.kind), name)
    return found
