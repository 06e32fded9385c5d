"""What the engine returns: one Result per rule, one Verdict per request."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from lictor.core.model.request import Request
from lictor.core.raw import Json, JsonObject


class Status(StrEnum):
    """The five outcomes of a rule, in the words of PolicyReport."""

    PASS = "pass"  # noqa: S105  (a status, not a password)
    FAIL = "fail"
    WARN = "warn"
    ERROR = "error"
    SKIP = "skip"


class RuleType(StrEnum):
    """The type of a rule, in Kyverno's words."""

    MUTATION = "Mutation"
    VALIDATION = "Validation"
    GENERATION = "Generation"
    IMAGE_VERIFY = "ImageVerify"
    CLEANUP = "Cleanup"


class Action(StrEnum):
    """The action on failure."""

    AUDIT = "Audit"
    ENFORCE = "Enforce"


class Failure(msgspec.Struct, frozen=True):
    """Where a resource violates a rule, what was expected there and what was found."""

    path: str
    expected: Json = None
    found: Json = None
    reason: str = ""


class PolicyRef(msgspec.Struct, frozen=True):
    """The policy of a result, with what a report needs."""

    name: str
    namespace: str = ""
    kind: str = "ClusterPolicy"
    api_version: str = "kyverno.io/v1"
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    source: str = "kyverno"
    # Prefix of annotations for reports.
    annotation_prefix: str = "policies.kyverno.io/"
    # The name in reports, if it differs from the key.
    report_name: str = ""

    @property
    def category(self) -> str:
        return self.annotations.get(f"{self.annotation_prefix}category", "")

    @property
    def severity(self) -> str:
        return self.annotations.get(f"{self.annotation_prefix}severity", "")

    @property
    def scored(self) -> bool:
        return self.annotations.get(f"{self.annotation_prefix}scored", "") != "false"

    @property
    def reported_name(self) -> str:
        return self.report_name or self.key

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ExceptionRef(msgspec.Struct, frozen=True):
    """An exception that caused a skip."""

    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class SourceRef(msgspec.Struct, frozen=True):
    """The source object of a copy."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class TargetPart(msgspec.Struct, frozen=True):
    """A subresource of an object: only this part is changed."""

    api_version: str
    kind: str
    subresource: str


class CallerAnswer(msgspec.Struct, frozen=True):
    """What a policy returns to the API server besides its verdict."""

    # Of a denial: message, code, details.
    status: JsonObject = {}
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class Result(msgspec.Struct, frozen=True):
    """The result of one rule for one request."""

    policy: PolicyRef
    rule: str
    type: RuleType
    status: Status
    message: str = ""
    action: Action = Action.AUDIT
    failure: Failure | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    exceptions: tuple[ExceptionRef, ...] = ()
    # An error because a limit of size, depth or time was reached: no failure policy ignores it, as
    # the author of the object could cause it.
    over_limit: bool = False
    # Mutation: the resource after this rule; `target` is another object that it changed.
    patched: JsonObject | None = None
    target: JsonObject | None = None
    # The rule does not name `target`: it selects objects by kind, wildcard or label.
    is_selected: bool = False
    # It changes the object but is not reported: another rule of the policy has the result.
    is_silent: bool = False
    part: TargetPart | None = None
    # Generation: the objects to create, in order, and the source of each (None: no copy).
    generated: tuple[JsonObject, ...] = ()
    sources: tuple[SourceRef | None, ...] = ()
    # For policies that write their own response to the API server.
    caller_answer: CallerAnswer | None = None


class Verdict(msgspec.Struct, frozen=True):
    """All results for one request."""

    request: Request
    results: tuple[Result, ...]
    # The object after all mutations; the same object as in the request if nothing changed.
    patched: JsonObject | None = None
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """False if an enforcing rule failed or could not be evaluated."""
        return not any(
            result.action is Action.ENFORCE and result.status in (Status.FAIL, Status.ERROR)
            for result in self.results
        )
