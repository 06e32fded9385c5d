"""What one evaluation has spent so far: cost and time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lictor.core.lang.cel.faults import CostExceededError, TimeExceededError
from lictor.core.lang.cel.values import Value

# Kubernetes' limit for one expression.
CALL_LIMIT = 1_000_000
# How much may be spent between two looks at the clock: about a millisecond.
_INTERVAL = 2_000
_WATCHED = 1024

UNSET: Any = object()


class State(msgspec.Struct):
    """The budget of an evaluation; `clock` and `deadline` are in seconds."""

    activation: Mapping[str, Any]
    limit: int
    deadline: float | None
    clock: Callable[[], float]
    cost: int = 0
    next_check: int = 0

    def restart(self, cost: int) -> None:
        """Count from another cost, for another expression."""
        self.cost = cost
        self.next_check = min(self.limit, _INTERVAL)

    def spend(self, amount: int) -> None:
        """Count work; stops the evaluation when the budget or the time is used up."""
        self.cost = cost = self.cost + amount
        if cost > self.next_check:
            self.check()

    def check(self) -> None:
        """Compare with the limits now."""
        if self.cost > self.limit:
            raise CostExceededError
        if self.deadline is not None and self.clock() > self.deadline:
            raise TimeExceededError
        self.next_check = min(self.limit, self.cost + _INTERVAL)

    def enter_loop(self, items: list[Value], body: int) -> Iterable[Value]:
        """Count a loop in advance, and look at the clock during long ones."""
        count = len(items)
        self.cost = cost = self.cost + count * body
        if cost > self.next_check:
            self.check()
        turns = max(1, _WATCHED // body)
        return items if count <= turns or self.deadline is None else self._watch(items, turns)

    def _watch(self, items: list[Value], turns: int) -> Iterator[Value]:
        for start in range(0, len(items), turns):
            if self.deadline is not None and self.clock() > self.deadline:
                raise TimeExceededError
            yield from items[start : start + turns]
