"""Collectors of OpenTelemetry that keep the spans they are sent: by gRPC, and by HTTP."""

import ssl
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import pytest

grpc = pytest.importorskip("grpc")

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc  # noqa: E402

PATH = "/v1/traces"


class Collector:
    """What was received, and where it listens."""

    protocol = ""
    port = 0

    def __init__(self) -> None:
        self.requests = []

    @property
    def spans(self):
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self):
        found = self.requests[0].resource_spans[0].resource
        return {each.key: each.value.string_value for each in found.attributes}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError


class GrpcCollector(Collector):
    """TraceService of OTLP."""

    protocol = "grpc"

    def __init__(self) -> None:
        super().__init__()
        keep = self.requests.append

        class Service(trace_service_pb2_grpc.TraceServiceServicer):
            def Export(self, request, context):  # noqa: N802
                keep(request)
                return trace_service_pb2.ExportTraceServiceResponse()

        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()


class HttpCollector(Collector):
    """POST /v1/traces with protobuf in it."""

    protocol = "http"

    def __init__(self, certificate: str = "") -> None:
        super().__init__()
        collector = self
        # What to answer; a test may change it.
        self.status = 200

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == "application/x-protobuf"
                assert self.path == PATH
                if collector.status == 200:
                    message = trace_service_pb2.ExportTraceServiceRequest
                    collector.requests.append(message.FromString(body))
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object):
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Clients keep their connections: nobody waits for them at the end.
        self._server.daemon_threads = True
        self._server.block_on_close = False
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
