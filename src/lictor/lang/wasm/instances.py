"""Instances that stay warm for the next request: as many as memory allows, of all policies."""

import itertools
from typing import Final, NamedTuple

from lictor.lang.wasm.sandbox import Sandbox

# Of all policies together: fewer than an engine has memories, so that there is room for all others.
_KEPT_INSTANCES: Final = 100
_KEPT_BYTES: Final = 96 * 1024 * 1024
# Of one instance. What leaks in a guest ends with its instance.
_LARGEST_BYTES: Final = 32 * 1024 * 1024
_CALLS: Final = 1_000


class WarmInstance(NamedTuple):
    """A started instance, whose it is, and how often it was called."""

    owner: int
    sandbox: Sandbox
    calls: int = 0


class WarmInstances:
    """The started instances that wait for a request; used by any thread.

    Whoever takes one out of the table owns it, and taking out is one step: nobody closes what
    another uses.
    """

    def __init__(self, *, most: int = _KEPT_INSTANCES, most_bytes: int = _KEPT_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._numbers = itertools.count()
        # Those that were used longest ago come first.
        self._waiting: dict[int, WarmInstance] = {}

    def new_owner(self) -> int:
        """A name for a policy, under which its instances are kept."""
        return next(self._numbers)

    def take(self, owner: int) -> WarmInstance | None:
        """The one that this policy used last, if one waits."""
        for number, instance in reversed(list(self._waiting.items())):
            if instance.owner == owner and self._waiting.pop(number, None) is not None:
                return instance
        return None

    def keep(self, instance: WarmInstance) -> None:
        """Let it wait for the next request of its policy, or close it."""
        calls = instance.calls + 1
        if calls >= _CALLS or instance.sandbox.memory_bytes > _LARGEST_BYTES:
            instance.sandbox.close()
            return
        self._waiting[next(self._numbers)] = instance._replace(calls=calls)
        waiting = list(self._waiting.items())
        total = sum(instance.sandbox.known_bytes for _, instance in waiting)
        for place, (number, oldest) in enumerate(waiting):
            if len(waiting) - place <= self._most and total <= self._most_bytes:
                break
            total -= oldest.sandbox.known_bytes
            self._close(number)

    def drop(self, owner: int) -> None:
        """Close all instances of a policy that is no more."""
        for number, instance in list(self._waiting.items()):
            if instance.owner == owner:
                self._close(number)

    def _close(self, number: int) -> None:
        instance = self._waiting.pop(number, None)
        if instance is not None:
            instance.sandbox.close()


# One for the process: what matters is how much memory all policies hold together.
WARM_INSTANCES: Final = WarmInstances()
