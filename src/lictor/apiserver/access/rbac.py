"""Who may do what, by the Roles and bindings that are there; compiled anew when they change."""

from collections.abc import Iterable, Iterator

import msgspec

from lictor.apiserver.access.service_tokens import ACCOUNT_PREFIX
from lictor.apiserver.attributes import ApiUser
from lictor.apiserver.reading import ObjectReader, read_list, read_object, read_text, read_texts
from lictor.raw import Json, JsonObject

GROUP = "rbac.authorization.k8s.io"
_PLURALS = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
_MAX_USERS = 4096


class Question(msgspec.Struct, frozen=True):
    """May this user do that? For a path that is no resource, `path` is set and the rest is not."""

    user: ApiUser
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Rule(msgspec.Struct, frozen=True):
    """One rule of a role."""

    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Json) -> "Rule":
        return cls(
            frozenset(read_texts(rule, "verbs")),
            frozenset(read_texts(rule, "apiGroups")),
            frozenset(read_texts(rule, "resources")),
            frozenset(read_texts(rule, "resourceNames")),
            read_texts(rule, "nonResourceURLs"),
        )

    def allows(self, question: Question) -> bool:
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

    def _has_resource(self, question: Question) -> bool:
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


class Grant(msgspec.Struct, frozen=True):
    """The rules of a role, as a binding gives them to someone."""

    # Empty: everywhere, and for what is in no namespace.
    namespace: str
    rules: tuple[Rule, ...]
    # Such as `ClusterRoleBinding "x" of ClusterRole "y" to Group "z"`.
    story: str
    # Why there are no rules, where the role is not there.
    problem: str = ""


class Rbac:
    """The bindings of the moment, by whom they are for."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader
        self._by_subject: dict[str, list[Grant]] | None = None
        self._by_user: dict[tuple[str, tuple[str, ...]], tuple[Grant, ...]] = {}
        for plural in _PLURALS:
            reader.on_change(GROUP, plural, self._forget)

    def grants_of(self, user: ApiUser) -> tuple[Grant, ...]:
        """Everything that bindings give to a user and their groups."""
        key = (user.name, user.groups)
        found = self._by_user.get(key)
        if found is None:
            if len(self._by_user) >= _MAX_USERS:
                self._by_user.clear()
            found = self._by_user[key] = tuple(self._collect(user))
        return found

    def decide(self, question: Question) -> tuple[bool, str]:
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

    def _collect(self, user: ApiUser) -> Iterator[Grant]:
        if self._by_subject is None:
            self._by_subject = self._index()
        yield from self._by_subject.get(f"User {user.name}", ())
        for group in user.groups:
            yield from self._by_subject.get(f"Group {group}", ())

    def _index(self) -> dict[str, list[Grant]]:
        found: dict[str, list[Grant]] = {}
        rules: dict[tuple[str, str, str], tuple[Rule, ...] | None] = {}
        for binding in self._list_bindings():
            for key, grant in self._read_binding(binding, rules):
                found.setdefault(key, []).append(grant)
        return found

    def _list_bindings(self) -> Iterable[JsonObject]:
        # Cluster-wide ones first: the API server's reasons name those first.
        yield from self._reader.list(GROUP, "clusterrolebindings")
        yield from self._reader.list(GROUP, "rolebindings")

    def _read_binding(
        self, binding: JsonObject, known: dict[tuple[str, str, str], tuple[Rule, ...] | None]
    ) -> Iterator[tuple[str, Grant]]:
        metadata, ref = read_object(binding, "metadata"), read_object(binding, "roleRef")
        namespace = read_text(metadata, "namespace")
        kind, role = read_text(ref, "kind"), read_text(ref, "name")
        place = (kind, namespace if kind == "Role" else "", role)
        if place not in known:
            known[place] = self._find_rules(*place)
        rules = known[place]
        problem = "" if rules is not None else f'{kind.lower()}.{GROUP} "{role}" not found'
        name = read_text(metadata, "name")
        told = f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'
        for subject in read_list(binding, "subjects"):
            key, whom = _read_subject(subject, namespace)
            story = f'{told} of {kind} "{role}" to {whom}'
            yield key, Grant(namespace, rules or (), story, problem)

    def _find_rules(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        role = self._reader.get(GROUP, f"{kind.lower()}s", namespace, name)
        return None if role is None else tuple(Rule.of(rule) for rule in read_list(role, "rules"))


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
