"""What `compile` builds and `engine` runs: policies as closures."""

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
    # Responses of a cluster, a registry or another service: the rule may have to wait.
    LOOKUPS = 1
    # The roles of the caller.
    ROLES = 2
    # Content of registries, unless it is cached.
    IMAGES = 4


class Case(msgspec.Struct, eq=False):
    """The input of a rule: the request after earlier mutations, and its variables.

    The scope is built on first use: most rules have no variables.
    """

    request: Request
    builder: Callable[[Request], Scope]
    built_scope: Scope | None = None
    # The request converted for another engine, by name; built on demand.
    views: dict[str, Json] = {}
    # When the rules must have answered, by `time.monotonic`; None where there is time.
    deadline: float | None = None

    @property
    def scope(self) -> Scope:
        scope = self.built_scope
        if scope is None:
            scope = self.built_scope = self.builder(self.request)
        return scope

    def with_scope(self, scope: Scope) -> "Case":
        """The same case with other variables."""
        return Case(self.request, self.builder, scope, self.views, self.deadline)

    def with_object(self, changed: JsonObject) -> "Case":
        """The same case with the object that a mutation made."""
        changed_request = replace(self.request, object=changed)
        return Case(changed_request, self.builder, deadline=self.deadline)


Matcher: TypeAlias = Callable[[Request], bool]
# Given what is the same for a class of requests, returns the test for each of them; None if the
# rule never matches such a request.
Select: TypeAlias = Callable[[GroupVersionKind, str, Operation], Matcher | None]
# No results: the rule does not apply, and no report names it.
Check: TypeAlias = Callable[[Case], tuple[Result, ...]]


class DeferredCheck:
    """A check that is compiled when a request of its kind comes for the first time.

    Its inputs are stored as arguments: thousands of closures would need more memory.
    """

    __slots__ = ("_arguments", "_compile", "_made", "guard")

    def __init__(self, compile_check: Callable[..., Check], *arguments: Any) -> None:
        self._compile = compile_check
        self._arguments = arguments
        self._made: Check | None = None
        # Runs the compilation: in turn with others, within limits.
        self.guard: Callable[[Callable[[], Check]], Check] | None = None

    def resolve(self) -> Check:
        if self._made is None:
            guard = self.guard
            self._made = self._compile_once() if guard is None else guard(self._compile_once)
        return self._made

    def _compile_once(self) -> Check:
        # Read before testing whether it is compiled: another thread may compile and drop them.
        arguments = self._arguments
        if self._made is None:
            self._made = self._compile(*arguments)
            self._arguments = ()
        return self._made

    def __call__(self, case: Case) -> tuple[Result, ...]:
        return self.resolve()(case)


class UpdateCheck:
    """A check that differs for updates; the index chooses once for a class of requests."""

    __slots__ = ("of_others", "of_updates")

    def __init__(self, of_updates: Check, of_others: Check) -> None:
        self.of_updates = of_updates
        self.of_others = of_others

    def settle(self, operation: Operation) -> Check:
        return self.of_updates if operation is Operation.UPDATE else self.of_others

    def __call__(self, case: Case) -> tuple[Result, ...]:
        return self.settle(case.request.operation)(case)


class Bounds(msgspec.Struct, frozen=True):
    """Literal values outside of which a rule never matches, so that an index can skip it.

    None if the author names nothing or uses a wildcard. For a request outside, the rule's matcher
    must return False, and must not fail.
    """

    kinds: frozenset[str] | None = None
    # The namespace of the object; for a Namespace, its name.
    namespaces: frozenset[str] | None = None
    names: frozenset[str] | None = None
    # The namespace of the policy, if it concerns the objects there (`core.match.combine.within`).
    home: str = ""
    # The same, if it concerns the requests there (`core.match.combine.asked_within`).
    asked_in: str = ""
    # Values of the label with the namespace's name. The rule matches namespaced objects only.
    labelled: frozenset[str] | None = None


class RuleTimer(Protocol):
    """Counts the results of one rule and their durations."""

    def explain(self, error: Exception) -> LictorError:
        """The message for an unexpected exception of a rule."""
        ...


# The timer, a result, and the duration in seconds.
TimedAnswer: TypeAlias = tuple[RuleTimer, tuple[Result, ...], float]


class CompiledRule(msgspec.Struct, frozen=True):
    """Which requests a rule matches (`select`) and its evaluation (`check`)."""

    name: str
    phase: Phase
    select: Select
    check: Check
    # The action if the rule fails with an error, and how namespaces change it.
    action: Action = Action.AUDIT
    override: Callable[[Request], Action | None] | None = None
    # For generate and mutate-existing rules: passes if `check` would apply. It evaluates no more
    # than the conditions, and is all that admission needs.
    applies: Check | None = None
    # Whether the rule names no operations, so that it also evaluates deletions.
    any_operation: bool = False
    needs: Needs = Needs.NOTHING
    bounds: Bounds = Bounds()
    timer: RuleTimer | None = None


class Program(msgspec.Struct, frozen=True):
    """One policy, ready to run; safe to share between threads and processes."""

    policy: PolicyRef
    rules: tuple[CompiledRule, ...]
    # Stop after the first rule that applied (`applyRules: One`).
    first_only: bool = False
    admission: bool = True
    background: bool = True
    # Failures are also returned to the caller as warnings.
    emit_warning: bool = False
    # Requests of the background controller are not evaluated on paths that mutate in CEL.
    skips_background_requests: bool = True
    # The record of the process while it evaluates the policy; empty: none (see `evaluations`).
    identity: bytes = b""
    # Loads what the first request would have to wait for; returns why every result will be an
    # error, or nothing if the policy is usable. Raises NotYetError if something is still loading.
    prepare: Callable[[], str] | None = None


class CleanupProgram(msgspec.Struct, frozen=True):
    """A cleanup policy, ready to run."""

    policy: PolicyRef
    # From a time to the next scheduled run after it.
    next_run: Callable[[datetime], datetime]
    concerns: Matcher
    propagation: str = ""
