"""What admission knows of the cluster around a request, whether there is one or not."""

from collections.abc import Mapping
from typing import Protocol

from lictor.model.request import Caller, Request
from lictor.serve.chambers import Policies

_NOBODY: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
_NO_LABELS: Mapping[str, str] = {}


class World(Protocol):
    """Settings, roles, namespaces and policies of now."""

    @property
    def policies(self) -> Policies: ...

    @property
    def is_ready(self) -> bool: ...

    async def wait(self) -> None:
        """Until everything has been read for the first time."""
        ...

    @property
    def needs_roles(self) -> bool:
        """Do settings ask for the roles of callers?"""
        ...

    def is_left_alone(self, request: Request) -> bool: ...

    def roles_of(
        self, caller: Caller, namespace: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]: ...

    async def find_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace; None where there is none of that name."""
        ...


class BareWorld:
    """No cluster: policies from files, nobody has roles, namespaces have no labels."""

    needs_roles = False
    is_ready = True

    def __init__(self, policies: Policies) -> None:
        self.policies = policies

    async def wait(self) -> None:
        """Files have been read."""

    def is_left_alone(self, request: Request) -> bool:  # noqa: ARG002
        return False

    def roles_of(
        self,
        caller: Caller,  # noqa: ARG002
        namespace: str,  # noqa: ARG002
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return _NOBODY

    async def find_labels(self, namespace: str) -> Mapping[str, str]:  # noqa: ARG002
        return _NO_LABELS
