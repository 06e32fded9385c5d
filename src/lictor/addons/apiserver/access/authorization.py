"""May this user do that? With a Status in Kubernetes' words where they may not."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

import msgspec

from lictor.addons.apiserver.json_fields import read_list, read_object, read_text, read_texts
from lictor.addons.apiserver.kind import Catalogue, ObjectReader, ObjectSource
from lictor.addons.apiserver.request import ApiUser, RequestAttributes
from lictor.addons.apiserver.service_account_tokens import ACCOUNT_PREFIX
from lictor.addons.apiserver.status_errors import forbid
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject

GROUP = "rbac.authorization.k8s.io"
_PLURALS = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
_MAX_USERS = 4096


class AccessQuestion(msgspec.Struct, frozen=True):
    """May this user do that? For a path that is no resource, `path` is set and the rest is not."""

    user: ApiUser
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class RbacRule(msgspec.Struct, frozen=True):
    """One rule of a role."""

    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Json) -> "RbacRule":
        return cls(
            frozenset(read_texts(rule, "verbs")),
            frozenset(read_texts(rule, "apiGroups")),
            frozenset(read_texts(rule, "resources")),
            frozenset(read_texts(rule, "resourceNames")),
            read_texts(rule, "nonResourceURLs"),
        )

    def allows(self, question: AccessQuestion) -> bool:
        verbs = self.verbs
        if question.verb not in verbs and "*" not in verbs:
            return False
        if question.path:
            return any(_fits_path(path, question.path) for path in self.paths)
        return (
            (question.group in self.groups or "*" in self.groups)
            and self._has_resource(question)
            and (not self.names or question.name in self.names)
        )

    def _has_resource(self, question: AccessQuestion) -> bool:
        resources = self.resources
        if "*" in resources:
            return True
        if not question.subresource:
            return question.resource in resources
        whole = f"{question.resource}/{question.subresource}"
        return whole in resources or f"*/{question.subresource}" in resources


def _fits_path(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern.rstrip("*"))
    return pattern == path


class RoleGrant(msgspec.Struct, frozen=True):
    """The rules of a role, as a binding gives them to someone."""

    # Empty: everywhere, and for what is in no namespace.
    namespace: str
    rules: tuple[RbacRule, ...]
    # Such as `ClusterRoleBinding "x" of ClusterRole "y" to Group "z"`.
    story: str
    # Why there are no rules, where the role is not there.
    problem: str = ""


class Rbac:
    """The bindings of the moment, by whom they are for."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader
        self._by_subject: dict[str, list[RoleGrant]] | None = None
        self._by_user: dict[tuple[str, tuple[str, ...]], tuple[RoleGrant, ...]] = {}
        for plural in _PLURALS:
            reader.on_change(GROUP, plural, self._forget)

    def grants_of(self, user: ApiUser) -> tuple[RoleGrant, ...]:
        """Everything that bindings give to a user and their groups."""
        key = (user.name, user.groups)
        found = self._by_user.get(key)
        if found is None:
            if len(self._by_user) >= _MAX_USERS:
                self._by_user.clear()
            found = self._by_user[key] = tuple(self._collect(user))
        return found

    def decide(self, question: AccessQuestion) -> tuple[bool, str]:
        """Whether it is allowed, and by what; or what kept us from finding out."""
        problems = []
        for grant in self.grants_of(question.user):
            if grant.namespace and grant.namespace != question.namespace:
                continue
            if grant.problem:
                problems.append(grant.problem)
            elif any(rule.allows(question) for rule in grant.rules):
                return True, f"RBAC: allowed by {grant.story}"
        return False, _join(problems)

    def _forget(self) -> None:
        self._by_subject = None
        self._by_user.clear()

    def _collect(self, user: ApiUser) -> Iterator[RoleGrant]:
        if self._by_subject is None:
            self._by_subject = self._index()
        yield from self._by_subject.get(f"User {user.name}", ())
        for group in user.groups:
            yield from self._by_subject.get(f"Group {group}", ())

    def _index(self) -> dict[str, list[RoleGrant]]:
        found: dict[str, list[RoleGrant]] = {}
        rules: dict[tuple[str, str, str], tuple[RbacRule, ...] | None] = {}
        for binding in self._list_bindings():
            for key, grant in self._read_binding(binding, rules):
                found.setdefault(key, []).append(grant)
        return found

    def _list_bindings(self) -> Iterable[JsonObject]:
        # Cluster-wide ones first: the API server's reasons name those first.
        yield from self._reader.list(GROUP, "clusterrolebindings")
        yield from self._reader.list(GROUP, "rolebindings")

    def _read_binding(
        self, binding: JsonObject, known: dict[tuple[str, str, str], tuple[RbacRule, ...] | None]
    ) -> Iterator[tuple[str, RoleGrant]]:
        metadata, ref = read_object(binding, "metadata"), read_object(binding, "roleRef")
        namespace = read_text(metadata, "namespace")
        kind, role = read_text(ref, "kind"), read_text(ref, "name")
        place = (kind, namespace if kind == "Role" else "", role)
        if place not in known:
            known[place] = self._find_rules(*place)
        rules = known[place]
        problem = "" if rules is not None else f'{kind.lower()}.{GROUP} "{role}" not found'
        name = read_text(metadata, "name")
        detail = (
            f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'
        )
        for subject in read_list(binding, "subjects"):
            key, whom = _read_subject(subject, namespace)
            story = f'{detail} of {kind} "{role}" to {whom}'
            yield key, RoleGrant(namespace, rules or (), story, problem)

    def _find_rules(self, kind: str, namespace: str, name: str) -> tuple[RbacRule, ...] | None:
        role = self._reader.get(GROUP, f"{kind.lower()}s", namespace, name)
        return (
            None if role is None else tuple(RbacRule.of(rule) for rule in read_list(role, "rules"))
        )


