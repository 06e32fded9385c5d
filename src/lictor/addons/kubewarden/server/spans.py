"""Evaluations as OpenTelemetry spans, under Kubewarden's names."""

import time
from collections.abc import Mapping
from typing import Final

from lictor.addons.kubewarden.family.entries import PolicyResponse
from lictor.core.raw import Json
from lictor.webhook.span_export import build_resource

_NAMES: Final = {"validate": "validation", "audit": "audit", "validate_raw": "validation_raw"}
_PARTS: Final = {
    "kind": ("kind", "kind"),
    "kind_group": ("kind", "group"),
    "kind_version": ("kind", "version"),
    "resource": ("resource", "resource"),
    "resource_group": ("resource", "group"),
    "resource_version": ("resource", "version"),
}


class SpanSink:
    """Sends a span for each answer; settings are in none."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = build_resource("kubewarden-policy-server")
        self._provider = TracerProvider(resource=resource)
        # The endpoint and the protocol come from the usual variables (OTEL_EXPORTER_OTLP_ENDPOINT).
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("lictor.addons.kubewarden.server")

    def note(
        self,
        policy: str,
        origin: str,
        admission: Mapping[str, Json],
        told: PolicyResponse,
        seconds: float,
    ) -> None:
        """An answer that was given just now."""
        now = time.time_ns()
        span = self._tracer.start_span(
            _NAMES[origin],
            attributes={"policy_id": policy, **_describe(admission), **_describe_answer(told)},
            start_time=now - int(seconds * 1e9),
        )
        span.end(now)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


def _describe(admission: Mapping[str, Json]) -> dict[str, str]:
    if not admission:
        return {}
    found = {
        "request_uid": str(admission["uid"]),
        "name": str(admission.get("name") or ""),
        "namespace": str(admission.get("namespace") or ""),
        "operation": str(admission["operation"]),
        "subresource": str(admission.get("subResource") or ""),
    }
    for name, (field, part) in _PARTS.items():
        found[name] = str(admission[field].get(part, ""))
    return found


def _describe_answer(told: PolicyResponse) -> dict[str, str | bool | int]:
    found: dict[str, str | bool | int] = {
        "allowed": told.allowed,
        "mutated": isinstance(told.patch, str),
    }
    if told.status:
        if told.status.code is not None:
            found["response_code"] = told.status.code
        if told.status.message is not None:
            found["response_message"] = told.status.message
    return found
