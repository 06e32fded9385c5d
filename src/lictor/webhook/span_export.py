"""How do spans reach a collector? OTLP by gRPC or by HTTP, in batches, beside the requests."""

import http.client
import logging
import os
import ssl
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lictor.core.errors import UsageError
from lictor.core.raw import Json
from lictor.core.release import VERSION
from lictor.http.addresses import build_connection
from lictor.kubernetes.flags import Flags

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

_SERVICE = "kyverno"
# One event for each rule that answered: more than the usual 128 of OpenTelemetry.
_MOST_EVENTS = 1000
_MOST_EVENTS_VARIABLE = "OTEL_SPAN_EVENT_COUNT_LIMIT"
# Short: at its end, a process waits for what is left to be sent.
_TIMEOUT = 5.0
_PATH = "/v1/traces"


def check_tracing(flags: Flags) -> None:
    """Before any process starts: are the libraries and the address for tracing there?"""
    if not flags.enable_tracing:
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise UsageError("--enableTracing needs OpenTelemetry: install lictor[tracing]")
    if not flags.tracing_address:
        raise UsageError("--enableTracing needs --tracingAddress, the host of the collector")
    if flags.tracing_creds:
        _read_authorities(flags)


def open_provider(flags: Flags) -> "TracerProvider":
    """Makes spans and sends them, from a separate thread."""
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    limits = SpanLimits()
    if not os.environ.get(_MOST_EVENTS_VARIABLE):
        limits = SpanLimits(max_events=_MOST_EVENTS)
    # Sampling is set by the usual variables (OTEL_TRACES_SAMPLER).
    provider = TracerProvider(resource=build_resource(_SERVICE), span_limits=limits)
    provider.add_span_processor(BatchSpanProcessor(_open_exporter(flags)))
    return provider


def build_resource(service: str) -> "Resource":
    """The sender; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    attributes = {
        "service.name": service,
        "service.version": VERSION,
        "k8s.pod.name": os.environ.get("POD_NAME", ""),
        "k8s.namespace.name": os.environ.get("POD_NAMESPACE", ""),
    }
    own = Resource.create({name: text for name, text in attributes.items() if text})
    return own.merge(OTELResourceDetector().detect())


def _open_exporter(flags: Flags) -> "SpanExporter":
    if flags.tracing_protocol == "http":
        return _make_http_exporter(flags)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        endpoint=f"{flags.tracing_address}:{flags.tracing_port}",
        insecure=not flags.tracing_creds,
        credentials=_make_credentials(flags),
    )


def _make_credentials(flags: Flags) -> Json:
    if not flags.tracing_creds:
        return None
    import grpc  # type: ignore[import-untyped]  # it comes with the exporter

    return grpc.ssl_channel_credentials(_read_authorities(flags))


def _read_authorities(flags: Flags) -> bytes:
    try:
        return Path(flags.tracing_creds).read_bytes()
    except OSError as error:
        raise UsageError(f"--tracingCreds: {error.strerror or error}") from error


def _make_http_exporter(flags: Flags) -> "SpanExporter":
    """Lictor's exporter: it needs nothing that the one for gRPC does not bring."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    sender = HttpSender(flags)

    class HttpSpanExporter(SpanExporter):
        """Spans as protobuf in the body of a POST."""

        def export(self, spans: "Sequence[ReadableSpan]") -> SpanExportResult:
            is_sent = sender.send(encode_spans(spans).SerializeToString())
            return SpanExportResult.SUCCESS if is_sent else SpanExportResult.FAILURE

        def shutdown(self) -> None:
            sender.close()

    return HttpSpanExporter()


class HttpSender:
    """One connection to a collector, opened again where it broke."""

    def __init__(self, flags: Flags) -> None:
        self._address = (flags.tracing_address, int(flags.tracing_port))
        self._context: ssl.SSLContext | None = None
        if flags.tracing_creds:
            self._context = ssl.create_default_context(cafile=flags.tracing_creds)
        self._connection: http.client.HTTPConnection | None = None
        self._has_complained = False

    def send(self, body: bytes) -> bool:
        """Was it taken? A batch that was not is lost: requests must not pile up behind it."""
        # A connection that has been idle may be closed by the other side: then once more.
        for _ in range(2):
            try:
                status = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                why = str(error)
                self.close()
                if isinstance(error, TimeoutError):
                    break
                continue
            if status < 300:
                self._has_complained = False
                return True
            why = f"the collector answered {status}"
            break
        if not self._has_complained:
            log.warning("spans not sent", extra={"why": why})
            self._has_complained = True
        return False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, body: bytes) -> int:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._open()
        connection.request("POST", _PATH, body, {"content-type": "application/x-protobuf"})
        response = connection.getresponse()
        response.read()
        return response.status

    def _open(self) -> http.client.HTTPConnection:
        return build_connection(*self._address, _TIMEOUT, context=self._context)
