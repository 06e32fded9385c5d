"""Webhook configurations that do not follow from policies: they guard policies and ourselves."""

from collections.abc import Iterable

import msgspec

from lictor.cluster.flags import Flags
from lictor.cluster.names import Names
from lictor.cluster.settings import Settings
from lictor.control.webhooks.draft import Draft, clamp_timeout
from lictor.control.webhooks.rules import ALL, make_rule
from lictor.raw import JsonObject

RESOURCE_VALIDATING = "resource-validating"
RESOURCE_MUTATING = "resource-mutating"
# All configurations that an installation may have: name, and whether it is a mutating one.
ADMISSION_CONFIGURATIONS = (
    (RESOURCE_VALIDATING, False),
    (RESOURCE_MUTATING, True),
    ("policy-validating", False),
    ("policy-mutating", True),
    ("verify-mutating", True),
    ("exception-validating", False),
    ("cel-exception-validating", False),
    ("global-context-validating", False),
)
CLEANUP_CONFIGURATIONS = (("cleanup-validating", False), ("ttl-validating", False))

_CHANGES = ("CREATE", "UPDATE")
_CLASSIC_GROUP = "kyverno.io"
_CEL_GROUP = "policies.kyverno.io"
_CEL_KINDS = (
    "validatingpolicies",
    "mutatingpolicies",
    "generatingpolicies",
    "deletingpolicies",
    "imagevalidatingpolicies",
)
# The Lease that a heartbeat is written to.
_HEARTBEAT_LABELS = {"app.kubernetes.io/name": "kyverno"}
_TTL_LABEL = "cleanup.kyverno.io/ttl"


class Configuration(msgspec.Struct, frozen=True):
    """A webhook configuration before it has an address; `name` is without prefix."""

    name: str
    mutating: bool
    drafts: tuple[Draft, ...]


def build_fixed(names: Names, flags: Flags, settings: Settings) -> list[Configuration]:
    """The configurations about policies, exceptions, global context and the heartbeat."""
    timeout = clamp_timeout(flags.webhook_timeout)
    classic = make_rule(_CLASSIC_GROUP, ALL, ["clusterpolicies", "policies"], _CHANGES)
    namespaced = [f"namespaced{kind}" for kind in _CEL_KINDS]
    cel = make_rule(_CEL_GROUP, ALL, [*_CEL_KINDS, *namespaced], _CHANGES)
    validate = Draft(
        names.webhook_entry("validate-policy"),
        "/policyvalidate",
        "Fail",
        [classic, cel],
        timeout,
        side_effects="None",
    )
    mutate = Draft(
        names.webhook_entry("mutate-policy"),
        "/policymutate",
        "Fail",
        [classic],
        timeout,
        reinvocation="IfNeeded",
    )
    monitor = Draft(
        names.webhook_entry("monitor-webhooks"),
        "/verifymutate",
        "Ignore",
        [make_rule("coordination.k8s.io", "v1", ["leases"], ["UPDATE"])],
        timeout,
        object_selector={"matchLabels": _HEARTBEAT_LABELS},
        reinvocation="IfNeeded",
    )
    return [
        Configuration("policy-validating", mutating=False, drafts=(validate,)),
        Configuration("policy-mutating", mutating=True, drafts=(mutate,)),
        Configuration("verify-mutating", mutating=True, drafts=(monitor,)),
        *_build_exceptions(names, timeout, settings),
    ]


def build_cleanup(
    names: Names, flags: Flags, settings: Settings, service: str
) -> list[Configuration]:
    """The configurations about cleanup policies and the TTL label."""
    timeout = clamp_timeout(flags.webhook_timeout)
    policies = make_rule(
        _CLASSIC_GROUP, ALL, ["cleanuppolicies", "clustercleanuppolicies"], _CHANGES
    )
    cleanup = _draft_own(names, service, "/validate", [policies], timeout, settings)
    ttl = msgspec.structs.replace(
        _draft_own(names, service, "/verifyttl", [], timeout, settings),
        rules=[make_rule(ALL, ALL, [ALL], _CHANGES)],
        failure_policy="Ignore",
        object_selector={"matchExpressions": [{"key": _TTL_LABEL, "operator": "Exists"}]},
    )
    return [
        Configuration("cleanup-validating", mutating=False, drafts=(cleanup,)),
        Configuration("ttl-validating", mutating=False, drafts=(ttl,)),
    ]


def _build_exceptions(names: Names, timeout: int, settings: Settings) -> Iterable[Configuration]:
    for name, path, group, resource in (
        ("exception-validating", "/exceptionvalidate", _CLASSIC_GROUP, "policyexceptions"),
        ("cel-exception-validating", "/celexception/validate", _CEL_GROUP, "policyexceptions"),
        (
            "global-context-validating",
            "/globalcontextvalidate",
            _CLASSIC_GROUP,
            "globalcontextentries",
        ),
    ):
        rules = [make_rule(group, ALL, [resource], _CHANGES)]
        draft = _draft_own(names, names.service, path, rules, timeout, settings)
        yield Configuration(name, mutating=False, drafts=(draft,))


def _draft_own(
    names: Names,
    service: str,
    path: str,
    rules: list[JsonObject],
    timeout: int,
    settings: Settings,
) -> Draft:
    return Draft(
        f"{service}.{names.namespace}.svc",
        path,
        "Fail",
        rules,
        timeout,
        conditions=[*settings.match_conditions],
        side_effects="None",
    )
