"""Events of a verdict: which results are reported, about which object, with which message."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TypeAlias

import msgspec

from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.model.request import Request
from lictor.core.model.result import ExceptionRef, PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.resource_name import read_metadata, read_text
from lictor.core.report.resource_report import ReportSubject
from lictor.core.report.summary import group_by_policy

_BROKEN = (Status.FAIL, Status.ERROR)
_CHECKING = (RuleType.VALIDATION, RuleType.IMAGE_VERIFY)


class EventReason(StrEnum):
    """The reason of an event; users filter by it."""

    VIOLATION = "PolicyViolation"
    APPLIED = "PolicyApplied"
    ERROR = "PolicyError"
    SKIPPED = "PolicySkipped"


class EventAction(StrEnum):
    """What became of the resource: the `action` of an event."""

    BLOCKED = "Resource Blocked"
    PASSED = "Resource Passed"
    GENERATED = "Resource Generated"
    MUTATED = "Resource Mutated"
    CLEANED_UP = "Resource Cleaned Up"
    NONE = "None"


class EventSource(StrEnum):
    """The reporting controller: the names that tools know, with any name of the installation."""

    ADMISSION = "kyverno-admission"
    SCAN = "kyverno-scan"
    GENERATE = "kyverno-generate"
    MUTATE = "kyverno-mutate"
    CLEANUP = "kyverno-cleanup"


class ObjectReference(msgspec.Struct, frozen=True):
    """An object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    def build(self) -> JsonObject:
        """As the API server takes it."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }
        return {key: value for key, value in fields.items() if value}


class Event(msgspec.Struct, frozen=True):
    """An event about an object, as kubectl shows it."""

    reason: EventReason
    action: EventAction
    message: str
    about: ObjectReference
    related: ObjectReference | None = None
    source: EventSource = EventSource.ADMISSION

    @property
    def is_warning(self) -> bool:
        return self.reason in (EventReason.VIOLATION, EventReason.ERROR)


FindUid: TypeAlias = Callable[[PolicyRef], str]


class EventOptions(msgspec.Struct, frozen=True):
    """Which events a verdict becomes."""

    source: EventSource = EventSource.ADMISSION
    # The request was denied: there is no resource for events.
    blocked: bool = False
    # Also report successful results.
    with_success: bool = True
    # The uid of a policy, so that `kubectl describe` finds its events.
    find_uid: FindUid = lambda _: ""
    # Does another event report the same about the object? One event per violation is enough.
    is_reported_elsewhere: Callable[[PolicyRef], bool] = lambda _: False


_ADMITTED = EventOptions()


def build_events(verdict: Verdict, options: EventOptions = _ADMITTED) -> list[Event]:
    """The events of a verdict; rules that passed or were skipped are never violations."""
    resource = refer_to_resource(verdict.request)
    # What is named by the API server later cannot be found by any name now.
    if not resource.name:
        return []
    return [
        event
        for results in group_by_policy(verdict.results)
        for event in _build_for_policy(results, resource, options)
    ]


def refer_to_resource(request: Request) -> ObjectReference:
    """The evaluated resource."""
    metadata = read_metadata(request.resource)
    admission = request.admission or {}
    namespace = read_text(metadata.get("namespace")) or read_text(admission.get("namespace"))
    if request.kind.kind == "Namespace" and not request.kind.group:
        # The API server reports a Namespace as being in itself.
        namespace = ""
    return ObjectReference(
        request.kind.api_version,
        request.kind.kind,
        read_text(metadata.get("name")) or read_text(admission.get("name")),
        namespace,
        read_text(metadata.get("uid")),
    )


def _build_for_policy(
    results: list[Result], resource: ObjectReference, options: EventOptions
) -> Iterator[Event]:
    broken = [result for result in results if result.status in _BROKEN]
    for result in broken:
        yield _describe_policy(result, resource, options)
        if not options.blocked and not _is_reported_elsewhere(result, options):
            yield _describe_resource(result, resource, options)
    skipped = [result for result in results if result.status is Status.SKIP]
    for result in skipped:
        if result.exceptions and not options.blocked:
            yield from _describe_exceptions(result, resource, options)
    if options.with_success and not broken and not skipped:
        yield _describe_success(results, resource, options)


def _is_reported_elsewhere(result: Result, options: EventOptions) -> bool:
    return result.type in _CHECKING and options.is_reported_elsewhere(result.policy)


def refer_to_policy(policy: PolicyRef, find_uid: FindUid) -> ObjectReference:
    """The policy that spoke."""
    return ObjectReference(
        policy.api_version, policy.kind, policy.name, policy.namespace, find_uid(policy)
    )


def _name(resource: ObjectReference) -> str:
    place = f"{resource.namespace}/" if resource.namespace else ""
    return f"{resource.kind} {place}{resource.name}"


def _describe_policy(result: Result, resource: ObjectReference, options: EventOptions) -> Event:
    rule = f"[{result.rule}] " if result.rule else ""
    blocked = " (blocked)" if options.blocked else ""
    detail = f"; {result.message}" if result.message else ""
    return Event(
        EventReason.VIOLATION,
        EventAction.BLOCKED if options.blocked else EventAction.PASSED,
        f"{_name(resource)}: {rule}{result.status}{blocked}{detail}",
        refer_to_policy(result.policy, options.find_uid),
        resource,
        options.source,
    )


def _describe_resource(result: Result, resource: ObjectReference, options: EventOptions) -> Event:
    name = f"{result.policy.name}/{result.rule}"
    message = f"policy {name} {result.status}: {result.message}"
    return Event(EventReason.VIOLATION, EventAction.PASSED, message, resource, None, options.source)


def _describe_success(
    results: list[Result], resource: ObjectReference, options: EventOptions
) -> Event:
    policy = results[0].policy
    is_check = any(result.type in _CHECKING for result in results)
    return Event(
        EventReason.APPLIED,
        EventAction.PASSED if is_check else EventAction.MUTATED,
        f"{_name(resource)}: pass" if is_check else f"{_name(resource)} is successfully mutated",
        refer_to_policy(policy, options.find_uid),
        resource,
        options.source,
    )


def _describe_exceptions(
    result: Result, resource: ObjectReference, options: EventOptions
) -> Iterator[Event]:
    place = "/".join(filter(None, (resource.kind, resource.namespace, resource.name)))
    rule = "/".join(filter(None, (result.policy.key, result.rule)))
    for exception in result.exceptions:
        yield Event(
            EventReason.SKIPPED,
            EventAction.PASSED,
            f"resource {place} was skipped from policy rule {rule}",
            _refer_to_exception(exception, result.policy),
            resource,
            options.source,
        )
    names = ", ".join(exception.key for exception in result.exceptions)
    yield Event(
        EventReason.SKIPPED,
        EventAction.PASSED,
        f"resource {place} was skipped from rule {result.rule} due to policy exceptions {names}",
        refer_to_policy(result.policy, options.find_uid),
        resource,
        options.source,
    )


def _refer_to_exception(exception: ExceptionRef, policy: PolicyRef) -> ObjectReference:
    family = registry().of(policy).family
    kind = next(each for each in registry().with_role(Role.EXCEPTION) if each.family == family)
    version = f"{kind.group}/{kind.preferred_version}"
    return ObjectReference(version, kind.kind, exception.name, exception.namespace)


def build_generated_events(
    policy: PolicyRef, uid: str, rule: str, created: Iterable[JsonObject]
) -> Iterator[Event]:
    """What a rule has made."""
    about = refer_to_policy(policy, lambda _: uid)
    for body in created:
        made = _refer(body)
        yield Event(
            EventReason.APPLIED,
            EventAction.GENERATED,
            "resource generated",
            about,
            made,
            EventSource.GENERATE,
        )
        name = f"{policy.name}/{rule}"
        text = f"Created {made.kind} {made.name} as a result of applying policy {name}"
        yield Event(EventReason.APPLIED, EventAction.NONE, text, made, None, EventSource.GENERATE)


def build_failure_event(
    policy: PolicyRef, uid: str, rule: str, request: Request, why: str, *, source: EventSource
) -> Event:
    """What a rule could not do."""
    name = f"{policy.name}/{rule}" if rule else policy.name
    about = refer_to_policy(policy, lambda _: uid)
    text = f"policy {name} error: {why}"
    return Event(
        EventReason.ERROR, EventAction.NONE, text, about, refer_to_resource(request), source
    )


def build_mutated_events(verdict: Verdict, uid: str) -> Iterator[Event]:
    """What rules have changed, and what they could not."""
    for result in verdict.results:
        if result.status is Status.PASS and result.target is not None:
            yield Event(
                EventReason.APPLIED,
                EventAction.MUTATED,
                "resource mutated",
                refer_to_policy(result.policy, lambda _: uid),
                _refer(result.target),
                EventSource.MUTATE,
            )
        elif result.status in (Status.FAIL, Status.ERROR):
            yield build_failure_event(
                result.policy,
                uid,
                result.rule,
                verdict.request,
                result.message,
                source=EventSource.MUTATE,
            )


def _refer(body: JsonObject) -> ObjectReference:
    subject = ReportSubject.of(body)
    return ObjectReference(
        subject.api_version, subject.kind, subject.name, subject.namespace, subject.uid
    )
