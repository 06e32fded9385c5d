"""From which policies are admission policies of Kubernetes made? Read by who writes statuses."""

from collections.abc import Callable, Mapping

from lictor.report.policy_status import NativeOutcome


class NativeState:
    """What the last look at the policies gave, by their uid."""

    def __init__(self) -> None:
        self._outcomes: dict[str, NativeOutcome] = {}
        self._listeners: list[Callable[[], None]] = []

    def find(self, uid: str) -> NativeOutcome | None:
        """What became of a policy; None where nobody has looked yet."""
        return self._outcomes.get(uid)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change; it must not block."""
        self._listeners.append(listener)

    def show(self, outcomes: Mapping[str, NativeOutcome]) -> None:
        """Take note of what is made from which policy."""
        if self._outcomes == outcomes:
            return
        self._outcomes = dict(outcomes)
        for listener in self._listeners:
            listener()
