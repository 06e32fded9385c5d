"""Records the value of each part of a policy for `explain`, without changing it."""

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

import msgspec

from lictor.core.raw import Json

Closure = TypeVar("Closure", bound=Callable[..., object])


class Watch(Protocol):
    """Wraps a closure; the wrapped closure returns the same values."""

    def __call__(self, what: str, closure: Closure) -> Closure: ...


def unwatched(what: str, closure: Closure) -> Closure:  # noqa: ARG001
    """Return the closure itself: the normal case, without overhead."""
    return closure


class ClosureAnswer(msgspec.Struct, frozen=True):
    """One value of one closure."""

    rule: str
    what: str
    given: tuple[Json, ...]
    answer: Json = None
    error: str = ""


class Recorder(msgspec.Struct):
    """A watch that records every value, in order."""

    answers: list[ClosureAnswer] = msgspec.field(default_factory=list)

    def for_rule(self, rule: str) -> Watch:
        """The watch for the closures of one rule."""

        def watch(what: str, closure: Closure) -> Closure:
            def watched(*given: Json) -> Json:
                try:
                    answer = closure(*given)
                except Exception as error:
                    self.answers.append(ClosureAnswer(rule, what, given, error=str(error)))
                    raise
                self.answers.append(ClosureAnswer(rule, what, given, answer))
                return answer

            return cast("Closure", watched)

        return watch


# The watch for the closures of a rule, by the rule's name.
WatchRule = Callable[[str], Watch]


def watch_nothing(rule: str) -> Watch:  # noqa: ARG001
    """Record nothing of any rule."""
    return unwatched
