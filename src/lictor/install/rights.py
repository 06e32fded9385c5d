"""Who of us may do what: ServiceAccounts, Roles, ClusterRoles and their bindings.

Each controller has a ClusterRole that gathers others by label: our own with what the controller
always needs, and those that an administrator adds for the kinds that policies make, change, delete
or scan (`rbac.kyverno.io/aggregate-to-background-controller: "true"`).
"""

from collections.abc import Iterator

from lictor.core.families.family import Role
from lictor.core.families.registry import registry
from lictor.core.raw import Json, JsonObject
from lictor.install.installation import (
    Installation,
    build_cluster_object,
    build_object,
    choose_values,
    match_labels,
)
from lictor.install.manifest_files import build_rule
from lictor.install.placeholders import (
    ConditionalPart,
    ExtendedList,
    LabelSet,
    OptionalValueAt,
    ValueAt,
)
from lictor.install.values import CONTROLLERS, find_value, name_controller
from lictor.kubernetes.names import Names

_RBAC = "rbac.authorization.k8s.io"
_ROLE = f"{_RBAC}/v1/Role"
_CLUSTER_ROLE = f"{_RBAC}/v1/ClusterRole"
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

# --- rules, one a line: group: resources: verbs. `core` is the group without a name.

_READ = "get list watch"
_WRITE = "create update patch delete"


def _list_plurals(*roles: Role, listed: bool = True) -> dict[str, str]:
    """Kinds of policies and of exceptions, by group; without those that Kubernetes has itself."""
    found: dict[str, list[str]] = {}
    for kind in registry().with_role(*roles):
        if not kind.is_native and (kind.is_listed or not listed):
            found.setdefault(kind.group, []).append(kind.plural)
    return {group: " ".join(plurals) for group, plurals in found.items()}


def _write_rules(kinds: dict[str, str], verbs: str) -> str:
    return "\n".join(f"{group}: {plurals}: {verbs}" for group, plurals in kinds.items())


def _list_served() -> dict[str, str]:
    """Policies that name the server which evaluates them, and those servers."""
    found: dict[str, list[str]] = {}
    for kind in registry().kinds:
        if kind.role is Role.SERVER or (kind.path is not None and kind.path.per_policy):
            found.setdefault(kind.group, []).append(kind.plural)
    return {group: " ".join(plurals) for group, plurals in found.items()}


