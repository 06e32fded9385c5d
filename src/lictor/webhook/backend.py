"""What the webhook knows of its cluster: the Protocol that admission uses; and without one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from lictor.core.model.request import Caller, Request
from lictor.webhook.guarded_lookups import GuardedLookups
from lictor.webhook.metrics_settings import MetricsSettings
from lictor.webhook.policy_sets import PolicyProvider
from lictor.webhook.policy_webhooks import PolicyReviewer
from lictor.webhook.post_admission import ResultSink


class Backend:
    """No cluster: nothing to keep in step."""

    has_certificate = False
    sinks: Sequence[ResultSink] = ()
    # What of the metrics is shown.
    metrics = MetricsSettings()

    def __init__(
        self,
        state: "ClusterState",
        reviewer: PolicyReviewer,
        guard: GuardedLookups | None = None,
        follow: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._follow = follow
        self.state = state
        self.reviewer = reviewer
        self.guard = guard

    async def run(self) -> None:
        """Until cancelled."""
        await (asyncio.Event().wait() if self._follow is None else self._follow())

    def measure(self) -> None:
        """Note what waits, for the metrics."""

    async def drain(self, seconds: float) -> None:
        """Nothing is ever waiting."""

    async def close(self) -> None:
        """Nothing is open."""


_NOBODY: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
_NO_LABELS: Mapping[str, str] = {}


class ClusterState(Protocol):
    """Settings, roles, namespaces and policies of now."""

    @property
    def policies(self) -> PolicyProvider: ...

    @property
    def is_ready(self) -> bool: ...

    async def wait(self) -> None:
        """Until everything has been read for the first time."""
        ...

    @property
    def needs_roles(self) -> bool:
        """Do settings need the roles of callers?"""
        ...

    @property
    def is_exempt(self) -> Callable[[Request], bool] | None:
        """Which requests no policy is evaluated for; None: all are evaluated."""
        ...

    @property
    def has_namespaces(self) -> bool:
        """Are there labels of namespaces?"""
        ...

    def roles_of(
        self, caller: Caller, namespace: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]: ...

    def recall_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace, where they are at hand."""
        ...

    async def find_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace; None where there is none of that name."""
        ...


class NoClusterState:
    """No cluster: policies from files, callers have no roles, namespaces have no labels."""

    needs_roles = False
    is_ready = True
    is_exempt: Callable[[Request], bool] | None = None
    has_namespaces = False

    def __init__(self, policies: PolicyProvider) -> None:
        self.policies = policies

    async def wait(self) -> None:
        """Files have been read."""

    def roles_of(
        self,
        caller: Caller,  # noqa: ARG002
        namespace: str,  # noqa: ARG002
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return _NOBODY

    def recall_labels(self, namespace: str) -> Mapping[str, str]:  # noqa: ARG002
        return _NO_LABELS

    async def find_labels(self, namespace: str) -> Mapping[str, str]:  # noqa: ARG002
        return _NO_LABELS
