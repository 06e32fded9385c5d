"""An installation of Kyverno -> what would be kept, what would differ with lictor in its place."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import product

import msgspec
import orjson

from lictor.addons.migrate.inventory import AGGREGATE_TO, COMPONENT, OBJECTS, KyvernoInventory
from lictor.core.model.finding import Finding, Severity
from lictor.core.raw import JsonObject
from lictor.install.build import build_manifests
from lictor.install.installation import Installation, describe_object, is_ours
from lictor.install.settings_map import SETTINGS
from lictor.install.storage_versions import find_stale
from lictor.install.taking_over import (
    FoundFlag,
    can_replace,
    describe_images,
    keep_flags,
    read_flags,
)
from lictor.kubernetes.settings import read_settings
from lictor.lint.render import LintReport

_ALL = "*"
_CORE = ":core"
# What lictor does not need, because it has no such objects, or requests it differently.
_UNNEEDED = frozenset((
    "", "admissionregistration.k8s.io", "apiextensions.k8s.io", "authorization.k8s.io",
    "coordination.k8s.io", "events.k8s.io", "kyverno.io", "openreports.io", "policies.kyverno.io",
    "reports.kyverno.io", "wgpolicyk8s.io",
))  # fmt: skip
_READING = frozenset(("get", "list", "watch"))
# Kinds of the group without a name that are about the installation itself.
_OWN_CORE = frozenset(("events", "namespaces", "secrets", "configmaps", "serviceaccounts", "pods"))


class MissingRight(msgspec.Struct, frozen=True, order=True):
    """Something that a role of Kyverno's gives, and lictor's of the same name does not."""

    role: str
    resource: str
    verbs: tuple[str, ...]


def find_missing_rights(
    objects: Iterable[JsonObject], manifests: Iterable[JsonObject]
) -> Iterator[MissingRight]:
    """Compare the ClusterRoles of Kyverno's controllers with those that take their place."""
    ours = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "ClusterRole"}
    for role in objects:
        name = role["metadata"]["name"]
        if role["kind"] != "ClusterRole" or not name.endswith(_CORE) or name not in ours:
            continue
        given = set(_expand(ours[name].get("rules") or ()))
        missing: dict[str, list[str]] = {}
        for right in sorted(set(_expand(role.get("rules") or ()))):
            group, resource, verb = right
            if _concerns_policies(group, resource, verb) and not _is_given(given, right):
                missing.setdefault(f"{resource}.{group}" if group else resource, []).append(verb)
        for resource, verbs in missing.items():
            yield MissingRight(name.removesuffix(_CORE), resource, tuple(verbs))


def _expand(rules: Iterable[JsonObject]) -> Iterator[tuple[str, str, str]]:
    for rule in rules:
        # A right on objects of certain names is about the installation's own.
        if not rule.get("resourceNames"):
            yield from product(
                rule.get("apiGroups") or (), rule.get("resources") or (), rule.get("verbs") or ()
            )


def _concerns_policies(group: str, resource: str, verb: str) -> bool:
    """Is it a right to change what policies may be about?"""
    if verb in _READING:
        return False
    if group == "":
        return resource.partition("/")[0] not in _OWN_CORE
    return group not in _UNNEEDED


def _is_given(given: set[tuple[str, str, str]], right: tuple[str, str, str]) -> bool:
    choices = product(*((part, _ALL) for part in right))
    return any(choice in given for choice in choices)


# Entries of the ConfigMap about metrics.
_METRICS_SETTINGS = ("namespaces", "bucketBoundaries", "metricsExposure")
LintPolicies = Callable[[Iterable[tuple[str, bytes]]], LintReport]


