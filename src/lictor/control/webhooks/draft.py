"""A webhook before it has an address: what it is called for, and which policies it serves."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from lictor.cluster.discovery import ServedResource
from lictor.cluster.flags import Flags
from lictor.cluster.names import Names
from lictor.cluster.settings import Settings
from lictor.cluster.store import StoredPolicy
from lictor.control.webhooks.match_conditions import Guard
from lictor.raw import JsonObject

# Text of a kind selector -> what it stands for in this cluster
FindKind: TypeAlias = Callable[[str], tuple[ServedResource, ...]]

EQUIVALENT = "Equivalent"
NONE_ON_DRY_RUN = "NoneOnDryRun"
LONGEST_TIMEOUT = 30
_LONGEST_NAME = 253


class Draft(msgspec.Struct, frozen=True):
    """One webhook of a configuration; rules, selectors and conditions in the API's form."""

    name: str
    path: str
    failure_policy: str
    rules: list[JsonObject]
    timeout: int
    policies: tuple[StoredPolicy, ...] = ()
    conditions: list[JsonObject] = []
    namespace_selector: JsonObject = {}
    object_selector: JsonObject = {}
    side_effects: str = NONE_ON_DRY_RUN
    match_policy: str = EQUIVALENT
    # Of mutating webhooks: whether the API server asks again after others' changes.
    reinvocation: str = "Never"
    # Why the API server will not have it: such a webhook is left out.
    refusal: str = ""


class Surroundings(msgspec.Struct, frozen=True):
    """What all webhooks of an installation have in common."""

    names: Names
    flags: Flags
    settings: Settings
    guard: Guard
    find: FindKind
    # Why the API server refuses a webhook; nothing where it takes it.
    explain: Callable[[Draft], str]


class Address(msgspec.Struct, frozen=True):
    """Where the API server finds us, and the authority of our certificate."""

    ca_bundle: str
    namespace: str
    service: str
    port: int = 443
    # `host:port`, where we are reached without a Service.
    server: str = ""

    def connect(self, path: str) -> JsonObject:
        """The `clientConfig` for a path."""
        if self.server:
            return {"caBundle": self.ca_bundle, "url": f"https://{self.server}{path}"}
        service = {
            "name": self.service,
            "namespace": self.namespace,
            "path": path,
            "port": self.port,
        }
        return {"caBundle": self.ca_bundle, "service": service}


def render_webhook(draft: Draft, address: Address, *, mutating: bool) -> JsonObject:
    """A webhook in the API's form, with every default written out: so it can be compared."""
    webhook: JsonObject = {
        "name": draft.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": address.connect(draft.path),
        "failurePolicy": draft.failure_policy,
        "matchPolicy": draft.match_policy,
        "namespaceSelector": draft.namespace_selector,
        "objectSelector": draft.object_selector,
        "rules": draft.rules,
        "sideEffects": draft.side_effects,
        "timeoutSeconds": draft.timeout,
    }
    if draft.conditions:
        webhook["matchConditions"] = draft.conditions
    if mutating:
        webhook["reinvocationPolicy"] = draft.reinvocation
    return webhook


def name_webhook(base: str, failure_policy: str, policy: StoredPolicy | None = None) -> str:
    """The name of a webhook; one that serves a single policy is named after it."""
    name = f"{base}-{failure_policy.lower()}"
    if policy is None:
        return name
    full = f"{name}-finegrained-{policy.key.replace('/', '-')}"
    if len(full) <= _LONGEST_NAME:
        return full
    return f"{full[: _LONGEST_NAME - 37].rstrip('.-')}-{policy.uid[:36]}"


def clamp_timeout(seconds: int) -> int:
    """What the API server takes as a timeout."""
    return max(1, min(seconds, LONGEST_TIMEOUT))
