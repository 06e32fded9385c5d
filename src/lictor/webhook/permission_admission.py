"""May lictor's service accounts do what a policy needs? Checked when the policy is stored."""

from collections.abc import Iterator
from itertools import product

import msgspec
from msgspec.structs import replace

from lictor.core.facts.resource_names import ResourceNames, ResourceType
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.model.finding import write_path
from lictor.core.raw import JsonObject
from lictor.kubernetes.rbac import Access, AccessCheck
from lictor.lint.field import Field
from lictor.webhook.kind_admission import list_filters, list_kinds
from lictor.webhook.review_result import ACCEPTED, ReviewResult

_GROUP = "rbac.authorization.k8s.io"
_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
_BINDINGS = ("RoleBinding", "ClusterRoleBinding")
# More rights than that are not checked one by one.
_MOST_ASKED = 64
_MOST_TOLD = 5
_BACKGROUND_ROLE_LABEL = (
    'a ClusterRole with the label rbac.kyverno.io/aggregate-to-background-controller: "true"'
)


class _Target(msgspec.Struct, frozen=True):
    """A role or binding that a rule makes, and where that stands."""

    kind: str
    namespace: str
    data: Field
    path: str


async def review_escalation(
    document: JsonObject, account: str, allows: AccessCheck
) -> ReviewResult:
    """What a rule would grant to others, but may not."""
    result = ACCEPTED
    for target in _list_targets(document) if account else ():
        if target.kind in _ROLES:
            result += await _review_role(target, account, allows)
        else:
            result += await _review_binding(target, account, allows)
    return result


async def _review_role(target: _Target, account: str, allows: AccessCheck) -> ReviewResult:
    resource = _ROLES[target.kind]
    place = target.namespace if target.kind == "Role" else ""
    if await allows(Access(account, "escalate", _GROUP, resource, namespace=place)):
        return ACCEPTED
    rights = list(_list_rights(target.data))
    advice = f"grant it the verb escalate on {resource}, by {_BACKGROUND_ROLE_LABEL}"
    if not rights or len(rights) > _MOST_ASKED:
        told = f"{target.path}: {account} must hold every right of the {target.kind}: else {advice}"
        return ReviewResult(warnings=(told,))
    lacking = [
        f"{verb} {'/'.join(filter(None, (group, name)))}"
        for verb, group, name in rights
        if not await allows(_ask(account, verb, group, name, place))
    ]
    if not lacking:
        return ACCEPTED
    more = f" and {len(lacking) - _MOST_TOLD} more" if len(lacking) > _MOST_TOLD else ""
    told = (
        f"{target.path}: {account} may not make a {target.kind} with rights that it does not hold: "
        f"{', '.join(lacking[:_MOST_TOLD])}{more}; {advice}, or these rights"
    )
    return ReviewResult((told,))


async def _review_binding(target: _Target, account: str, allows: AccessCheck) -> ReviewResult:
    role = target.data["roleRef"]
    kind, name = role["kind"].text, role["name"].text
    resource = _ROLES.get(kind, "clusterroles")
    plain = _read_plain(role["name"])
    place = target.namespace if target.kind == "RoleBinding" else ""
    if await allows(Access(account, "bind", _GROUP, resource, namespace=place, name=plain)):
        return ACCEPTED
    told = (
        f"{target.path}: {account} must hold every right of the {kind or 'role'} {name} that it "
        f"binds: else grant it the verb bind on {resource}, by {_BACKGROUND_ROLE_LABEL}"
    )
    return ReviewResult(warnings=(told,))


def _ask(account: str, verb: str, group: str, name: str, namespace: str) -> Access:
    resource, _, subresource = name.partition("/")
    return Access(account, verb, group, resource, subresource=subresource, namespace=namespace)


def _list_rights(data: Field) -> Iterator[tuple[str, str, str]]:
    """Verb, group and resource of everything that a role grants; nothing where it is not plain."""
    for rule in data["rules"].each():
        if not rule["resourceNames"].value:
            verbs, groups, resources = (
                [text for text in rule[key].texts if "{{" not in text]
                for key in ("verbs", "apiGroups", "resources")
            )
            yield from product(verbs, groups, resources)


def _list_targets(document: JsonObject) -> Iterator[_Target]:
    for rule in Field(document)["spec"]["rules"].each():
        generate = rule["generate"]
        for body in (generate, *generate["foreach"].each()):
            kind = body["kind"].text
            if kind in _ROLES or kind in _BINDINGS:
                namespace = _read_plain(body["namespace"])
                yield _Target(kind, namespace, body["data"], write_path(generate.path))


_MAKING = ("get", "create")
_KEEPING = ("get", "create", "update", "delete")
_CHANGING = ("get", "update")
_DELETING = ("delete", "list")
_SCANNING = ("get", "list", "watch")
_LABEL = 'rbac.kyverno.io/aggregate-to-{}-controller: "true"'


class ControllerAccounts(msgspec.Struct, frozen=True):
    """Who does the work; where a name is empty, its permissions are not checked."""

    background: str = ""
    reports: str = ""
    cleanup: str = ""


