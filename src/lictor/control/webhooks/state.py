"""Which policies does the API server ask us about by now? Read by whoever writes their status."""

from collections.abc import Callable, Mapping

from lictor.cluster.routes import is_served
from lictor.cluster.store import StoredPolicy


def identify_policy(policy: StoredPolicy) -> str:
    """A policy's key among all kinds, such as `Policy/namespace/name`."""
    return f"{policy.resource.kind}/{policy.key}"


class WebhookState:
    """What the webhook configurations of now stand for."""

    def __init__(self) -> None:
        # Key -> uid: a policy that was deleted and made anew is another one.
        self._ready: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []

    @property
    def ready_keys(self) -> frozenset[str]:
        """The policies (see `identify_policy`) whose webhooks are in place."""
        return frozenset(self._ready)

    @property
    def refused(self) -> Mapping[str, str]:
        """Policies that the API server will not take a webhook for, and why."""
        return self._refused

    def is_ready(self, policy: StoredPolicy) -> bool:
        """Is a policy in force? One that needs no webhook is, as soon as it can be read."""
        if policy.record is None:
            return False
        if not is_served(policy):
            return True
        return self._ready.get(identify_policy(policy)) == policy.uid

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change; it must not block."""
        self._listeners.append(listener)

    def show(self, ready: Mapping[str, str], refused: Mapping[str, str]) -> None:
        """Take note of what the configurations in the cluster stand for."""
        if self._ready == ready and self._refused == refused:
            return
        self._ready, self._refused = dict(ready), dict(refused)
        for listener in self._listeners:
            listener()
