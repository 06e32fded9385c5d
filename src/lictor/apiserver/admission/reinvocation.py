"""Who must see an object again, because someone changed it after they had seen it?"""

from collections.abc import Hashable

from lictor.raw import JsonObject


class Reinvocation:
    """What one sort of admission remembers of the first round, for the second and last one."""

    __slots__ = ("_again", "_before", "_last")

    def __init__(self) -> None:
        self._before: set[Hashable] = set()
        self._again: set[Hashable] = set()
        self._last: JsonObject | None = None

    def begin(self, document: JsonObject | None, *, again: bool) -> None:
        """A round begins; others may have changed the object since ours ended."""
        if again and document != self._last:
            self.note_change()

    def note_call(self, key: Hashable) -> None:
        """This one has seen the object, and wants to see it again if it changes."""
        self._before.add(key)

    def note_change(self) -> None:
        """Someone changed the object."""
        self._again |= self._before
        self._before.clear()

    def wants(self, key: Hashable) -> bool:
        """Tell whether this one must see the object again."""
        return key in self._again

    def end(self, document: JsonObject | None) -> None:
        """The round is over, with this result."""
        self._last = document


class Rounds:
    """One request's way through all who may change its object."""

    __slots__ = ("is_again", "policies", "wants_another", "webhooks")

    def __init__(self) -> None:
        self.policies = Reinvocation()
        self.webhooks = Reinvocation()
        self.is_again = False
        self.wants_another = False
