"""How `explain` records what each part of a policy answered, without changing the answers."""

from collections.abc import Callable
from typing import Protocol, TypeVar, cast

import msgspec

from lictor.core.raw import Json

Closure = TypeVar("Closure", bound=Callable[..., object])


class Watch(Protocol):
    """Takes a closure and what it stands for; gives back a closure with the same answers."""

    def __call__(self, what: str, closure: Closure) -> Closure: ...


def unwatched(what: str, closure: Closure) -> Closure:  # noqa: ARG001
    """Leave the closure as it is: the normal case, free of cost."""
    return closure


class ClosureAnswer(msgspec.Struct, frozen=True):
    """One answer of one closure."""

    rule: str
    what: str
    given: tuple[Json, ...]
    answer: Json = None
    error: str = ""


class Recorder(msgspec.Struct):
    """A watch that records every answer, in order."""

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


# Which watch looks at the closures of a rule, by the rule's name.
WatchRule = Callable[[str], Watch]


def watch_nothing(rule: str) -> Watch:  # noqa: ARG001
    """Record nothing of any rule."""
    return unwatched