class RequiredPermission(msgspec.Struct, frozen=True):
    """Verbs that someone must be allowed for a kind; without them the policy cannot work."""

    user: str
    verbs: tuple[str, ...]
    # `apps/v1/Deployment`, as the author wrote it.
    kind: str
    path: str
    namespace: str = ""
    name: str = ""
    # Of which controller the rights are; administrators add to them by a label.
    controller: str = "background"
    # A report that is missing is worth a warning only.
    is_vital: bool = True

    def tell(self, lacking: list[str]) -> str:
        """What the author must grant."""
        place = f" in namespace {self.namespace}" if self.namespace else ""
        is_named = self.name and self.controller == "cleanup"
        what = f"{self.kind} {self.name}" if is_named else self.kind
        needed = ",".join(lacking)
        return (
            f"{self.path}: auth check fails, additional privileges are required: {self.user} "
            f"requires permissions {needed} for resource {what}{place}; grant them by a "
            f"ClusterRole with the label {_LABEL.format(self.controller)}"
        )


async def review_permissions(
    document: JsonObject, accounts: ControllerAccounts, names: ResourceNames, allows: AccessCheck
) -> ReviewResult:
    """What those who must do the work may not do."""
    result = ACCEPTED
    for need in list_needs(document, accounts):
        lacking = [verb for verb in need.verbs if not await _may(need, verb, names, allows)]
        if lacking:
            told = need.tell(lacking)
            result += ReviewResult((told,)) if need.is_vital else ReviewResult(warnings=(told,))
    return result + await review_escalation(document, accounts.background, allows)


async def _may(
    need: RequiredPermission, verb: str, names: ResourceNames, allows: AccessCheck
) -> bool:
    selector = parse_kind_selector(need.kind)
    found = _find_resource(selector, names)
    return await allows(
        Access(
            need.user,
            verb,
            found.group,
            found.resource,
            subresource=selector.subresource,
            namespace="" if found.namespaced is False else need.namespace,
            name=need.name,
        )
    )


def _find_resource(selector: KindSelector, names: ResourceNames) -> ResourceType:
    for each in names.known:
        if each.kind == selector.kind and selector.group in ("*", each.group):
            return each
    group = "" if selector.group == "*" else selector.group
    return names.of_kind(group, selector.version, selector.kind)


def list_needs(document: JsonObject, accounts: ControllerAccounts) -> Iterator[RequiredPermission]:
    """Everything that a classic policy or a cleanup policy needs to be allowed."""
    policy = Field(document)
    kind = registry().find(policy["apiVersion"].text.rpartition("/")[0], policy["kind"].text)
    is_cleanup = kind is not None and kind.role is Role.DELETION and not kind.is_listed
    if is_cleanup and accounts.cleanup:
        yield from _need_for_cleanup(policy, accounts.cleanup)
    for rule in policy["spec"]["rules"].each():
        if accounts.background:
            yield from _need_for_generate(rule["generate"], accounts.background)
            yield from _need_for_targets(rule["mutate"]["targets"], accounts.background)
        if accounts.reports:
            yield from _need_for_reports(rule["match"], accounts.reports)


def _need_for_generate(generate: Field, account: str) -> Iterator[RequiredPermission]:
    if not generate.value or not generate.is_object:
        return
    verbs = _KEEPING if generate["synchronize"].is_true else _MAKING
    loops = [loop for loop in generate["foreach"].each() if loop.is_object]
    for body in loops or [generate]:
        for kind in body["cloneList"]["kinds"].texts or (_name_kind(body),):
            if "{{" not in kind:
                namespace = _read_plain(body["namespace"])
                path = write_path(generate.path)
                yield RequiredPermission(account, verbs, kind, path, namespace)


def _need_for_targets(targets: Field, account: str) -> Iterator[RequiredPermission]:
    for target in targets.each():
        kind = _name_kind(target)
        if target.is_object and "{{" not in kind:
            names = _read_plain(target["namespace"]), _read_plain(target["name"])
            yield RequiredPermission(account, _CHANGING, kind, write_path(target.path), *names)


def _need_for_reports(match: Field, account: str) -> Iterator[RequiredPermission]:
    path = write_path(match.path)
    for kind in list_kinds(match):
        # A subresource is never scanned, and all kinds at once cannot be checked.
        if not has_wildcard(kind) and not parse_kind_selector(kind).subresource:
            yield RequiredPermission(
                account, _SCANNING, kind, path, controller="reports", is_vital=False
            )


def _need_for_cleanup(policy: Field, account: str) -> Iterator[RequiredPermission]:
    namespace = policy["metadata"]["namespace"].text
    match = policy["spec"]["match"]
    need = RequiredPermission(account, _DELETING, "", "spec.match", namespace, controller="cleanup")
    for kind in dict.fromkeys(list_kinds(match)):
        names = _list_names(match, kind)
        if has_wildcard(kind):
            continue
        if not names:
            yield replace(need, kind=kind)
            continue
        # A role may be for these objects alone; nothing can be listed by its name.
        yield replace(need, kind=kind, verbs=("list",))
        for name in names:
            yield replace(need, kind=kind, verbs=("delete",), name=name)


def _list_names(match: Field, kind: str) -> tuple[str, ...]:
    """The only names that objects of a kind can have; empty where they can have others."""
    found: dict[str, None] = {}
    for resources in list_filters(match):
        if kind not in resources["kinds"].texts:
            continue
        names = (*resources["names"].texts, *filter(None, (resources["name"].text,)))
        if not names or any(map(has_wildcard, names)):
            return ()
        found |= dict.fromkeys(names)
    return tuple(found)


def _name_kind(body: Field) -> str:
    # The core group has no name, and a version alone would stand for any group.
    version = body["apiVersion"].text
    return f"{version}/{body['kind'].text}" if version else body["kind"].text


def _read_plain(field: Field) -> str:
    """A name that is known now; who may act anywhere may act there."""
    return "" if "{{" in field.text else field.text
