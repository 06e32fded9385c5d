"""What `compile` makes and `engine` runs: policies turned into closures."""

from collections.abc import Callable
from datetime import datetime
from enum import Flag, IntEnum
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import LictorError
from lictor.core.model.request import GroupVersionKind, Operation, Request
from lictor.core.model.result import Action, PolicyRef, Result
from lictor.core.model.scope import Scope
from lictor.core.raw import Json, JsonObject


class Phase(IntEnum):
    """The order of work on a request: every rule of one phase, of all policies, before the next."""

    MUTATE = 1
    VERIFY_IMAGES = 2
    VALIDATE = 3
    GENERATE = 4


class Needs(Flag):
    """What a rule needs that is not in the request."""

    NOTHING = 0
    # Answers of a cluster, a registry or another service: it may have to wait.
    LOOKUPS = 1
    # The roles of whoever makes the request.
    ROLES = 2
    # What registries hold, unless it was asked for before.
    IMAGES = 4


class Case(msgspec.Struct, eq=False):
    """What a rule sees: the request as earlier mutations left it, and its variables.

    The scope is built when first asked for: most rules have no variables and never pay for it.
    """

    request: Request
    builder: Callable[[Request], Scope]
    built_scope: Scope | None = None
    # The request in the form that another language's engine takes, by name; made when needed.
    views: dict[str, Json] = {}

    @property
    def scope(self) -> Scope:
        scope = self.built_scope
        if scope is None:
            scope = self.built_scope = self.builder(self.request)
        return scope

    def with_scope(self, scope: Scope) -> "Case":
        """The same case with other variables."""
        return Case(self.request, self.builder, scope, self.views)

    def with_object(self, changed: JsonObject) -> "Case":
        """The same case with the object that a mutation made."""
        return Case(replace(self.request, object=changed), self.builder)


Matcher: TypeAlias = Callable[[Request], bool]
# Given what is fixed for a whole class of requests, the test that is left for each of them: None
# where the rule can never concern such a request.
Select: TypeAlias = Callable[[GroupVersionKind, str, Operation], Matcher | None]
# No results: the rule has nothing to say, and no report will name it.
Check: TypeAlias = Callable[[Case], tuple[Result, ...]]


class DeferredCheck:
    """A check that is compiled when a request of its kind comes for the first time.

    What it is compiled from is given as arguments: thousands of closures would take more room.
    """

    __slots__ = ("_arguments", "_compile", "_made")

    def __init__(self, compile_check: Callable[..., Check], *arguments: Any) -> None:
        self._compile = compile_check
        self._arguments = arguments
        self._made: Check | None = None

    def resolve(self) -> Check:
        # Read before looking whether it is made: another thread may make it and let go of them.
        arguments = self._arguments
        if self._made is None:
            self._made = self._compile(*arguments)
            self._arguments = ()
        return self._made

    def __call__(self, case: Case) -> tuple[Result, ...]:
        return self.resolve()(case)


class UpdateCheck:
    """A check that is another one for updates; an index settles which, for all requests alike."""

    __slots__ = ("of_others", "of_updates")

    def __init__(self, of_updates: Check, of_others: Check) -> None:
        self.of_updates = of_updates
        self.of_others = of_others

    def settle(self, operation: Operation) -> Check:
        return self.of_updates if operation is Operation.UPDATE else self.of_others

    def __call__(self, case: Case) -> tuple[Result, ...]:
        return self.settle(case.request.operation)(case)


class Bounds(msgspec.Struct, frozen=True):
    """Texts outside of which a rule concerns nothing, so that an index can leave it out.

    None where the author names nothing, or by a wildcard. For a request outside, the rule's matcher
    must say no, and must not fail.
    """

    kinds: frozenset[str] | None = None
    # Where the object lies; of a Namespace, what it is called.
    namespaces: frozenset[str] | None = None
    names: frozenset[str] | None = None
    # The namespace of the policy, if it concerns the objects there (`core.match.combine.within`).
    home: str = ""
    # The same, if it concerns the requests there (`core.match.combine.asked_within`).
    asked_in: str = ""
    # Values of the label that names the namespace. The rule is about objects that lie in one.
    labelled: frozenset[str] | None = None


class RuleTimer(Protocol):
    """Who counts the answers of one rule, and how long they took."""

    def explain(self, error: Exception) -> LictorError:
        """What is told of an error that no rule should ever raise."""
        ...


# Who counts, an answer, and the seconds that it took.
TimedAnswer: TypeAlias = tuple[RuleTimer, tuple[Result, ...], float]


class CompiledRule(msgspec.Struct, frozen=True):
    """A question (`select`) and an answer (`check`)."""

    name: str
    phase: Phase
    select: Select
    check: Check
    # What follows where the rule cannot be decided, and how namespaces change that.
    action: Action = Action.AUDIT
    override: Callable[[Request], Action | None] | None = None
    # For rules that make or change other objects: passes where `check` would begin to work. It
    # costs no more than the conditions, and is all that admission needs to know.
    applies: Check | None = None
    # Does the rule name no operations, so that it also judges deletions?
    any_operation: bool = False
    needs: Needs = Needs.NOTHING
    bounds: Bounds = Bounds()
    timer: RuleTimer | None = None


class Program(msgspec.Struct, frozen=True):
    """One policy, ready to run; safe to share between threads and processes."""

    policy: PolicyRef
    rules: tuple[CompiledRule, ...]
    # Stop after the first rule that gave an answer (`applyRules: One`).
    first_only: bool = False
    admission: bool = True
    background: bool = True
    # Failures are also told to the caller as warnings.
    emit_warning: bool = False
    # What the process notes while it evaluates the policy; empty: nothing (see `evaluations`).
    identity: bytes = b""
    # Gets what the first request would have to wait for, and gives the reason why every answer is
    # an error; empty where it can be asked. NotYetError where something is on its way.
    prepare: Callable[[], str] | None = None


class CleanupProgram(msgspec.Struct, frozen=True):
    """A policy that deletes on a schedule, ready to run."""

    policy: PolicyRef
    # From a time to that of the run after it.
    next_run: Callable[[datetime], datetime]
    concerns: Matcher
    propagation: str = ""
