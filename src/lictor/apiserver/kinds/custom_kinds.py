"""Kinds out of a CustomResourceDefinition."""

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.kinds.custom_shapes import CustomShape
from lictor.raw import JsonObject


def read_kinds(crd: JsonObject) -> tuple[ServedKind, ...]:
    """One kind for each version that is served."""
    versions = crd["spec"]["versions"]
    return tuple(_read_kind(crd, version) for version in versions if version.get("served"))


def read_storage_version(crd: JsonObject) -> str:
    """The version in which objects are kept."""
    versions = crd["spec"]["versions"]
    kept: list[str] = [each["name"] for each in versions if each.get("storage")]
    return kept[0] if kept else str(versions[0]["name"])


def _read_kind(crd: JsonObject, version: JsonObject) -> ServedKind:
    spec = crd["spec"]
    names = spec["names"]
    return ServedKind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec.get("scope") == "Namespaced",
        shape=CustomShape(version, names["kind"]),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(version.get("subresources") or ()),
        is_custom=True,
    )
