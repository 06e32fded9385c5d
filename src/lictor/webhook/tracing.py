"""What becomes of an admission in OpenTelemetry: a span, with the answers of rules as events."""

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Protocol

import msgspec
from msgspec.structs import replace

from lictor.core.compile.deferral import wrap_check
from lictor.core.load.review import Review
from lictor.core.model.program import Case, Check, CompiledRule, Program
from lictor.core.model.result import PolicyRef, Result, Status
from lictor.core.raw import Json, JsonObject
from lictor.core.report.admission_response import AdmissionAnswer
from lictor.http.messages import HttpRequest
from lictor.kubernetes.flags import Flags

PARENT = b"traceparent"
# What the API server may send, where it traces requests itself.
TRACE_HEADERS = frozenset((PARENT, b"tracestate"))


class RuleAnswer(msgspec.Struct, frozen=True):
    """The answer of a rule, when, and how long it took."""

    policy: PolicyRef
    rule: str
    status: Status
    # Nanoseconds since 1970.
    at: int
    seconds: float


class OpenSpan(msgspec.Struct, frozen=True):
    """A review that is being answered."""

    span: Json
    # By policy and rule: if rules are evaluated again on a thread, the last answer counts.
    answers: dict[tuple[str, str, str], RuleAnswer]


# The review that is answered in this context, where it is traced.
_current: ContextVar[OpenSpan | None] = ContextVar("lictor_open_span", default=None)


class Tracer(Protocol):
    """Receives reviews and their answers."""

    def begin(self, call: HttpRequest) -> None:
        """A review has come, and is answered in this context."""
        ...

    def end(self, path: str, review: Review, answer: AdmissionAnswer) -> None:
        """It was answered just now."""
        ...

    def close(self) -> None: ...


def build_tracer(flags: Flags) -> Tracer | None:
    """Spans to a collector if the flags enable it."""
    if not flags.enable_tracing:
        return None
    from lictor.webhook.span_export import open_provider

    provider = open_provider(flags)
    return SpanTracer(provider.get_tracer("lictor.webhook"), provider.shutdown)


def render_parent() -> str:
    """The header line with which another process continues the trace of now; else nothing."""
    current = _current.get()
    context = current.span.get_span_context() if current is not None else None
    if context is None or not context.is_valid:
        return ""
    flags = f"{context.trace_flags:02x}"
    return f"traceparent: 00-{context.trace_id:032x}-{context.span_id:016x}-{flags}\r\n"


# --- answers of rules


def trace_rules(program: Program) -> Program:
    """The same program, whose rules note their answers where a review is traced."""
    return replace(program, rules=tuple(_trace(program.policy, rule) for rule in program.rules))


def _trace(policy: PolicyRef, rule: CompiledRule) -> CompiledRule:
    return replace(rule, check=wrap_check(rule.check, partial(_trace_check, policy, rule)))


def _trace_check(policy: PolicyRef, rule: CompiledRule, inner: Check) -> Check:
    def check(case: Case) -> tuple[Result, ...]:
        current = _current.get()
        if current is None or not current.span.is_recording():
            return inner(case)
        began = time.perf_counter()
        told = [(rule.name, Status.ERROR)]
        try:
            answers = inner(case)
            told = [(answer.rule, answer.status) for answer in answers]
        finally:
            seconds = time.perf_counter() - began
            for name, status in told:
                noted = RuleAnswer(policy, name, status, time.time_ns(), seconds)
                current.answers[policy.kind, policy.key, name] = noted
        return answers

    return check


# --- spans


class SpanTracer:
    """A span for each admission, with the attributes that Kyverno gives its own."""

    def __init__(self, tracer: Json, close: Callable[[], None] = lambda: None) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._close = close
        self._kind = SpanKind.SERVER
        self._read_parent = TraceContextTextMapPropagator().extract

    def begin(self, call: HttpRequest) -> None:
        headers = {
            name.decode("ascii"): b",".join(values).decode("latin-1")
            for name, values in call.headers.items()
            if name in TRACE_HEADERS
        }
        # Where the API server traces the request, its span is ours' parent.
        parent = self._read_parent(headers) if headers else None
        span = self._tracer.start_span("ADMISSION", context=parent, kind=self._kind)
        _current.set(OpenSpan(span, {}))

    def end(self, path: str, review: Review, answer: AdmissionAnswer) -> None:
        current = _current.get()
        if current is None:
            return
        _current.set(None)
        span, request = current.span, review.request.admission or {}
        if span.is_recording():
            operation = str(request.get("operation") or "")
            span.update_name(f"ADMISSION {operation} {review.request.kind.kind}")
            span.set_attributes(
                {
                    "http.target": path,
                    **_describe(request, review),
                    **_describe_answer(review.uid, answer),
                }
            )
            for noted in current.answers.values():
                span.add_event("policy", _describe_rule(noted), noted.at)
        span.end()

    def close(self) -> None:
        """Send what is left."""
        self._close()


def _describe_rule(noted: RuleAnswer) -> dict[str, str | float]:
    group, _, version = noted.policy.api_version.rpartition("/")
    return {
        "kyverno.policy.group": group,
        "kyverno.policy.version": version,
        "kyverno.policy.kind": noted.policy.kind,
        "kyverno.policy.name": noted.policy.name,
        "kyverno.policy.namespace": noted.policy.namespace,
        "kyverno.rule.name": noted.rule,
        "kyverno.rule.result": str(noted.status),
        "kyverno.rule.seconds": round(noted.seconds, 6),
    }


_PAIRS = (
    ("kind", ("group", "version", "kind")),
    ("requestKind", ("group", "version", "kind")),
    ("resource", ("group", "version", "resource")),
    ("requestResource", ("group", "version", "resource")),
)


def _describe(request: JsonObject, review: Review) -> dict[str, str | bool | Sequence[str]]:
    caller = review.request.caller
    found: dict[str, str | bool | Sequence[str]] = {
        "admission.request.name": str(request.get("name") or ""),
        "admission.request.namespace": str(request.get("namespace") or ""),
        "admission.request.uid": review.uid,
        "admission.request.operation": str(request.get("operation") or ""),
        "admission.request.dryrun": bool(request.get("dryRun")),
        "admission.request.subresource": review.request.subresource,
        "admission.request.requestsubresource": str(request.get("requestSubResource") or ""),
    }
    for name, parts in _PAIRS:
        value = request.get(name)
        if not isinstance(value, dict):
            continue
        for part in parts:
            found[f"admission.request.{name.lower()}.{part}"] = str(value.get(part) or "")
    if caller is not None:
        found["admission.request.user.name"] = caller.username
        found["admission.request.user.uid"] = caller.uid
        found["admission.request.user.groups"] = caller.groups
    return found


def _describe_answer(uid: str, answer: AdmissionAnswer) -> dict[str, str | bool | Sequence[str]]:
    found: dict[str, str | bool | Sequence[str]] = {
        "admission.response.uid": uid,
        "admission.response.allowed": answer.allowed,
        "admission.response.warnings": answer.warnings,
    }
    if not answer.allowed:
        found["admission.response.result.status"] = "Failure"
        found["admission.response.result.message"] = answer.message
    if answer.patch:
        found["admission.response.patchtype"] = "JSONPatch"
    return found
