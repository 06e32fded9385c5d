"""Who of us may do what: ServiceAccounts, Roles, ClusterRoles and their bindings."""

import json
from functools import cache

from lictor.core.raw import Json, JsonObject
from lictor.install.installation import TEMPLATE, Installation, choose_values
from lictor.install.manifest_files import load_manifests, read_rules
from lictor.install.placeholders import ConditionalPart, LabelSet
from lictor.install.values import CONTROLLERS, find_value, name_controller
from lictor.kubernetes.names import Names

_WEBHOOKS = (
    "policy-validating",
    "resource-validating",
    "exception-validating",
    "cel-exception-validating",
    "global-context-validating",
    "cleanup-validating",
    "ttl-validating",
    "policy-mutating",
    "resource-mutating",
    "verify-mutating",
)
# Controllers that read the data of policies: everything that `view` covers, and so no Secrets.
_VIEWERS = ("admission", "background", "reports")
# Groups of objects in rights.yaml that not every controller has.
_ONLY_FOR = {"policy-servers": ("admission",), "view": _VIEWERS}


def build_rights() -> list[Json]:
    """All ServiceAccounts, roles and bindings; with placeholders."""
    made: list[Json] = []
    for controller in CONTROLLERS:
        needed: tuple[str, ...] = (f"{name_controller(controller)}.rbac.create",)
        if controller != "admission":
            needed = (*needed, f"{name_controller(controller)}.enabled")
        for name, parts in _load_controller_rights(controller).items():
            if controller in _ONLY_FOR.get(name, CONTROLLERS):
                made += [_add_conditions(part, needed) for part in parts]
    return [*made, *(_build_user_role(name) for name in _load_rules() if ":" in name)]


def _load_controller_rights(controller: str) -> JsonObject:
    rules = _load_rules()
    alone = [] if controller == "admission" else ["!allInOne.enabled"]
    words = {
        "ACCOUNT_CONDITIONS": json.dumps(alone),
        "CLUSTER_RULES": json.dumps(rules["everyone"] + rules[controller]),
        "NAMESPACE_RULES": json.dumps(rules.get(f"{controller}-namespace", "")),
        "VALUES": name_controller(controller),
        "CONTROLLER": controller,
    }
    found: JsonObject = load_manifests("rights.yaml", words)
    return found


@cache
def _load_rules() -> dict[str, str]:
    webhooks = " ".join(list_webhook_names(TEMPLATE.names))
    found: dict[str, str] = load_manifests("rules.yaml", {"WEBHOOK_NAMES": webhooks})
    return found


def _add_conditions(part: Json, conditions: tuple[str, ...]) -> ConditionalPart:
    if isinstance(part, ConditionalPart):
        return ConditionalPart((*conditions, *part.conditions), part.part)
    return ConditionalPart(conditions, part)


def _build_user_role(name: str) -> JsonObject:
    role = name.partition(":")[0]
    gains = ConditionalPart((f"rbac.roles.aggregate.{role}",), "true")
    labels = LabelSet("rbac", {f"rbac.authorization.k8s.io/aggregate-to-{role}": gains})
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{TEMPLATE.prefix}:rbac:{name}", "labels": labels},
        "rules": read_rules([_load_rules()[name]]),
    }


def choose_account(installation: Installation, controller: str) -> str:
    """The ServiceAccount that a controller runs as; in one Deployment there is only one."""
    return name_account(choose_values(installation), installation.names, controller)


def name_account(values: JsonObject, names: Names, controller: str) -> str:
    """The same, where the values are known."""
    if find_value(values, "allInOne.enabled"):
        controller = "admission"
    named = find_value(values, f"{name_controller(controller)}.rbac.serviceAccount.name")
    return named or names.controller(controller)


def name_user(installation: Installation, controller: str) -> str:
    """A controller as the API server knows it."""
    account = choose_account(installation, controller)
    return f"system:serviceaccount:{installation.namespace}:{account}"


def list_webhook_names(names: Names) -> list[str]:
    """The webhook configurations that we may change; no others."""
    return [names.webhook(name) for name in _WEBHOOKS]


def list_secret_names(installation: Installation) -> list[str]:
    """The Secrets with the certificates of the webhook server."""
    names, values = installation.names, choose_values(installation)
    return [
        find_value(values, "admissionController.caSecretName") or names.authority_secret(),
        find_value(values, "admissionController.tlsSecretName") or names.serving_secret(),
    ]
