"""Which fields may differ from the signed manifest: those that clusters set, and the rule's."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from lictor.core.errors import CompileError, SyntaxFaultError
from lictor.core.lang.regex import Regex, compile_regex
from lictor.core.model.signatures import ManifestsIgnore
from lictor.core.raw import Json, JsonObject

# For a resource: whether the field with this path may differ.
Ignores: TypeAlias = Callable[[JsonObject], Callable[[str], bool]]
_Concerns: TypeAlias = Callable[[Mapping[str, str]], bool]

SIGNING = ("message", "signature", "certificate", "bundle", "resourceBundleRef")
DOMAIN = "cosign.sigstore.dev"

_META = (
    "namespace resourceVersion selfLink creationTimestamp generation uid finalizers "
    "managedFields.* labels.app.kubernetes.io/instance annotations.namespace "
    "annotations.kubectl.kubernetes.io/last-applied-configuration "
    "annotations.control-plane.alpha.kubernetes.io/leader "
    "annotations.deployment.kubernetes.io/revision "
    "annotations.deprecated.daemonset.template.generation"
)
_ALL = (
    "status spec.dnsPolicy spec.restartPolicy spec.schedulerName "
    "spec.terminationGracePeriodSeconds spec.containers.*.imagePullPolicy "
    "spec.containers.*.terminationMessagePath spec.containers.*.terminationMessagePolicy"
)
_ADMISSION = (
    "metadata.annotations.pod-policies.kyverno.io/autogen-controllers spec.failurePolicy "
    "spec.background spec.validationFailureAction"
)
# What Kyverno ignores in every rule, by kind.
_DEFAULTS = {
    "*": (*_ALL.split(), *(f"metadata.{field}" for field in _META.split())),
    "Pod": (
        "spec.volumes.*.name",
        "spec.volumes.*.projected.*",
        "spec.volumes.*.configMap.defaultMode",
        "spec.containers.*.volumeMounts.*",
        "spec.tolerations.*",
        "spec.enableServiceLinks",
        "spec.preemptionPolicy",
        "spec.priority",
        "spec.serviceAccount",
    ),
    "Deployment": (
        "spec.progressDeadlineSeconds",
        "spec.revisionHistoryLimit",
        "spec.strategy.*",
        "spec.template.metadata.creationTimestamp",
        "spec.containers.*.ports.*.protocol",
        "spec.containers.*.resources",
        "spec.securityContext",
    ),
    "CustomResourceDefinition": ("spec.conversion.strategy", "spec.names.listKind"),
    "Service": (
        "spec.ports.*.nodePort",
        "spec.clusterIP",
        "spec.clusterIPs.0",
        "spec.sessionAffinity",
        "spec.type",
        "spec.ipFamilies.*",
        "spec.ipFamilyPolicy",
        "spec.internalTrafficPolicy",
    ),
    "ClusterPolicy": tuple(_ADMISSION.split()),
    "Policy": tuple(_ADMISSION.split()),
    "ServiceAccount": ("secrets.*.name", "imagePullSecrets.*.name"),
}
_ROUTE = ManifestsIgnore(("spec.host",), [{"kind": "Route", "group": "route.openshift.io"}])


def compile_ignores(wanted: Iterable[ManifestsIgnore], domain: str) -> Ignores:
    """Those of every rule, those of this rule, and the annotations of the signature itself."""
    signing = tuple(
        f"metadata.annotations.{place}/{name}" for place in {DOMAIN, domain} for name in SIGNING
    )
    known = [ManifestsIgnore(fields, [{"kind": kind}]) for kind, fields in _DEFAULTS.items()]
    bindings = [
        (_compile_objects(each.objects), _compile_fields(each.fields))
        for each in (ManifestsIgnore(signing), *known, _ROUTE, *wanted)
    ]

    def ignores(resource: JsonObject) -> Callable[[str], bool]:
        about = _describe(resource)
        tests = [test for concerns, found in bindings if concerns(about) for test in found]
        return lambda key: any(test.search(key) is not None for test in tests)

    return ignores


def _compile_fields(fields: Iterable[str]) -> list[Regex]:
    """A path matches all that start with it, at any depth; `*` matches anything.

    It is used as a regular expression, as in Kyverno, and an invalid one matches no field.
    """
    patterns = [f"{field}*".replace("*", ".*") for field in fields]
    singles = [test for pattern in patterns for test in _compile_sound(pattern)]
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    # One search is faster than many; if it is too long, or one is invalid, they stay separate.
    return (_compile_sound(joined) if len(singles) == len(patterns) else []) or singles


def _compile_sound(pattern: str) -> list[Regex]:
    try:
        return [compile_regex(pattern)]
    except SyntaxFaultError:
        return []


def _compile_objects(objects: Json) -> _Concerns:
    if objects is None or objects == []:
        return lambda _: True
    if not isinstance(objects, list) or not all(isinstance(each, dict) for each in objects):
        raise CompileError("ignoreFields.objects: expected a list of objects")
    tests = [_compile_object(each) for each in objects]
    return lambda about: any(test(about) for test in tests)


def _compile_object(wanted: JsonObject) -> _Concerns:
    patterns = []
    for name in ("group", "version", "kind", "name", "namespace"):
        pattern = wanted.get(name, "")
        if not isinstance(pattern, str):
            raise CompileError(f"ignoreFields.objects.{name}: expected a text")
        patterns.append((name, _compile_pattern(pattern)))
    return lambda about: all(test(about[name]) for name, test in patterns)


def _compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A name, a prefix (`web-*`), `-` for none, or several with commas."""
    pattern = pattern.strip()
    if pattern in ("", "*"):
        return lambda _: True
    if pattern.endswith("*"):
        start = pattern.rstrip("*")
        return lambda value: value.startswith(start)
    if "," not in pattern:
        return lambda value: value == pattern or (pattern == "-" and not value)
    tests = [_compile_pattern(choice) for choice in pattern.split(",")]
    return lambda value: value == pattern or any(test(value) for test in tests)


def _describe(resource: JsonObject) -> dict[str, str]:
    group, _, version = read_text(resource, "apiVersion").rpartition("/")
    metadata = resource.get("metadata")
    return {
        "group": group,
        "version": version,
        "kind": read_text(resource, "kind"),
        "name": read_text(metadata, "name"),
        "namespace": read_text(metadata, "namespace"),
    }


def read_text(body: Json, key: str) -> str:
    """A text in an object; empty if there is none."""
    value = body.get(key) if isinstance(body, dict) else None
    return value if isinstance(value, str) else ""
