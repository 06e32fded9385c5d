"""Events about what was done to other objects than the one that was asked for."""

from collections.abc import Iterable, Iterator

from lictor.model.request import Request
from lictor.model.result import PolicyRef, Status, Verdict
from lictor.raw import JsonObject
from lictor.report.events import (
    Event,
    ObjectReference,
    Outcome,
    Reason,
    Source,
    refer_to_policy,
    refer_to_resource,
)
from lictor.report.resource_report import Subject


def tell_generated(
    policy: PolicyRef, uid: str, rule: str, created: Iterable[JsonObject]
) -> Iterator[Event]:
    """What a rule has made."""
    about = refer_to_policy(policy, lambda _: uid)
    for body in created:
        made = _refer(body)
        yield Event(
            Reason.APPLIED, Outcome.GENERATED, "resource generated", about, made, Source.GENERATE
        )
        name = f"{policy.name}/{rule}"
        text = f"Created {made.kind} {made.name} as a result of applying policy {name}"
        yield Event(Reason.APPLIED, Outcome.NONE, text, made, None, Source.GENERATE)


def tell_failure(
    policy: PolicyRef, uid: str, rule: str, request: Request, why: str, *, source: Source
) -> Event:
    """What a rule could not do."""
    name = f"{policy.name}/{rule}" if rule else policy.name
    about = refer_to_policy(policy, lambda _: uid)
    text = f"policy {name} error: {why}"
    return Event(Reason.ERROR, Outcome.NONE, text, about, refer_to_resource(request), source)


def tell_mutated(verdict: Verdict, uid: str) -> Iterator[Event]:
    """What rules have changed, and what they could not."""
    for result in verdict.results:
        if result.status is Status.PASS and result.target is not None:
            yield Event(
                Reason.APPLIED,
                Outcome.MUTATED,
                "resource mutated",
                refer_to_policy(result.policy, lambda _: uid),
                _refer(result.target),
                Source.MUTATE,
            )
        elif result.status in (Status.FAIL, Status.ERROR):
            yield tell_failure(
                result.policy,
                uid,
                result.rule,
                verdict.request,
                result.message,
                source=Source.MUTATE,
            )


def _refer(body: JsonObject) -> ObjectReference:
    subject = Subject.of(body)
    return ObjectReference(
        subject.api_version, subject.kind, subject.name, subject.namespace, subject.uid
    )