_POLICIES = _list_plurals(Role.POLICY, Role.DELETION)
_EXCEPTIONS = _list_plurals(Role.EXCEPTION, listed=False)
_ALL_POLICIES = _list_plurals(Role.POLICY, Role.DELETION, listed=False)
_STATUSES = {
    group: " ".join(f"{plural}/status" for plural in plurals.split())
    for group, plurals in _POLICIES.items()
}
_SERVER_STATUSES = {
    group: " ".join(f"{plural}/status" for plural in plurals.split())
    for group, plurals in _list_plurals(Role.SERVER, listed=False).items()
}
# The policies, and what is needed to understand them.
_EVERYONE = f"""
apiextensions.k8s.io: customresourcedefinitions: {_READ}
core: namespaces configmaps: {_READ}
{_write_rules(_POLICIES, _READ)}
{_write_rules(_EXCEPTIONS, _READ)}
{_write_rules(_list_plurals(Role.SERVER, listed=False), _READ)}
kyverno.io: globalcontextentries: {_READ}
events.k8s.io: events: create patch
"""
_OWN = {
    "admission": f"""
admissionregistration.k8s.io: mutatingwebhookconfigurations validatingwebhookconfigurations: \
create {_READ}
admissionregistration.k8s.io: validatingadmissionpolicies validatingadmissionpolicybindings \
mutatingadmissionpolicies mutatingadmissionpolicybindings: {_READ} {_WRITE}
rbac.authorization.k8s.io: rolebindings clusterrolebindings: {_READ}
authorization.k8s.io: subjectaccessreviews: create
{_write_rules(_STATUSES, "get update patch")}
kyverno.io: globalcontextentries/status: get update patch
kyverno.io: cleanuppolicies clustercleanuppolicies: {_READ}
kyverno.io: updaterequests: create {_READ}
reports.kyverno.io: ephemeralreports clusterephemeralreports: create {_READ}
""",
    "background": f"""
kyverno.io: updaterequests updaterequests/status: {_READ} {_WRITE}
kyverno.io: clusterpolicies/status policies/status globalcontextentries/status: get update patch
policies.kyverno.io: generatingpolicies/status namespacedgeneratingpolicies/status \
mutatingpolicies/status namespacedmutatingpolicies/status: get update patch
reports.kyverno.io: ephemeralreports clusterephemeralreports: create {_READ}
""",
    "reports": f"""
admissionregistration.k8s.io: validatingadmissionpolicies validatingadmissionpolicybindings \
mutatingadmissionpolicies mutatingadmissionpolicybindings: {_READ}
kyverno.io: globalcontextentries/status: get update patch
reports.kyverno.io: ephemeralreports clusterephemeralreports: {_READ} {_WRITE}
wgpolicyk8s.io: policyreports clusterpolicyreports: {_READ} {_WRITE}
openreports.io: reports clusterreports: {_READ} {_WRITE}
kyverno.io: admissionreports clusteradmissionreports backgroundscanreports \
clusterbackgroundscanreports: list delete
""",
    "cleanup": f"""
kyverno.io: cleanuppolicies clustercleanuppolicies: {_READ}
kyverno.io: cleanuppolicies/status clustercleanuppolicies/status globalcontextentries/status: \
get update patch
policies.kyverno.io: deletingpolicies/status namespaceddeletingpolicies/status: get update patch
authorization.k8s.io: subjectaccessreviews: create
""",
}
# For policies that name the server which evaluates them: each has a webhook configuration of its
# own name, and all are kept from going before that has gone.
_SERVED_POLICIES = f"""
admissionregistration.k8s.io: mutatingwebhookconfigurations validatingwebhookconfigurations: \
update delete
{_write_rules(_list_served(), "patch")}
{_write_rules(_SERVER_STATUSES, "get patch")}
"""
# In our own namespace, where policy servers run; their names are not known beforehand.
_SERVER_OBJECTS = """
core: secrets: get update
core: configmaps services: get create patch
core: pods: list
apps: deployments: get list create patch
apps: replicasets: list
policy: poddisruptionbudgets: get create patch delete
"""
# For people: what `view` and `admin` of a namespace, or of the cluster, gain. `edit` gains what
# `view` gains: who may change workloads may not change the policies on them.
_PEOPLE = {
    "view:policies": f"""
{_write_rules(_ALL_POLICIES, _READ)}
{_write_rules(_EXCEPTIONS, _READ)}
kyverno.io: globalcontextentries: {_READ}
""",
    "admin:policies": f"""
{_write_rules(_ALL_POLICIES, f"{_READ} {_WRITE}")}
""",
    "view:policyreports": f"""
wgpolicyk8s.io: policyreports clusterpolicyreports: {_READ}
openreports.io: reports clusterreports: {_READ}
""",
    "admin:policyreports": f"""
wgpolicyk8s.io: policyreports clusterpolicyreports: {_READ} delete deletecollection
openreports.io: reports clusterreports: {_READ} delete deletecollection
""",
    "view:reports": f"""
reports.kyverno.io: ephemeralreports clusterephemeralreports: {_READ}
""",
    "admin:reports": f"""
reports.kyverno.io: ephemeralreports clusterephemeralreports: {_READ} delete deletecollection
""",
    "view:updaterequests": f"""
kyverno.io: updaterequests: {_READ}
""",
    "admin:updaterequests": f"""
kyverno.io: updaterequests: {_READ} delete deletecollection
""",
}


def build_rights(installation: Installation) -> list[Json]:
    """All ServiceAccounts, roles and bindings; with placeholders."""
    made: list[Json] = []
    for controller in CONTROLLERS:
        needed: tuple[str, ...] = (f"{name_controller(controller)}.rbac.create",)
        if controller != "admission":
            needed = (*needed, f"{name_controller(controller)}.enabled")
        for part in _build_controller_rights(installation, controller):
            made.append(_add_conditions(part, needed))
    made += [_build_people_role(installation, name) for name in _PEOPLE]
    return made


def _add_conditions(part: Json, conditions: tuple[str, ...]) -> ConditionalPart:
    if isinstance(part, ConditionalPart):
        return ConditionalPart((*conditions, *part.conditions), part.part)
    return ConditionalPart(conditions, part)


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


def _build_controller_rights(installation: Installation, controller: str) -> Iterator[Json]:
    component = f"{controller}-controller"
    role = f"{installation.prefix}:{component}"
    account = f"<<account {controller}>>"
    rights = f"{name_controller(controller)}.rbac"
    alone = () if controller == "admission" else ("!allInOne.enabled",)
    made = _build_account(installation, account, component, rights)
    yield ConditionalPart(alone, made) if alone else made
    yield _build_gathering_role(installation, role, component)
    rules = [*_read_rules(_EVERYONE), *_build_own_rules(installation, controller)]
    more = (f"{rights}.coreClusterRole.extraResources",)
    yield _build_role(installation, f"{role}:core", component, ExtendedList(rules, more))
    extra = f"{rights}.clusterRole.extraResources"
    made = _build_role(installation, f"{role}:additional", component, ValueAt(extra))
    yield ConditionalPart((extra,), made)
    if controller == "admission":
        for part in _build_server_rights(
            installation, f"{role}:policy-servers", account, component
        ):
            yield ConditionalPart((f"{rights}.policyServers",), part)
    yield build_binding(installation, role, "ClusterRole", role, account, component)
    if controller in _VIEWERS:
        view = f"<<value {rights}.viewRoleName>>"
        made = build_binding(installation, f"{role}:view", "ClusterRole", view, account, component)
        yield ConditionalPart((f"{rights}.createViewRoleBinding",), made)
    yield build_object(
        installation, _ROLE, role, component, rules=_build_namespace_rules(installation, controller)
    )
    yield build_binding(installation, role, "Role", role, account, component)