class KeptSetting(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry of a ConfigMap, and a remark about it."""

    config_map: str
    name: str
    value: str
    # Why it has no effect, or not the one that was meant.
    problem: str = ""


class FoundDeployment(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What runs."""

    name: str
    images: str
    replicas: int
    # Why it cannot be replaced in place.
    problem: str = ""


class PolicyProblem(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something in a policy that lictor does not take as it is."""

    kind: str
    name: str
    message: str
    check: str = ""
    # `file:line` of the field, where the policy was read from a file.
    place: str = ""


class MigrationReport(msgspec.Struct, frozen=True, rename="camel"):
    """What was found, and what would differ."""

    namespace: str
    prefix: str
    deployments: tuple[FoundDeployment, ...]
    settings: tuple[KeptSetting, ...]
    kept_flags: dict[str, str]
    # Flags that are the default here, have no effect, or do not exist; each with the reason.
    dropped_flags: tuple[FoundFlag, ...]
    policies: dict[str, int]
    problems: tuple[PolicyProblem, ...]
    warnings: int
    reports: dict[str, int]
    webhooks: int
    missing_rights: tuple[MissingRight, ...]
    # Kinds with objects in older versions, and these.
    stale_kinds: dict[str, list[str]]
    # Objects of Kyverno's that nothing uses any more.
    unused: tuple[str, ...]
    # Tools that would put Kyverno back.
    managers: tuple[str, ...]
    is_lictor: bool = False

    @property
    def is_clear(self) -> bool:
        """Would everything work as before?"""
        flaws = [*(d.problem for d in self.deployments), *(s.problem for s in self.settings)]
        unknown = any(_UNKNOWN in flag.reason for flag in self.dropped_flags)
        return not (self.problems or unknown or any(flaws))


_UNKNOWN = "no such flag"


def build_report(
    inventory: KyvernoInventory, installation: Installation, lint: LintPolicies
) -> MigrationReport:
    """Compare what is there with what `installation` would make of it."""
    deployments = tuple(inventory.deployments.values())
    flags = read_flags(deployments, installation)
    kept = keep_flags(installation, flags)
    manifests = build_manifests(kept)
    documents = (*inventory.policies, *inventory.roles, *_list_own_roles(manifests))
    linted = lint(map(_write, documents))
    problems = [finding for finding in linted.findings if _is_problem(finding)]
    return MigrationReport(
        namespace=inventory.names.namespace,
        prefix=inventory.names.prefix,
        deployments=tuple(_describe_deployment(each, manifests) for each in deployments),
        settings=tuple(_list_settings(inventory)),
        kept_flags=dict(kept.flags),
        dropped_flags=tuple(flag for flag in flags if flag.reason),
        policies=dict(Counter(each["kind"] for each in inventory.policies)),
        problems=tuple(_describe_problem(finding, inventory) for finding in problems),
        warnings=len(linted.findings) - len(problems),
        reports=dict(inventory.reports),
        webhooks=len(inventory.webhooks),
        missing_rights=tuple(find_missing_rights(inventory.others, manifests)),
        stale_kinds=_find_stale_kinds(inventory, manifests),
        unused=tuple(_list_unused(inventory, manifests)),
        managers=tuple(_list_managers(inventory)),
        is_lictor=any(is_ours(each) for each in deployments),
    )


def _write(document: JsonObject) -> tuple[str, bytes]:
    metadata = document["metadata"]
    place = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    shown = {name: value for name, value in document.items() if name != "status"}
    shown["metadata"] = {name: v for name, v in metadata.items() if name != "managedFields"}
    return f"{document['kind']} {place}", orjson.dumps(shown)


def _list_own_roles(manifests: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """What lictor's controllers may do, as ClusterRoles that `lint` takes into account."""
    reading = {"apiGroups": [_ALL], "resources": [_ALL], "verbs": sorted(_READING)}
    for role in manifests:
        name = role["metadata"]["name"]
        if role["kind"] == "ClusterRole" and name.endswith(_CORE):
            label = f"{AGGREGATE_TO}{role['metadata']['labels'][COMPONENT]}"
            metadata = {"name": name, "labels": {label: "true"}}
            yield {**role, "metadata": metadata, "rules": [*(role.get("rules") or ()), reading]}


def _is_problem(finding: Finding) -> bool:
    """Is it an error, or a policy that can do nothing because a right is missing?"""
    return finding.severity is Severity.ERROR or finding.check == "missing-rights"


def _describe_problem(finding: Finding, inventory: KyvernoInventory) -> PolicyProblem:
    kind, _, name = finding.location.file.partition(" ")
    namespace, _, plain = name.rpartition("/")
    named = (kind, namespace, plain)
    places = (find(finding.path) for key, find in inventory.places.items() if key[1:] == named)
    return PolicyProblem(kind, name, finding.field_and_text, finding.check, next(places, ""))


def _describe_deployment(live: JsonObject, manifests: list[JsonObject]) -> FoundDeployment:
    name = live["metadata"]["name"]
    ours = next((m for m in manifests if _is_same(m, live)), None)
    problem = ""
    if ours is not None and not is_ours(live) and not can_replace(ours, live):
        labels = live["spec"]["selector"].get("matchLabels") or {}
        listed = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
        problem = f"its selector is another one ({listed}): it cannot be replaced in place"
    replicas = live["spec"].get("replicas")
    replicas = 1 if replicas is None else replicas
    return FoundDeployment(name, describe_images(live), replicas, problem)


def _is_same(left: JsonObject, right: JsonObject) -> bool:
    return bool(
        left["kind"] == right["kind"] and left["metadata"]["name"] == right["metadata"]["name"]
    )


def _list_settings(inventory: KyvernoInventory) -> Iterable[KeptSetting]:
    names = inventory.names
    for name, config_map in inventory.config_maps.items():
        is_metrics = name == names.metrics_config_map
        problems = () if is_metrics else read_settings(config_map).problems
        for key, value in (config_map.get("data") or {}).items():
            flaws = "; ".join(p.partition(": ")[2] for p in problems if p.startswith(f"{key}: "))
            is_known = key in (_METRICS_SETTINGS if is_metrics else SETTINGS)
            yield KeptSetting(name, key, str(value), flaws if is_known else "not used")


def _find_stale_kinds(
    inventory: KyvernoInventory, manifests: list[JsonObject]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for live in inventory.definitions:
        ours = next((m for m in manifests if _is_same(m, live)), None)
        if ours is not None and (stale := find_stale(ours, live)):
            found[live["metadata"]["name"]] = stale
    return found


def _list_unused(inventory: KyvernoInventory, manifests: list[JsonObject]) -> Iterable[str]:
    ours = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    resources = {(each.api_version, each.kind): each for each in OBJECTS}
    for each in inventory.others:
        name = each["metadata"]["name"]
        resource = resources.get((each["apiVersion"], each["kind"]))
        # What someone else's object owns goes with it.
        is_owned = bool(each["metadata"].get("ownerReferences"))
        if resource and not is_owned and (each["kind"], name) not in ours:
            yield describe_object(resource, name)


_TOOLS = {
    "meta.helm.sh/release-name": "Helm",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
}


def _list_managers(inventory: KyvernoInventory) -> Iterable[str]:
    """Who has made the Deployments, and would bring them back."""
    found: dict[str, str] = {}
    for deployment in inventory.deployments.values():
        metadata = deployment["metadata"]
        marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        for key, tool in _TOOLS.items():
            if key in marks:
                found.setdefault(tool, str(marks[key]))
    return (f"{tool} ({name})" for tool, name in found.items())