def _read_subject(subject: Json, namespace: str) -> tuple[str, str]:
    """How a subject is indexed, and how reasons name it."""
    kind, name = read_text(subject, "kind"), read_text(subject, "name")
    if kind != "ServiceAccount":
        return f"{kind} {name}", f'{kind} "{name}"'
    # The account of a RoleBinding may leave its namespace out: then it is the binding's.
    home = read_text(subject, "namespace") or namespace
    return f"User {ACCOUNT_PREFIX}{home}:{name}", f'ServiceAccount "{name}/{home}"'


def _join(problems: list[str]) -> str:
    if not problems:
        return ""
    return f"RBAC: {problems[0] if len(problems) == 1 else '[' + ', '.join(problems) + ']'}"


MASTERS = "system:masters"


class Authorization:
    """RBAC, and the one group that needs none."""

    def __init__(self, objects: ObjectSource, catalogue: Catalogue) -> None:
        self.rbac = Rbac(ObjectReader(objects, catalogue))

    def check(self, attributes: RequestAttributes) -> None:
        """Raise RefusedRequestError 403 where the request is not allowed."""
        if MASTERS in attributes.user.groups:
            return
        kind = attributes.kind
        self.require(
            AccessQuestion(
                attributes.user,
                attributes.verb,
                kind.group,
                kind.plural,
                attributes.subresource,
                attributes.namespace,
                attributes.name,
            )
        )

    def check_path(self, user: ApiUser, verb: str, path: str) -> None:
        """The same for a path that leads to no resource; `verb` is the method in lower case."""
        if MASTERS not in user.groups:
            self.require(AccessQuestion(user, verb, path=path))

    def require(self, question: AccessQuestion) -> None:
        """The same for any question."""
        allowed, reason = self.decide(question)
        if not allowed:
            _refuse(question, reason)

    def decide(self, question: AccessQuestion) -> tuple[bool, str]:
        """Whether it is allowed, and the reason, if there is one."""
        if MASTERS in question.user.groups:
            return True, ""
        return self.rbac.decide(question)


def _refuse(question: AccessQuestion, reason: str) -> NoReturn:
    detail = _escape(_describe(question)) + (f": {reason}" if reason else "")
    if question.path:
        raise RefusedRequestError(f"forbidden: {detail}", code=403, reason="Forbidden", details={})
    raise forbid(question.group, question.resource, question.name, detail)


def _describe(question: AccessQuestion) -> str:
    who = f'User "{question.user.name}" cannot {question.verb}'
    if question.path:
        return f'{who} path "{question.path}"'
    resource = question.resource
    if question.subresource:
        resource = f"{resource}/{question.subresource}"
    where = f'in the namespace "{question.namespace}"' if question.namespace else ""
    return (
        f'{who} resource "{resource}" in API group "{question.group}" '
        f"{where or 'at the cluster scope'}"
    )


def _escape(text: str) -> str:
    """No message may look like HTML to a browser."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def read_question(spec: JsonObject, user: ApiUser | None = None) -> AccessQuestion:
    """The question of an access review; `user` is the caller of a self review."""
    who = user or ApiUser(
        read_text(spec, "user"),
        read_texts(spec, "groups"),
        read_text(spec, "uid"),
        _read_extra(read_object(spec, "extra")),
    )
    path = read_object(spec, "nonResourceAttributes")
    if path:
        return AccessQuestion(who, read_text(path, "verb"), path=read_text(path, "path"))
    asked = read_object(spec, "resourceAttributes")
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return AccessQuestion(who, **{field: read_text(asked, field) for field in fields})


def _read_extra(extra: JsonObject) -> Mapping[str, tuple[str, ...]]:
    return {name: read_texts(extra, name) for name in extra}
