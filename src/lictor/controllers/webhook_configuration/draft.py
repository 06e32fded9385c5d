"""Webhooks without an address, and the configurations that do not depend on policies."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from lictor.controllers.webhook_configuration.match_conditions import Exemptions
from lictor.controllers.webhook_configuration.rules import ALL, make_rule
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject
from lictor.kubernetes.discovery import ServedResource
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.kubernetes.settings import Settings
from lictor.kubernetes.stored_policy import StoredPolicy

# Text of a kind selector -> what it stands for in this cluster
FindKind: TypeAlias = Callable[[str], tuple[ServedResource, ...]]

EQUIVALENT = "Equivalent"
NONE_ON_DRY_RUN = "NoneOnDryRun"
LONGEST_TIMEOUT = 30
_LONGEST_NAME = 253


class WebhookDraft(msgspec.Struct, frozen=True):
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
    # For mutating webhooks: the reinvocation policy.
    reinvocation: str = "Never"
    # Why the API server refuses it: such a webhook is omitted.
    refusal: str = ""


class DraftContext(msgspec.Struct, frozen=True):
    """What all webhooks of an installation have in common."""

    names: Names
    flags: Flags
    settings: Settings
    exemptions: Exemptions
    find: FindKind
    # Why the API server refuses a webhook; nothing where it takes it.
    explain: Callable[[WebhookDraft], str]


class WebhookEndpoint(msgspec.Struct, frozen=True):
    """The address of the webhook server, and the authority of its certificate."""

    ca_bundle: str
    namespace: str
    service: str
    port: int = 443
    # `host:port`, if there is no Service.
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


def render_webhook(draft: WebhookDraft, address: WebhookEndpoint, *, mutating: bool) -> JsonObject:
    """A webhook in the API's form, with all defaults, so that it can be compared."""
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


RESOURCE_VALIDATING = "resource-validating"
RESOURCE_MUTATING = "resource-mutating"
# All configurations that an installation may have: name, and whether it is a mutating one.
CONFIGURATIONS = (
    (RESOURCE_VALIDATING, False),
    (RESOURCE_MUTATING, True),
    ("policy-validating", False),
    ("policy-mutating", True),
    ("verify-mutating", True),
    ("exception-validating", False),
    ("cel-exception-validating", False),
    ("global-context-validating", False),
    ("cleanup-validating", False),
    ("ttl-validating", False),
)

_CHANGES = ("CREATE", "UPDATE")
# The Lease that a heartbeat is written to.
_HEARTBEAT_LABELS = {"app.kubernetes.io/name": "kyverno"}
_TTL_LABEL = "cleanup.kyverno.io/ttl"


class ConfigurationDraft(msgspec.Struct, frozen=True):
    """A webhook configuration without an address; `name` is without prefix."""

    name: str
    mutating: bool
    drafts: tuple[WebhookDraft, ...]


def build_fixed(names: Names, flags: Flags, settings: Settings) -> list[ConfigurationDraft]:
    """The configurations that do not depend on policies: about policies and the like, and TTLs."""
    timeout = clamp_timeout(flags.webhook_timeout)
    listed = [kind for kind in registry().kinds if kind.is_listed and not kind.is_native]
    shared = [kind for kind in listed if kind.path is not None and kind.path.is_shared]
    validate = WebhookDraft(
        names.webhook_entry("validate-policy"),
        "/policyvalidate",
        "Fail",
        _make_rules(listed),
        timeout,
        side_effects="None",
    )
    mutate = WebhookDraft(
        names.webhook_entry("mutate-policy"),
        "/policymutate",
        "Fail",
        _make_rules(shared),
        timeout,
        reinvocation="IfNeeded",
    )
    monitor = WebhookDraft(
        names.webhook_entry("monitor-webhooks"),
        "/verifymutate",
        "Ignore",
        [make_rule("coordination.k8s.io", "v1", ["leases"], ["UPDATE"])],
        timeout,
        object_selector={"matchLabels": _HEARTBEAT_LABELS},
        reinvocation="IfNeeded",
    )
    return [
        ConfigurationDraft("policy-validating", mutating=False, drafts=(validate,)),
        ConfigurationDraft("policy-mutating", mutating=True, drafts=(mutate,)),
        ConfigurationDraft("verify-mutating", mutating=True, drafts=(monitor,)),
        *_build_exceptions(names, timeout, settings),
        *_build_cleanup(names, timeout, settings),
    ]


def _make_rules(kinds: Iterable[PolicyKind]) -> list[JsonObject]:
    """Changes of documents of some kinds, a rule for each group."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.plural)
    return [make_rule(group, ALL, plurals, _CHANGES) for group, plurals in groups.items()]


def _build_cleanup(names: Names, timeout: int, settings: Settings) -> list[ConfigurationDraft]:
    """The configurations about cleanup policies and the TTL label."""
    own = [kind for kind in registry().with_role(Role.DELETION) if not kind.is_listed]
    cleanup = _draft_own(names, "/validate", _make_rules(own), timeout, settings)
    ttl = msgspec.structs.replace(
        _draft_own(names, "/verifyttl", [], timeout, settings),
        rules=[make_rule(ALL, ALL, [ALL], _CHANGES)],
        failure_policy="Ignore",
        object_selector={"matchExpressions": [{"key": _TTL_LABEL, "operator": "Exists"}]},
    )
    return [
        ConfigurationDraft("cleanup-validating", mutating=False, drafts=(cleanup,)),
        ConfigurationDraft("ttl-validating", mutating=False, drafts=(ttl,)),
    ]


def _build_exceptions(
    names: Names, timeout: int, settings: Settings
) -> Iterable[ConfigurationDraft]:
    for name, path, rules in (
        *((name, path, _make_rules([kind])) for kind, name, path in _list_exception_paths()),
        (
            "global-context-validating",
            "/globalcontextvalidate",
            [make_rule("kyverno.io", ALL, ["globalcontextentries"], _CHANGES)],
        ),
    ):
        draft = _draft_own(names, path, rules, timeout, settings)
        yield ConfigurationDraft(name, mutating=False, drafts=(draft,))


def _list_exception_paths() -> Iterator[tuple[PolicyKind, str, str]]:
    """The kinds of exceptions, with the configuration and the path that are about them."""
    for kind in registry().with_role(Role.EXCEPTION):
        if kind.review_path:
            configuration, path = kind.review_path
            yield kind, configuration, path


def _draft_own(
    names: Names, path: str, rules: list[JsonObject], timeout: int, settings: Settings
) -> WebhookDraft:
    return WebhookDraft(
        f"{names.service}.{names.namespace}.svc",
        path,
        "Fail",
        rules,
        timeout,
        conditions=[*settings.match_conditions],
        side_effects="None",
    )
