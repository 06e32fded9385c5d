"""May our service accounts do what a policy asks for? Checked when the policy is stored."""

from collections.abc import Iterator
from itertools import product

import msgspec
from msgspec.structs import replace

from lictor.cluster.rbac import Access, AccessCheck
from lictor.kubernetes.resource_names import ResourceNames, ResourceType
from lictor.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.lang.wildcard import has_wildcard
from lictor.raw import Json, JsonObject
from lictor.serve.review_result import ACCEPTED, ReviewResult

_GROUP = "rbac.authorization.k8s.io"
_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
_BINDINGS = ("RoleBinding", "ClusterRoleBinding")
# More rights than that are not asked for one by one.
_MOST_ASKED = 64
_MOST_TOLD = 5
_BACKGROUND_ROLE_LABEL = (
    'a ClusterRole with the label rbac.kyverno.io/aggregate-to-background-controller: "true"'
)


class _Target(msgspec.Struct, frozen=True):
    """A role or binding that a rule makes, and where that stands."""

    kind: str
    namespace: str
    data: JsonObject
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
    role = _object(target.data.get("roleRef"))
    kind, name = (str(role.get(key) or "") for key in ("kind", "name"))
    resource = _ROLES.get(kind, "clusterroles")
    plain = "" if "{{" in name else name
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


def _list_rights(data: JsonObject) -> Iterator[tuple[str, str, str]]:
    """Verb, group and resource of everything that a role grants; nothing where it is not plain."""
    for rule in _objects(data.get("rules")):
        if not rule.get("resourceNames"):
            verbs, groups, resources = (
                _read_texts(rule.get(key)) for key in ("verbs", "apiGroups", "resources")
            )
            yield from product(verbs, groups, resources)


def _read_texts(value: Json) -> list[str]:
    texts = value if isinstance(value, list) else []
    return [text for text in texts if isinstance(text, str) and "{{" not in text]


def _list_targets(document: JsonObject) -> Iterator[_Target]:
    for index, rule in enumerate(_objects(_object(document.get("spec")).get("rules"))):
        generate = _object(rule.get("generate"))
        for body in (generate, *_objects(generate.get("foreach"))):
            kind, namespace = str(body.get("kind") or ""), str(body.get("namespace") or "")
            if kind in _ROLES or kind in _BINDINGS:
                yield _Target(
                    kind,
                    "" if "{{" in namespace else namespace,
                    _object(body.get("data")),
                    f"spec.rules[{index}].generate",
                )


_MAKING = ("get", "create")
_KEEPING = ("get", "create", "update", "delete")
_CHANGING = ("get", "update")
_DELETING = ("delete", "list")
_SCANNING = ("get", "list", "watch")
_LABEL = 'rbac.kyverno.io/aggregate-to-{}-controller: "true"'


class ControllerAccounts(msgspec.Struct, frozen=True):
    """Who does the work; where a name is empty, its permissions are not asked about."""

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
    spec = _object(document.get("spec"))
    if str(document.get("kind")).endswith("CleanupPolicy"):
        yield from _need_for_cleanup(document, accounts)
    for index, rule in enumerate(_objects(spec.get("rules"))):
        path = f"spec.rules[{index}]"
        if accounts.background:
            yield from _need_for_generate(_object(rule.get("generate")), accounts, path)
            yield from _need_for_targets(_object(rule.get("mutate")), accounts, path)
        if accounts.reports:
            yield from _need_for_reports(rule, accounts, path)


def _need_for_generate(
    generate: JsonObject, accounts: ControllerAccounts, path: str
) -> Iterator[RequiredPermission]:
    if not generate:
        return
    verbs = _KEEPING if generate.get("synchronize") is True else _MAKING
    for body in _objects(generate.get("foreach")) or [generate]:
        kinds = _object(body.get("cloneList")).get("kinds") or [_name_kind(body)]
        for kind in kinds if isinstance(kinds, list) else ():
            if isinstance(kind, str) and not _has_variable(kind):
                place = _plain(body.get("namespace"))
                yield RequiredPermission(
                    accounts.background, verbs, kind, f"{path}.generate", place
                )


def _need_for_targets(
    mutate: JsonObject, accounts: ControllerAccounts, path: str
) -> Iterator[RequiredPermission]:
    for index, target in enumerate(_objects(mutate.get("targets"))):
        kind = _name_kind(target)
        if not _has_variable(kind):
            yield RequiredPermission(
                accounts.background,
                _CHANGING,
                kind,
                f"{path}.mutate.targets[{index}]",
                _plain(target.get("namespace")),
                _plain(target.get("name")),
            )


def _need_for_reports(
    rule: JsonObject, accounts: ControllerAccounts, path: str
) -> Iterator[RequiredPermission]:
    for kind in _list_kinds(_object(rule.get("match"))):
        # A subresource is never scanned, and all kinds at once nobody can ask about.
        if not has_wildcard(kind) and not parse_kind_selector(kind).subresource:
            where = f"{path}.match"
            yield RequiredPermission(
                accounts.reports, _SCANNING, kind, where, controller="reports", is_vital=False
            )


def _need_for_cleanup(
    document: JsonObject, accounts: ControllerAccounts
) -> Iterator[RequiredPermission]:
    if not accounts.cleanup:
        return
    namespace = str(_object(document.get("metadata")).get("namespace") or "")
    match = _object(_object(document.get("spec")).get("match"))
    need = RequiredPermission(
        accounts.cleanup, _DELETING, "", "spec.match", namespace, controller="cleanup"
    )
    for kind in dict.fromkeys(_list_kinds(match)):
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


def _list_names(match: JsonObject, kind: str) -> tuple[str, ...]:
    """The only names that objects of a kind can have; empty where they can have others."""
    found: dict[str, None] = {}
    for each in (*_objects(match.get("any")), *_objects(match.get("all")), match):
        resources = _object(each.get("resources"))
        if kind not in (resources.get("kinds") or ()):
            continue
        names = [*(resources.get("names") or ()), *filter(None, [resources.get("name")])]
        texts = [name for name in names if isinstance(name, str)]
        if not texts or any(map(has_wildcard, texts)):
            return ()
        found |= dict.fromkeys(texts)
    return tuple(found)


def _list_kinds(match: JsonObject) -> Iterator[str]:
    filters = [*_objects(match.get("any")), *_objects(match.get("all")), match]
    for each in filters:
        kinds = _object(each.get("resources")).get("kinds")
        yield from (kind for kind in kinds or () if isinstance(kind, str))


def _name_kind(body: JsonObject) -> str:
    version = body.get("apiVersion")
    # The core group has no name, and a version alone would stand for any group.
    prefix = f"{version}/" if isinstance(version, str) and version else ""
    return f"{prefix}{body.get('kind') or ''}"


def _plain(value: Json) -> str:
    """A name that is known now; who may act anywhere may act there."""
    return value if isinstance(value, str) and not _has_variable(value) else ""


def _has_variable(text: str) -> bool:
    return "{{" in text


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: Json) -> list[JsonObject]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
