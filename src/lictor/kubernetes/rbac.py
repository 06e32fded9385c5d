"""RBAC: the roles bound to a caller, and permission checks by the API server."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import msgspec

from lictor.core.model.request import Caller
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import CLUSTER_ROLE_BINDING, ROLE_BINDING, SUBJECT_ACCESS_REVIEW

_MOST_ANSWERS = 4096


class Access(msgspec.Struct, frozen=True):
    """The question of a SubjectAccessReview: may this user do this?"""

    user: str
    verb: str
    group: str
    resource: str
    version: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


AccessCheck: TypeAlias = Callable[[Access], Awaitable[bool]]


def ask_api_server(client: Client) -> AccessCheck:
    """Current permissions."""

    async def allows(access: Access) -> bool:
        attributes = {
            "verb": access.verb,
            "group": access.group,
            "version": access.version,
            "resource": access.resource,
            "subresource": access.subresource,
            "namespace": access.namespace,
            "name": access.name,
        }
        body = {
            "apiVersion": SUBJECT_ACCESS_REVIEW.api_version,
            "kind": SUBJECT_ACCESS_REVIEW.kind,
            "spec": {
                "user": access.user,
                "groups": _list_groups(access.user),
                "resourceAttributes": {key: value for key, value in attributes.items() if value},
            },
        }
        answer = await client.create(SUBJECT_ACCESS_REVIEW, body)
        return bool((answer.get("status") or {}).get("allowed"))

    return allows


def remember_answers(
    allows: AccessCheck, seconds: float, clock: Callable[[], float] = time.monotonic
) -> AccessCheck:
    """The same, cached for some seconds."""
    known: dict[Access, tuple[float, bool]] = {}

    async def answer(access: Access) -> bool:
        found = known.get(access)
        if found is not None and clock() - found[0] < seconds:
            return found[1]
        if len(known) >= _MOST_ANSWERS:
            known.clear()
        answered = await allows(access)
        known[access] = (clock(), answered)
        return answered

    return answer


def _list_groups(user: str) -> list[str]:
    """The groups that the API server assigns to every service account."""
    parts = user.split(":")
    if len(parts) != 4 or parts[:2] != ["system", "serviceaccount"]:
        return []
    return [
        "system:serviceaccounts",
        f"system:serviceaccounts:{parts[2]}",
        "system:authenticated",
    ]


Roles: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
_Key: TypeAlias = tuple[str, str]

_MAX_ANSWERS = 4096


class _Grant(msgspec.Struct, frozen=True):
    """What one binding grants: a Role of its namespace, or a ClusterRole."""

    role: str
    is_cluster_role: bool
    # Where a ClusterRole applies; empty: everywhere.
    namespace: str


class RoleCache:
    """Bindings by the names of their subjects. `run` watches them until cancelled."""

    def __init__(self, client: Client) -> None:
        self._caches = (
            Cache(client, ROLE_BINDING, keep=_trim),
            Cache(client, CLUSTER_ROLE_BINDING, keep=_trim),
        )
        self._users: dict[str, dict[_Key, _Grant]] = {}
        self._groups: dict[str, dict[_Key, _Grant]] = {}
        self._answers: dict[tuple[str, tuple[str, ...], str], Roles] = {}
        for cache in self._caches:
            cache.listen(self._take)

    async def run(self) -> None:
        """Follow the bindings. Ends only when cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches:
                tasks.create_task(cache.run())

    async def wait(self) -> None:
        """Wait for the first complete lists."""
        for cache in self._caches:
            await cache.wait()

    def roles_of(self, caller: Caller, namespace: str = "") -> Roles:
        """Roles (`namespace:name`) and cluster roles of a caller, for a request in a namespace.

        A ClusterRole of a RoleBinding applies in the binding's namespace only.
        """
        key = (caller.username, caller.groups, namespace)
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.clear()
            answer = self._answers[key] = self._find(caller, namespace)
        return answer

    def _find(self, caller: Caller, namespace: str) -> Roles:
        roles: set[str] = set()
        cluster_roles: set[str] = set()
        for grant in self._list_grants(caller):
            if not grant.is_cluster_role:
                roles.add(grant.role)
            elif not grant.namespace or grant.namespace == namespace:
                cluster_roles.add(grant.role)
        return tuple(sorted(roles)), tuple(sorted(cluster_roles))

    def _list_grants(self, caller: Caller) -> Iterator[_Grant]:
        yield from self._users.get(caller.username, {}).values()
        for group in caller.groups:
            yield from self._groups.get(group, {}).values()

    def _take(self, change: Change) -> None:
        self._answers.clear()
        for binding in (change.before, change.object):
            if binding is not None:
                self._remove(binding)
        if change.type is not ChangeType.DELETED:
            self._add(change.object)

    def _add(self, binding: JsonObject) -> None:
        grant = _read_grant(binding)
        if grant is None:
            return
        key = _key_of(binding)
        for is_group, name in _list_subjects(binding):
            grants_by_name = self._groups if is_group else self._users
            grants_by_name.setdefault(name, {})[key] = grant

    def _remove(self, binding: JsonObject) -> None:
        key = _key_of(binding)
        for is_group, name in _list_subjects(binding):
            grants_by_name = self._groups if is_group else self._users
            grants = grants_by_name.get(name)
            if grants is not None:
                grants.pop(key, None)
                if not grants:
                    del grants_by_name[name]


def _trim(binding: JsonObject) -> JsonObject:
    metadata = binding["metadata"]
    kept = {name: metadata.get(name) for name in ("name", "namespace", "resourceVersion", "uid")}
    return {
        "metadata": kept,
        "roleRef": binding.get("roleRef"),
        "subjects": binding.get("subjects"),
    }


def _key_of(binding: JsonObject) -> _Key:
    metadata = binding["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _read_grant(binding: JsonObject) -> _Grant | None:
    reference = binding.get("roleRef") or {}
    namespace = binding["metadata"].get("namespace") or ""
    name = str(reference.get("name") or "")
    match reference.get("kind"):
        case "ClusterRole":
            return _Grant(name, is_cluster_role=True, namespace=namespace)
        case "Role" if namespace:
            return _Grant(f"{namespace}:{name}", is_cluster_role=False, namespace=namespace)
        case _:
            return None


def _list_subjects(binding: JsonObject) -> Iterator[tuple[bool, str]]:
    """Whether each subject is a group, and its name."""
    for subject in binding.get("subjects") or ():
        name = str(subject.get("name") or "")
        match subject.get("kind"):
            case "Group":
                yield True, name
            case "User":
                yield False, name
            case "ServiceAccount":
                namespace = subject.get("namespace") or binding["metadata"].get("namespace")
                if namespace:
                    yield False, f"system:serviceaccount:{namespace}:{name}"
