"""What is recorded of answered requests besides the log line: OpenTelemetry spans and payloads."""

import logging
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Protocol

from lictor.cluster.flags import Flags
from lictor.errors import UsageError
from lictor.load.review import Review
from lictor.raw import Json, JsonObject
from lictor.report.admission_response import AdmissionAnswer

log = logging.getLogger(__name__)

_LEFT_OUT = "**REDACTED**"


class PayloadLog:
    """What `--dumpPayload` and `--dumpPatches` write."""

    def __init__(self, *, payload: bool, patches: bool) -> None:
        self._payload = payload
        self._patches = patches

    def write(self, review: Review, answer: AdmissionAnswer) -> None:
        """Log one request."""
        is_secret = review.request.kind.kind == "Secret"
        if self._payload:
            request = review.request.admission or {}
            shown = {
                name: _redact(value) if is_secret and name in ("object", "oldObject") else value
                for name, value in request.items()
            }
            log.info("admission request", extra={"uid": review.uid, "request": shown})
        if self._patches and answer.patch:
            patch: Json = _LEFT_OUT if is_secret else list(answer.patch)
            log.info("admission patch", extra={"uid": review.uid, "patch": patch})


def build_payload_log(*, payload: bool, patches: bool) -> PayloadLog | None:
    """None where nobody asked for it."""
    return PayloadLog(payload=payload, patches=patches) if payload or patches else None


def _redact(document: JsonObject | None) -> JsonObject | None:
    """A Secret without what it holds, nor what kubectl noted of that."""
    if not isinstance(document, dict):
        return None
    hidden = {
        name: dict.fromkeys(value, _LEFT_OUT)
        if name in ("data", "stringData") and isinstance(value, dict)
        else value
        for name, value in document.items()
    }
    metadata = hidden.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        hidden["metadata"] = {
            **metadata,
            "annotations": dict.fromkeys(metadata["annotations"], _LEFT_OUT),
        }
    return hidden


_PAIRS = (
    ("kind", ("group", "version", "kind")),
    ("requestKind", ("group", "version", "kind")),
    ("resource", ("group", "version", "resource")),
    ("requestResource", ("group", "version", "resource")),
)


class Tracer(Protocol):
    """Whoever wants to know of answered reviews."""

    def trace(self, path: str, review: Review, answer: AdmissionAnswer, began: int) -> None:
        """Note a review that was answered just now; `began` is in nanoseconds since 1970."""
        ...

    def close(self) -> None: ...


def check_tracing(flags: Flags) -> None:
    """Before any process starts: is there what tracing needs?"""
    if flags.enable_tracing and find_spec("opentelemetry.exporter") is None:
        raise UsageError("--enableTracing needs OpenTelemetry: install lictor[tracing]")


def build_tracer(flags: Flags) -> Tracer | None:
    """Spans to a collector (OTLP over gRPC) where the flags say so."""
    if not flags.enable_tracing:
        return None
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = OTLPSpanExporter(
        endpoint=f"{flags.tracing_address}:{flags.tracing_port}",
        insecure=not flags.tracing_creds,
        credentials=_read_credentials(flags.tracing_creds),
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "kyverno"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return SpanTracer(provider.get_tracer("lictor.serve"), provider.shutdown)


def _read_credentials(path: str) -> Json:
    if not path:
        return None
    from pathlib import Path

    import grpc  # type: ignore[import-untyped]  # it comes with the exporter

    try:
        return grpc.ssl_channel_credentials(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"--tracingCreds: {error.strerror or error}") from error


class SpanTracer:
    """A span for each admission, with the attributes that Kyverno gives its own."""

    def __init__(self, tracer: Json, close: Callable[[], None] = lambda: None) -> None:
        self._tracer = tracer
        self._close = close

    def trace(self, path: str, review: Review, answer: AdmissionAnswer, began: int) -> None:
        request = review.request.admission or {}
        operation = str(request.get("operation") or "")
        span = self._tracer.start_span(
            f"ADMISSION {operation} {review.request.kind.kind}",
            attributes={**_describe(request, review), **_describe_answer(review.uid, answer)},
            start_time=began,
        )
        span.set_attribute("http.target", path)
        span.end()

    def close(self) -> None:
        """Send what is left."""
        self._close()


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
