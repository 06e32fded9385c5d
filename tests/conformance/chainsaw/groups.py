"""Which flags lictor runs with for which folder of tests, as Kyverno's own pipeline sets them."""

from dataclasses import dataclass

from chainsaw.case import Case

_EXCEPTIONS = ("--enablePolicyException=true", "--exceptionNamespace=*")
_STANDARD = (*_EXCEPTIONS, "--omitEvents=", "--validatingAdmissionPolicyReports=true")


@dataclass(frozen=True)
class Group:
    """A way to run lictor, and what it may do beyond what it needs for itself."""

    name: str
    flags: tuple[str, ...]


STANDARD = Group("standard", _STANDARD)
_GROUPS = {
    "policy-exceptions-disabled": Group("default", ("--omitEvents=PolicyApplied,PolicySkipped",)),
    "force-failure-policy-ignore": Group(
        "force-failure-policy-ignore", (*_STANDARD, "--forceFailurePolicyIgnore=true")
    ),
    "generate-mutating-admission-policy": Group(
        "generate-mutating-admission-policy",
        (*_STANDARD, "--generateMutatingAdmissionPolicy=true"),
    ),
    "mutating-admission-policy-reports": Group(
        "mutating-admission-policy-reports",
        (*_STANDARD, "--mutatingAdmissionPolicyReports=true"),
    ),
    "reports-exclude-result": Group(
        "exclude-result", (*_EXCEPTIONS, "--omitEvents=", "--allowedResults=fail")
    ),
    "openreports": Group(
        "openreports", (*_EXCEPTIONS, "--omitEvents=", "--openreportsEnabled=true")
    ),
    "tls-certificates/ecdsa-self-signed": Group("ecdsa", (*_STANDARD, "--tlsKeyAlgorithm=ECDSA")),
    "tls-certificates/ed25519-self-signed": Group(
        "ed25519", (*_STANDARD, "--tlsKeyAlgorithm=Ed25519")
    ),
}
_ALIASES = {
    "generate-mutating-admission-policy-alpha": "generate-mutating-admission-policy",
    "mutating-admission-policy-reports-alpha": "mutating-admission-policy-reports",
}


def find_group(case: Case) -> Group:
    """How lictor must run for a test: the entry of the longest part of its path."""
    parts = case.path.split("/")
    for count in range(len(parts), 0, -1):
        place = "/".join(parts[:count])
        if found := _GROUPS.get(_ALIASES.get(place, place)):
            return found
    return STANDARD


def list_extra_roles() -> list[dict]:
    """Rights that the tests' policies need, given as an administrator gives them: by labels."""
    everything = ["create", "update", "patch", "delete", "get", "list"]
    generated = [
        "configmaps", "networkpolicies", "resourcequotas", "secrets", "roles", "rolebindings",
        "limitranges", "namespaces", "nodes", "nodes/status", "pods",
    ]  # fmt: skip
    native = [
        "validatingadmissionpolicies", "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
    ]  # fmt: skip
    registration = "admissionregistration.k8s.io"
    return [
        _role("admission", ["*"], ["secrets"], everything),
        _role("admission", [registration], native, ["create", "update", "delete", "list"]),
        _role("background", ["*"], generated, everything),
        _role("cleanup", [""], ["pods"], ["list", "delete", "watch"]),
        _role("reports", [registration], native, ["get", "list"]),
        _role("reports", ["openreports.io"], ["*"], everything),
    ]


def _role(controller: str, groups: list[str], resources: list[str], verbs: list[str]) -> dict:
    name = f"conformance:{controller}:{resources[0].replace('*', 'all')}"
    labels = {f"rbac.kyverno.io/aggregate-to-{controller}-controller": "true"}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": [{"apiGroups": groups, "resources": resources, "verbs": verbs}],
    }
