"""Prevents users from granting rights that they lack, by roles, bindings or certificates."""

from collections.abc import Iterable, Iterator

import msgspec
import orjson

from lictor.addons.apiserver.access.authorization import (
    GROUP,
    MASTERS,
    AccessQuestion,
    Authorization,
    RbacRule,
)
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.request import RequestAttributes
from lictor.addons.apiserver.status_errors import forbid, not_found
from lictor.core.model.request import Operation
from lictor.core.raw import Json, JsonObject

_ROLES = frozenset(("roles", "clusterroles"))
_BINDINGS = frozenset(("rolebindings", "clusterrolebindings"))
_REQUESTS = "certificatesigningrequests"
_SIGNER_VERBS = {"approval": "approve", "status": "sign"}
_EVERYTHING = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
# What the garbage collector must be able to change without having any rights itself.
_UPKEEP = ("finalizers", "ownerReferences", "managedFields", "resourceVersion")


class Permission(msgspec.Struct, frozen=True):
    """The smallest right that a rule gives; without a resource it is one on a path."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    path: str = ""


class Escalation:
    """Compares what is handed out with what the giver has."""

    def __init__(self, reader: ObjectReader, authorization: Authorization) -> None:
        self._reader = reader
        self._authorization = authorization

    def check(
        self, attributes: RequestAttributes, document: JsonObject | None, old: JsonObject | None
    ) -> None:
        """Raise RefusedRequestError where someone gives more than they have."""
        kind, user = attributes.kind, attributes.user
        if kind.plural == _REQUESTS and attributes.subresource in _SIGNER_VERBS:
            self._check_signer(attributes, document, old)
        if kind.group != GROUP or MASTERS in user.groups or document is None:
            return
        if attributes.operation is Operation.DELETE or (old and _is_upkeep(document, old)):
            return
        if kind.plural in _ROLES:
            self._check_role(attributes, document, old)
        elif kind.plural in _BINDINGS:
            self._check_binding(attributes, document)

    def _check_role(
        self, attributes: RequestAttributes, document: JsonObject, old: JsonObject | None
    ) -> None:
        if self._may(attributes, "escalate", attributes.kind.plural, attributes.name):
            return
        self._confirm(attributes, document, read_list(document, "rules"))
        if (_aggregates(document) or _aggregates(old)) and self._list_missing(
            attributes, _EVERYTHING
        ):
            detail = "must have cluster-admin privileges to use the aggregationRule"
            raise forbid(GROUP, attributes.kind.plural, _name(document), detail)

    def _check_binding(self, attributes: RequestAttributes, document: JsonObject) -> None:
        ref = read_object(document, "roleRef")
        plural, name = f"{read_text(ref, 'kind').lower()}s", read_text(ref, "name")
        if self._may(attributes, "bind", plural, name):
            return
        home = attributes.namespace if plural == "roles" else ""
        role = self._reader.get(GROUP, plural, home, name)
        if role is None:
            raise not_found(attributes.kind, name)
        self._confirm(attributes, document, read_list(role, "rules"))

    def _check_signer(
        self, attributes: RequestAttributes, document: JsonObject | None, old: JsonObject | None
    ) -> None:
        """Who approves a request for a certificate, or signs it, may do so for its signer."""
        verb = _SIGNER_VERBS[attributes.subresource]
        if verb == "sign" and read_object(document, "status") == read_object(old, "status"):
            return
        signer = read_text(read_object(old, "spec"), "signerName")
        group = attributes.kind.group
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            if self._may(attributes, verb, "signers", name, group):
                return
        detail = f"user not permitted to {verb} requests with signerName {_quote(signer)}"
        raise forbid(group, attributes.kind.plural, attributes.name, detail)

    def _may(
        self, attributes: RequestAttributes, verb: str, plural: str, name: str, group: str = GROUP
    ) -> bool:
        question = AccessQuestion(
            attributes.user, verb, group, plural, namespace=attributes.namespace, name=name
        )
        return self._authorization.decide(question)[0]

    def _confirm(
        self, attributes: RequestAttributes, document: JsonObject, rules: Iterable[Json]
    ) -> None:
        missing = self._list_missing(attributes, rules)
        if not missing:
            return
        user = attributes.user
        detail = "\n".join(sorted(_describe(missing)))
        raise forbid(
            GROUP,
            attributes.kind.plural,
            _name(document),
            f"user {_quote(user.name)} (groups={_quote_all(user.groups)}) is attempting to grant "
            f"RBAC permissions not currently held:\n{detail}",
        )

    def _list_missing(
        self, attributes: RequestAttributes, rules: Iterable[Json]
    ) -> list[Permission]:
        user = attributes.user
        owned = [
            rule
            for grant in self._authorization.rbac.grants_of(user)
            if grant.namespace in ("", attributes.namespace)
            for rule in grant.rules
        ]
        parts = (part for rule in rules for part in _break_down(rule))
        return [part for part in parts if not _is_covered(attributes, part, owned)]


def _is_covered(attributes: RequestAttributes, part: Permission, owned: Iterable[RbacRule]) -> bool:
    resource, _, subresource = part.resource.partition("/")
    question = AccessQuestion(
        attributes.user,
        part.verb,
        part.group,
        resource,
        subresource,
        name=part.name,
        path=part.path,
    )
    return any(rule.allows(question) for rule in owned)


def _break_down(rule: Json) -> Iterator[Permission]:
    verbs = read_list(rule, "verbs")
    names = read_list(rule, "resourceNames") or [""]
    for group in read_list(rule, "apiGroups"):
        for resource in read_list(rule, "resources"):
            for verb in verbs:
                yield from (Permission(verb, group, resource, name) for name in names)
    for path in read_list(rule, "nonResourceURLs"):
        yield from (Permission(verb, path=path) for verb in verbs)


def _describe(parts: Iterable[Permission]) -> Iterator[str]:
    """One line for each resource and name, with all verbs; one for each right on a path."""
    verbs: dict[Permission, list[str]] = {}
    for part in parts:
        if part.path:
            paths = f"NonResourceURLs:{_quote_all([part.path])}"
            yield f"{{{paths}, Verbs:{_quote_all([part.verb])}}}"
        else:
            place = Permission("", part.group, part.resource, part.name)
            verbs.setdefault(place, []).append(part.verb)
    for place, listed in verbs.items():
        detail = [
            f"APIGroups:{_quote_all([place.group])}",
            f"Resources:{_quote_all([place.resource])}",
        ]
        if place.name:
            detail.append(f"ResourceNames:{_quote_all([place.name])}")
        yield f"{{{', '.join(detail)}, Verbs:{_quote_all(listed)}}}"


def _is_upkeep(document: JsonObject, old: JsonObject) -> bool:
    return _without_upkeep(document) == _without_upkeep(old)


def _without_upkeep(document: JsonObject) -> JsonObject:
    metadata = read_object(document, "metadata")
    kept = {field: value for field, value in metadata.items() if field not in _UPKEEP}
    return {**document, "metadata": kept}


def _aggregates(role: JsonObject | None) -> bool:
    return bool(read_list(read_object(role, "aggregationRule"), "clusterRoleSelectors"))


def _name(document: JsonObject) -> str:
    return read_text(read_object(document, "metadata"), "name")


def _quote(text: str) -> str:
    return orjson.dumps(text).decode()


def _quote_all(texts: Iterable[str]) -> str:
    """A list as Go shows it."""
    return f"[{' '.join(map(_quote, texts))}]"
