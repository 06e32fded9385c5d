"""May whoever generates roles and bindings grant what is in them? Nobody gives what it lacks."""

from collections.abc import Iterator
from itertools import product

import msgspec

from lictor.cluster.access import Access, AccessCheck
from lictor.raw import Json, JsonObject
from lictor.serve.opinion import ACCEPTED, Opinion

_GROUP = "rbac.authorization.k8s.io"
_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
_BINDINGS = ("RoleBinding", "ClusterRoleBinding")
# More rights than that are not asked for one by one.
_MOST_ASKED = 64
_MOST_TOLD = 5
_LABEL = 'a ClusterRole with the label rbac.kyverno.io/aggregate-to-background-controller: "true"'


class _Target(msgspec.Struct, frozen=True):
    """A role or binding that a rule makes, and where that stands."""

    kind: str
    namespace: str
    data: JsonObject
    path: str


async def review_escalation(document: JsonObject, account: str, allows: AccessCheck) -> Opinion:
    """What a rule would grant to others, but may not."""
    opinion = ACCEPTED
    for target in _list_targets(document) if account else ():
        if target.kind in _ROLES:
            opinion += await _review_role(target, account, allows)
        else:
            opinion += await _review_binding(target, account, allows)
    return opinion


async def _review_role(target: _Target, account: str, allows: AccessCheck) -> Opinion:
    resource = _ROLES[target.kind]
    place = target.namespace if target.kind == "Role" else ""
    if await allows(Access(account, "escalate", _GROUP, resource, namespace=place)):
        return ACCEPTED
    rights = list(_list_rights(target.data))
    advice = f"grant it the verb escalate on {resource}, by {_LABEL}"
    if not rights or len(rights) > _MOST_ASKED:
        told = f"{target.path}: {account} must hold every right of the {target.kind}: else {advice}"
        return Opinion(warnings=(told,))
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
    return Opinion((told,))


async def _review_binding(target: _Target, account: str, allows: AccessCheck) -> Opinion:
    role = _object(target.data.get("roleRef"))
    kind, name = (str(role.get(key) or "") for key in ("kind", "name"))
    resource = _ROLES.get(kind, "clusterroles")
    plain = "" if "{{" in name else name
    place = target.namespace if target.kind == "RoleBinding" else ""
    if await allows(Access(account, "bind", _GROUP, resource, namespace=place, name=plain)):
        return ACCEPTED
    told = (
        f"{target.path}: {account} must hold every right of the {kind or 'role'} {name} that it "
        f"binds: else grant it the verb bind on {resource}, by {_LABEL}"
    )
    return Opinion(warnings=(told,))


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


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: Json) -> list[JsonObject]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