def _build_role(installation: Installation, name: str, component: str, rules: Json) -> JsonObject:
    return build_cluster_object(installation, _CLUSTER_ROLE, name, component, rules=rules)


def _build_server_rights(
    installation: Installation, role: str, account: str, component: str
) -> Iterator[JsonObject]:
    """Separate roles for policies with policy servers and webhooks: without such policies, an
    administrator can delete them.
    """
    yield _build_role(installation, role, component, _read_rules(_SERVED_POLICIES))
    rules = _read_rules(_SERVER_OBJECTS)
    yield build_object(installation, _ROLE, role, component, rules=rules)
    yield build_binding(installation, role, "Role", role, account, component)


def _build_account(
    installation: Installation, name: str, component: str, rights: str
) -> JsonObject:
    account = build_object(installation, "v1/ServiceAccount", name, component)
    account["metadata"]["annotations"] = OptionalValueAt((f"{rights}.serviceAccount.annotations",))
    # The Pods mount the token explicitly.
    return {**account, "automountServiceAccountToken": False}


def _build_gathering_role(installation: Installation, role: str, component: str) -> JsonObject:
    selectors = [
        {"matchLabels": {f"rbac.kyverno.io/aggregate-to-{component}": "true"}},
        {"matchLabels": match_labels(installation, component)},
    ]
    return build_cluster_object(
        installation,
        _CLUSTER_ROLE,
        role,
        component,
        aggregationRule={"clusterRoleSelectors": selectors},
    )


def _build_own_rules(installation: Installation, controller: str) -> list[JsonObject]:
    rules = _read_rules(_OWN[controller])
    names = installation.names
    if controller == "admission":
        webhooks = "mutatingwebhookconfigurations validatingwebhookconfigurations"
        rules.append(
            build_rule(
                "admissionregistration.k8s.io",
                webhooks,
                "update patch delete",
                list_webhook_names(names),
            )
        )
        # To make the Namespace the owner of the role; the API server rejects an update of a role
        # with rights that the client does not have.
        owner = [names.owner_role]
        rules.append(build_rule(_RBAC, "clusterroles", f"{_READ} update patch", owner))
    return rules


def _build_namespace_rules(installation: Installation, controller: str) -> list[Json]:
    names = installation.names
    maps = [names.config_map, names.metrics_config_map]
    pulls = "existingImagePullSecrets"
    rules: list[Json] = [
        build_rule("core", "configmaps", _READ, maps),
        build_rule("coordination.k8s.io", "leases", f"{_READ} {_WRITE}"),
        ConditionalPart(
            (pulls,), {**build_rule("core", "secrets", "get"), "resourceNames": ValueAt(pulls)}
        ),
    ]
    if controller == "admission":
        secrets = ["<<authority>>", "<<serving>>"]
        rules += [
            build_rule("core", "secrets", "create"),
            build_rule("core", "secrets", f"{_READ} update patch delete", secrets),
            # On termination, a Pod checks whether its Deployment is deleted or scaled to zero.
            build_rule("core", "pods", "get"),
            build_rule("apps", "deployments", "get"),
        ]
    return rules


def list_secret_names(installation: Installation) -> list[str]:
    """The Secrets with the certificates of the webhook server."""
    names, values = installation.names, choose_values(installation)
    return [
        find_value(values, "admissionController.caSecretName") or names.authority_secret(),
        find_value(values, "admissionController.tlsSecretName") or names.serving_secret(),
    ]


def build_binding(
    installation: Installation, name: str, kind: str, role: str, account: str, component: str
) -> JsonObject:
    """The binding of a Role or a ClusterRole to a ServiceAccount of the installation."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": installation.namespace}
    build = build_object if kind == "Role" else build_cluster_object
    return build(
        installation,
        f"{_RBAC}/v1/{kind}Binding",
        name,
        component,
        roleRef={"apiGroup": _RBAC, "kind": kind, "name": role},
        subjects=[subject],
    )


def _build_people_role(installation: Installation, name: str) -> JsonObject:
    made = build_cluster_object(
        installation,
        _CLUSTER_ROLE,
        f"{installation.prefix}:rbac:{name}",
        "rbac",
        rules=_read_rules(_PEOPLE[name]),
    )
    role = name.partition(":")[0]
    gains = ConditionalPart((f"rbac.roles.aggregate.{role}",), "true")
    made["metadata"]["labels"] = LabelSet(
        "rbac", {f"rbac.authorization.k8s.io/aggregate-to-{role}": gains}
    )
    return made


def _read_rules(text: str) -> list[JsonObject]:
    lines = [line.split(": ") for line in text.splitlines() if line]
    return [build_rule(group, resources, verbs) for group, resources, verbs in lines]
