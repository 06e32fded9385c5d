"""Maps kinds to resources (`Pod` -> `pods`) and back: built-in facts, given CRDs, or a guess."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TypeAlias

import msgspec

from lictor.core.facts.facts import load_section
from lictor.core.raw import Json, JsonObject


class ResourceType(msgspec.Struct, frozen=True):
    """One kind of one version, as in the API server's paths."""

    group: str
    version: str
    kind: str
    # The plural in lower case.
    resource: str
    # None if unknown.
    namespaced: bool | None = None
    # The name is not known but the usual plural.
    guessed: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


# Group and kind, or group and resource -> version -> the resource.
_Index: TypeAlias = Mapping[tuple[str, str], Mapping[str, ResourceType]]
# Group, version and kind of the body of a subresource, and its name -> the resource.
_Parents: TypeAlias = Mapping[tuple[str, str, str, str], tuple[ResourceType, ...]]

# Resources that one storage serves under several groups: their objects are the same.
_SAME_STORAGE = (
    ({"", "events.k8s.io"}, {"events"}),
    ({"apps", "extensions"}, {"deployments", "daemonsets", "replicasets"}),
    ({"networking.k8s.io", "extensions"}, {"networkpolicies", "ingresses"}),
    ({"policy", "extensions"}, {"podsecuritypolicies"}),
)


class ResourceNames:
    """Known kinds and resources. Immutable: `with_crds` returns a new one."""

    __slots__ = ("_by_kind", "_by_resource", "_known", "_parents")

    def __init__(self, known: Iterable[ResourceType], parents: _Parents) -> None:
        self._known = tuple(known)
        self._parents = parents
        self._by_kind = _index(self._known, by_kind=True)
        self._by_resource = _index(self._known, by_kind=False)

    def of_kind(self, group: str, version: str, kind: str) -> ResourceType:
        """The resource of a kind; if unknown, with the usual plural as name (`guessed`)."""
        versions = self._by_kind.get((group, kind))
        if versions is None:
            return ResourceType(group, version, kind, guess_plural(kind), guessed=True)
        found = versions.get(version)
        if found is not None:
            return found
        # Another version of a known kind has the same name and scope.
        return msgspec.structs.replace(next(iter(versions.values())), version=version)

    def of_resource(self, group: str, version: str, resource: str) -> ResourceType | None:
        """The kind of a resource name; None if unknown."""
        versions = self._by_resource.get((group, resource))
        if versions is None:
            return None
        found = versions.get(version)
        if found is not None:
            return found
        return msgspec.structs.replace(next(iter(versions.values())), version=version)

    @property
    def known(self) -> tuple[ResourceType, ...]:
        """All known resources."""
        return self._known

    def knows_group(self, group: str) -> bool:
        """Whether the resources of this group are known, and so all of them."""
        return any(each.group == group for each in self._known)

    def targets(
        self, group: str, version: str, kind: str, subresource: str
    ) -> tuple[ResourceType, ...]:
        """The resources that a request with an object of this kind may be sent to.

        More than one only for a kind that is the body of several subresources (`Scale`).
        """
        parents = self._parents.get((group, version, kind, subresource)) if subresource else None
        return parents or (self.of_kind(group, version, kind),)

    def equivalents(self, group: str, version: str, resource: str) -> tuple[tuple[str, str], ...]:
        """Other groups and versions under which the same objects are served."""
        return tuple(
            (other, each)
            for other in _groups_of(group, resource)
            for each in self._by_resource.get((other, resource), ())
            if (other, each) != (group, version)
        )

    def with_resources(self, resources: Iterable[ResourceType]) -> "ResourceNames":
        """The same with more resources, which override the known ones."""
        return ResourceNames((*self._known, *resources), self._parents)

    def with_crds(self, crds: Iterable[Json]) -> "ResourceNames":
        """The same with the kinds of CustomResourceDefinitions; other objects are ignored."""
        return self.with_resources(resource for crd in crds for resource in _read_crd(crd))


def _groups_of(group: str, resource: str) -> Iterator[str]:
    yield group
    for groups, resources in _SAME_STORAGE:
        if group in groups and resource in resources:
            yield from sorted(groups - {group})


def _index(known: Iterable[ResourceType], *, by_kind: bool) -> _Index:
    index: dict[tuple[str, str], dict[str, ResourceType]] = {}
    for each in known:
        key = (each.group, each.kind if by_kind else each.resource)
        index.setdefault(key, {})[each.version] = each
    return index


# --- guessed names


def guess_plurals(kind: str) -> tuple[str, ...]:
    """Every plausible name of the resource of a kind, the most usual first."""
    word = kind.lower()
    usual = guess_plural(kind)
    others = (f"{word}s", f"{word}es", f"{word.removesuffix('y')}ies", word)
    return tuple(dict.fromkeys((usual, *others)))


def guess_plural(kind: str) -> str:
    """The usual plural of a kind, in lower case."""
    word = kind.lower()
    if not word or word.endswith("endpoints"):
        return word
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u"):
        return f"{word[:-1]}ies"
    return f"{word}s"


# --- CustomResourceDefinitions


def _read_crd(crd: Json) -> Iterator[ResourceType]:
    if not isinstance(crd, dict) or crd.get("kind") != "CustomResourceDefinition":
        return
    spec = _object(crd, "spec")
    names = _object(spec, "names")
    group, kind, plural = (_text(spec, "group"), _text(names, "kind"), _text(names, "plural"))
    if not group or not kind or not plural:
        return
    for version in _read_versions(spec):
        yield ResourceType(group, version, kind, plural, spec.get("scope") == "Namespaced")


def _read_versions(spec: JsonObject) -> list[str]:
    versions = spec.get("versions")
    if not isinstance(versions, list):
        # v1beta1 of CustomResourceDefinition had one.
        versions = [{"name": spec.get("version")}]
    served = [v for v in versions if isinstance(v, dict) and v.get("served") is not False]
    return [name for name in (_text(version, "name") for version in served) if name]


def _object(holder: JsonObject, name: str) -> JsonObject:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _text(holder: JsonObject, name: str) -> str:
    value = holder.get(name)
    return value if isinstance(value, str) else ""


# --- Kubernetes' own


@cache
def builtin_names() -> ResourceNames:
    """Kubernetes' built-in kinds, of every release since 1.23."""
    table = load_section("names")
    known = [each for version, entry in table.items() for each in _read_builtins(version, entry)]
    return ResourceNames(known, _read_parents(table, known))


def _read_builtins(api_version: str, entry: JsonObject) -> Iterator[ResourceType]:
    group, _, version = api_version.rpartition("/")
    for scope in ("namespaced", "cluster"):
        for kind, resource in entry.get(scope, {}).items():
            yield ResourceType(group, version, kind, resource, scope == "namespaced")


def _read_parents(table: JsonObject, known: Iterable[ResourceType]) -> _Parents:
    owners = {(each.api_version, each.resource): each for each in known}
    parents: dict[tuple[str, str, str, str], tuple[ResourceType, ...]] = {}
    for owner_version, entry in table.items():
        for name, (api_version, kind) in entry.get("subresources", {}).items():
            resource, _, subresource = name.partition("/")
            group, _, version = api_version.rpartition("/")
            key = (group, version, kind, subresource)
            parents[key] = (*parents.get(key, ()), owners[owner_version, resource])
    return parents
