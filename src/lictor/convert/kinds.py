"""Kinds as classic policies name them, as the resources that CEL policies name."""

from collections.abc import Iterable

import msgspec

from lictor.errors import CompileError
from lictor.lang.kind_schema import find_form
from lictor.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.lang.resource_names import Resource, ResourceNames
from lictor.lang.wildcard import has_wildcard

# Groups in which a kind is looked for that is named without one; the newer name of a thing first.
_GROUPS = (
    "", "apps", "batch", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "autoscaling",
    "storage.k8s.io", "apiextensions.k8s.io", "admissionregistration.k8s.io", "scheduling.k8s.io",
    "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "node.k8s.io",
    "certificates.k8s.io", "flowcontrol.apiserver.k8s.io", "apiregistration.k8s.io",
    "authentication.k8s.io", "authorization.k8s.io", "resource.k8s.io", "extensions",
)  # fmt: skip
_VERSIONS = ("v1", "v2", "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v2beta2")
_EPHEMERAL = "ephemeralcontainers"


class Meant(msgspec.Struct, frozen=True):
    """One kind, named as the API server names it."""

    group: str
    version: str
    resource: str
    kind: str
    subresource: str = ""
    namespaced: bool | None = None
    guessed: bool = False

    @property
    def path(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def api_version(self) -> str:
        """A version in which objects of the kind can be written."""
        version = self.version
        if version == "*":
            version = _find_version(self.group, self.kind) or "v1"
        group = "example.com" if self.group == "*" else self.group
        return f"{group}/{version}" if group else version


def find_kinds(kinds: Iterable[str], names: ResourceNames, groups: Iterable[str]) -> list[Meant]:
    """What the kinds of a filter mean; CompileError where that has no equivalent."""
    found: list[Meant] = []
    for text in kinds:
        meant = _find(parse_kind_selector(text), text, names, (*groups, *_GROUPS))
        found.append(meant)
        if meant.kind == "Pod" and not meant.group and not meant.subresource:
            # Kyverno takes a Pod's ephemeral containers for a part of the Pod.
            found.append(msgspec.structs.replace(meant, subresource=_EPHEMERAL))
    return list(dict.fromkeys(found))


def _find(
    selector: KindSelector, text: str, names: ResourceNames, groups: tuple[str, ...]
) -> Meant:
    if selector.kind == "*" and selector.subresource in ("", "*"):
        path = "*" if not selector.subresource else "*/*"
        return Meant(selector.group, selector.version, path, "*")
    if has_wildcard(selector.kind) or has_wildcard(selector.subresource):
        raise CompileError(f"the wildcard in the kind {text!r} has no equivalent")
    if selector.group == "*":
        return _find_bare(selector, names, groups)
    if has_wildcard(selector.group):
        raise CompileError(f"the wildcard in the group of {text!r} has no equivalent")
    known = names.of_kind(selector.group, _plain_version(selector), selector.kind)
    return _meant(known, selector.version, selector)


def _find_bare(selector: KindSelector, names: ResourceNames, groups: tuple[str, ...]) -> Meant:
    for group in groups:
        known = names.of_kind(group, _plain_version(selector), selector.kind)
        if not known.guessed:
            version = selector.version
            if version == "*" and group in _GROUPS:
                # Other versions of Kubernetes' own kinds are turned into this one.
                version = _find_version(group, selector.kind) or "*"
            return _meant(known, version, selector)
    guess = names.of_kind("*", _plain_version(selector), selector.kind)
    return _meant(guess, selector.version, selector)


def _plain_version(selector: KindSelector) -> str:
    return "v1" if has_wildcard(selector.version) else selector.version


def _find_version(group: str, kind: str) -> str:
    for version in _VERSIONS:
        if find_form(f"{group}/{version}" if group else version, kind) is not None:
            return version
    return ""


def _meant(known: Resource, version: str, selector: KindSelector) -> Meant:
    if has_wildcard(version) and version != "*":
        raise CompileError(f"the wildcard in the version {version!r} has no equivalent")
    return Meant(
        known.group,
        version,
        known.resource,
        selector.kind,
        selector.subresource,
        known.namespaced,
        known.guessed,
    )


def resource_rules(kinds: Iterable[Meant], operations: Iterable[str]) -> list[dict[str, list[str]]]:
    """The kinds as `resourceRules`, one for each group and version."""
    rules: dict[tuple[str, str], list[str]] = {}
    for meant in kinds:
        resources = rules.setdefault((meant.group, meant.version), [])
        if meant.path not in resources:
            resources.append(meant.path)
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": list(operations),
            "resources": resources,
        }
        for (group, version), resources in rules.items()
    ]
