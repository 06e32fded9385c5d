"""Spans of admissions, and what is said where OpenTelemetry is not installed."""

import pytest

from lictor.cluster.flags import Flags
from lictor.errors import UsageError
from lictor.load.review import build_review
from lictor.report.admission_response import AdmissionAnswer
from lictor.serve import tracing
from lictor.serve.tracing import SpanTracer, build_tracer, check_tracing

trace = pytest.importorskip("opentelemetry.sdk.trace")

REVIEW = build_review(
    {
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "6b7a",
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "name": "web",
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "ann", "groups": ["people"]},
            "object": {"metadata": {"name": "web"}},
            "dryRun": True,
        },
    }
)


def test_a_span_tells_of_request_and_answer() -> None:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = SpanTracer(provider.get_tracer("test"), provider.shutdown)
    tracer.trace(
        "/validate/fail",
        REVIEW,
        AdmissionAnswer(allowed=False, message="no", warnings=("beware",)),
        1_000,
    )
    (span,) = exporter.get_finished_spans()
    assert span.name == "ADMISSION CREATE Deployment"
    assert span.start_time == 1_000
    expected = {
        "admission.request.name": "web",
        "admission.request.namespace": "shop",
        "admission.request.uid": "6b7a",
        "admission.request.dryrun": True,
        "admission.request.kind.group": "apps",
        "admission.request.resource.resource": "deployments",
        "admission.request.user.name": "ann",
        "admission.request.user.groups": ("people",),
        "admission.response.allowed": False,
        "admission.response.warnings": ("beware",),
        "admission.response.result.message": "no",
    }
    assert {name: span.attributes[name] for name in expected} == expected
    # The object itself may hold secrets.
    assert not any("object" in name for name in span.attributes)
    tracer.close()


def test_nothing_is_traced_unless_asked_for() -> None:
    assert build_tracer(Flags()) is None


def test_a_missing_library_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    check_tracing(Flags())
    with pytest.raises(UsageError, match=r"lictor\[tracing\]"):
        check_tracing(Flags(enable_tracing=True))
