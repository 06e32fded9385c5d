"""What the engine says: one Result per rule, one Verdict per request."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from lictor.core.model.request import Request
from lictor.core.raw import Json, JsonObject


class Status(StrEnum):
    """The five answers a rule can give; the words are those of PolicyReport."""

    PASS = "pass"  # noqa: S105  (a status, not a password)
    FAIL = "fail"
    WARN = "warn"
    ERROR = "error"
    SKIP = "skip"


class RuleType(StrEnum):
    """What a rule does; the words are Kyverno's."""

    MUTATION = "Mutation"
    VALIDATION = "Validation"
    GENERATION = "Generation"
    IMAGE_VERIFY = "ImageVerify"
    CLEANUP = "Cleanup"


class Action(StrEnum):
    """What follows from a failure."""

    AUDIT = "Audit"
    ENFORCE = "Enforce"


class Failure(msgspec.Struct, frozen=True):
    """Where a resource breaks a rule, what was expected there and what was found."""

    path: str
    expected: Json = None
    found: Json = None
    reason: str = ""


class PolicyRef(msgspec.Struct, frozen=True):
    """Which policy speaks, with what a report wants to know of it."""

    name: str
    namespace: str = ""
    kind: str = "ClusterPolicy"
    api_version: str = "kyverno.io/v1"
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    source: str = "kyverno"
    # What annotations for reports begin with.
    annotation_prefix: str = "policies.kyverno.io/"
    # The name in reports, where it is another than the key.
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
    """An exception that was the reason for a skip."""

    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class SourceRef(msgspec.Struct, frozen=True):
    """An object of the cluster that another one is a copy of."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class TargetPart(msgspec.Struct, frozen=True):
    """A subresource of an object: what is changed is not the object, but this part of it."""

    api_version: str
    kind: str
    subresource: str


class CallerAnswer(msgspec.Struct, frozen=True):
    """What a policy wants the API server to be told beside its verdict."""

    # Of a refusal: message, code, details.
    status: JsonObject = {}
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class Result(msgspec.Struct, frozen=True):
    """One rule's answer about one request."""

    policy: PolicyRef
    rule: str
    type: RuleType
    status: Status
    message: str = ""
    action: Action = Action.AUDIT
    failure: Failure | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    exceptions: tuple[ExceptionRef, ...] = ()
    # An error because a limit of size, depth or time was reached: no failure policy excuses it, as
    # whoever makes the object could bring it about.
    over_limit: bool = False
    # Mutation: the resource as this rule leaves it; `target` is another object that it changed.
    patched: JsonObject | None = None
    target: JsonObject | None = None
    # The rule does not name `target`: it selects all objects of a kind, or by wildcard or label.
    is_selected: bool = False
    # It changes the object and is told to nobody: another rule of the policy gives its answer.
    is_silent: bool = False
    part: TargetPart | None = None
    # Generation: what would be created, in order, and what each is a copy of (None: of nothing).
    generated: tuple[JsonObject, ...] = ()
    sources: tuple[SourceRef | None, ...] = ()
    # Of policies that word their answers to the API server themselves.
    caller_answer: CallerAnswer | None = None


class Verdict(msgspec.Struct, frozen=True):
    """All answers about one request, and what they add up to."""

    request: Request
    results: tuple[Result, ...]
    # The object after all mutations; the very object of the request where nothing changed it.
    patched: JsonObject | None = None
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """False where a rule that enforces was broken or could not be decided."""
        return not any(
            result.action is Action.ENFORCE and result.status in (Status.FAIL, Status.ERROR)
            for result in self.results
        )
