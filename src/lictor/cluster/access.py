"""May someone do something? Asked of the API server's own authorizers."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from lictor.cluster.client import Client
from lictor.cluster.resource import SUBJECT_ACCESS_REVIEW

_MOST_ANSWERS = 4096


class Access(msgspec.Struct, frozen=True):
    """What a SubjectAccessReview asks: may this user do this to that?"""

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
    """Permissions as they are now."""

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
    """The same, but each question is asked once in so many seconds."""
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
    """The groups that the API server gives to every service account."""
    parts = user.split(":")
    if len(parts) != 4 or parts[:2] != ["system", "serviceaccount"]:
        return []
    return [
        "system:serviceaccounts",
        f"system:serviceaccounts:{parts[2]}",
        "system:authenticated",
    ]
