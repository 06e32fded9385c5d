"""The admission policy and binding that the API server evaluates itself, made from one policy."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from lictor.core.model.metadata import PolicyRecord
from lictor.core.raw import Json, JsonObject

GROUP = "admissionregistration.k8s.io"
MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "kyverno"
UNREPORTED_LABEL = "reports.kyverno.io/disabled"


class AdmittedResource(msgspec.Struct, frozen=True):
    """A resource that the API server serves; with a subresource it is `pods/exec`."""

    group: str
    version: str
    resource: str


# The resources that a kind such as `apps/v1/Deployment` stands for.
FindResources: TypeAlias = Callable[[str], Sequence[AdmittedResource]]


class PolicyOwner(msgspec.Struct, frozen=True):
    """The policy that the objects belong to, and go away with."""

    api_version: str
    kind: str
    name: str
    uid: str
    # Fail or Ignore.
    failure_policy: str = "Fail"
    is_reported: bool = True


class NativeRequest(msgspec.Struct, frozen=True):
    """What a policy is made native with: its owner, exceptions, and what the API server serves."""

    owner: PolicyOwner
    exceptions: Sequence[PolicyRecord]
    find: FindResources
    # That of mutating admission policies; empty where there are none.
    mutating_version: str = ""


class AdmissionPolicyPair(msgspec.Struct, frozen=True):
    """A policy and the binding that puts it into force."""

    policy: JsonObject
    binding: JsonObject

    @property
    def name(self) -> str:
        return str(self.policy["metadata"]["name"])


def make_pair(
    prefix: str,
    family: str,
    owner: PolicyOwner,
    spec: JsonObject,
    binding: JsonObject,
    version: str,
) -> AdmissionPolicyPair:
    """Both objects; `family` is Validating or Mutating."""
    name = f"{prefix}-{owner.name}"
    kind = f"{family}AdmissionPolicy"
    labels = {MANAGED_LABEL: MANAGED_BY}
    if not owner.is_reported:
        labels[UNREPORTED_LABEL] = "true"
    return AdmissionPolicyPair(
        {
            "apiVersion": f"{GROUP}/{version}",
            "kind": kind,
            "metadata": _describe(name, owner, labels),
            "spec": spec,
        },
        {
            "apiVersion": f"{GROUP}/{version}",
            "kind": f"{kind}Binding",
            "metadata": _describe(f"{name}-binding", owner, {MANAGED_LABEL: MANAGED_BY}),
            "spec": {"policyName": name, **binding},
        },
    )


def _describe(name: str, owner: PolicyOwner, labels: dict[str, str]) -> JsonObject:
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return {"name": name, "labels": labels, "ownerReferences": [reference]}


def write(record: Json) -> Json:
    """A record as it comes back from the API server: with lists, where records have tuples."""
    return msgspec.json.decode(msgspec.json.encode(record))


def name_conditions(conditions: Iterable[tuple[str, str]]) -> list[JsonObject]:
    """Names and expressions as match conditions, each with a name of its own."""
    made: dict[str, str] = {}
    for name, expression in conditions:
        free, number = name, 2
        while free in made:
            free, number = f"{name}-{number}", number + 1
        made[free] = expression
    return [{"name": name, "expression": expression} for name, expression in made.items()]


def quote(texts: Iterable[str]) -> str:
    """A list of texts as CEL writes it."""
    written = (text.replace("\\", "\\\\").replace("'", "\\'") for text in texts)
    return "[" + ", ".join(f"'{text}'" for text in written) + "]"
