"""What is served here? Groups, versions and kinds, in the older form and the aggregated one."""

from collections.abc import Iterator

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.kinds.catalogue import KindCatalogue
from lictor.kubernetes.facts import RELEASE, SubresourceFacts, load_served_kinds
from lictor.raw import JsonObject

_MAJOR, _MINOR = RELEASE.removeprefix("v").split(".")[:2]
_STATUS = SubresourceFacts(("get", "patch", "update"))
_SCALE = SubresourceFacts(("get", "patch", "update"), ("autoscaling/v1", "Scale"))


def describe_version() -> JsonObject:
    """The answer of `/version`."""
    return {
        "major": _MAJOR,
        "minor": _MINOR,
        "gitVersion": f"{RELEASE}+lictor",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


# --- the older form: one document per group and version


def list_core_versions(address: str) -> JsonObject:
    """The answer of `/api`; `address` is host and port of the server."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def list_groups(catalogue: KindCatalogue) -> JsonObject:
    """The answer of `/apis`."""
    groups = [_describe_group(catalogue, group) for group in catalogue.groups() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def describe_group(catalogue: KindCatalogue, group: str) -> JsonObject | None:
    """The answer of `/apis/GROUP`."""
    if not group or not catalogue.versions(group):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_describe_group(catalogue, group)}


def _describe_group(catalogue: KindCatalogue, group: str) -> JsonObject:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in catalogue.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def list_resources(catalogue: KindCatalogue, group: str, version: str) -> JsonObject | None:
    """The answer of `/api/v1` and `/apis/GROUP/RELEASE`."""
    if version not in catalogue.versions(group):
        return None
    kinds = [each for each in catalogue if (each.group, each.version) == (group, version)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [entry for kind in kinds for entry in _list_entries(kind)],
    }


def _list_entries(kind: ServedKind) -> Iterator[JsonObject]:
    entry: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    yield {**entry, **_names_of(kind)}
    for name, subresource in list_subresources(kind).items():
        other = _split_kind(subresource)
        yield {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **({} if other is None or other["group"] == kind.group else _without_kind(other)),
            "kind": kind.kind if other is None else other["kind"],
            "verbs": list(subresource.verbs),
        }


def list_subresources(kind: ServedKind) -> dict[str, SubresourceFacts]:
    """The subresources of a kind by their names."""
    if kind.is_custom:
        usual = {"status": _STATUS, "scale": _SCALE}
        return {name: facts for name, facts in usual.items() if name in kind.subresources}
    return dict(load_served_kinds()[kind.api_version][kind.kind].subresources)


def _names_of(kind: ServedKind) -> JsonObject:
    names: JsonObject = {}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _split_kind(subresource: SubresourceFacts) -> dict[str, str] | None:
    if subresource.kind is None:
        return None
    group, _, version = subresource.kind[0].rpartition("/")
    return {"group": group, "version": version, "kind": subresource.kind[1]}


def _without_kind(other: dict[str, str]) -> dict[str, str]:
    return {"group": other["group"], "version": other["version"]}


# --- the aggregated form: everything in two documents


def discover_core(catalogue: KindCatalogue) -> JsonObject:
    """The aggregated answer of `/api`."""
    return _discover(catalogue, [""])


def discover_groups(catalogue: KindCatalogue) -> JsonObject:
    """The aggregated answer of `/apis`."""
    return _discover(catalogue, [group for group in catalogue.groups() if group])


def _discover(catalogue: KindCatalogue, groups: list[str]) -> JsonObject:
    resources: dict[tuple[str, str], list[JsonObject]] = {}
    for kind in catalogue:
        resources.setdefault((kind.group, kind.version), []).append(_discover_kind(kind))
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "resources": resources.get((group, version), []),
                    "freshness": "Current",
                }
                for version in catalogue.versions(group)
            ],
        }
        for group in groups
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _discover_kind(kind: ServedKind) -> JsonObject:
    own = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    entry: JsonObject = {
        "resource": kind.plural,
        "responseKind": own,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
        **_names_of(kind),
    }
    subresources = [
        {
            "subresource": name,
            "responseKind": _split_kind(subresource) or own,
            "verbs": list(subresource.verbs),
        }
        for name, subresource in list_subresources(kind).items()
    ]
    return {**entry, "subresources": subresources} if subresources else entry
