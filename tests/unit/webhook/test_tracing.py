"""Spans of admissions, at collectors that speak OTLP; and what is said where something is missing."""

import asyncio
import socket
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from collectors import Collector, GrpcCollector, HttpCollector
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.core.errors import UsageError
from lictor.http.keys import Algorithm, make_authority, make_serving
from lictor.http.messages import HttpRequest
from lictor.kubernetes.flags import Flags
from lictor.webhook import span_export
from lictor.webhook.span_export import HttpSender, check_tracing
from lictor.webhook.tracing import build_tracer, render_parent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {b"traceparent": [f"00-{TRACE}-00f067aa0ba902b7-01".encode()]}


def choose(collector: Collector, **more: str) -> Flags:
    return Flags(
        enable_tracing=True,
        tracing_address="127.0.0.1",
        tracing_port=str(collector.port),
        tracing_protocol=collector.protocol,
        **more,
    )


def read(attributes):
    kinds = ("string_value", "bool_value", "double_value", "array_value")
    return {
        each.key: next(getattr(each.value, kind) for kind in kinds if each.value.HasField(kind))
        for each in attributes
    }


def trace(flags: Flags, folder: Path, *policies, headers=None, review=None):
    """Ask once, and send everything."""
    tracer = build_tracer(flags)
    assert tracer is not None
    bench = Bench(write_policies(folder, *policies), flags=flags, tracer=tracer)
    request = review or make_review(dryRun=True)
    asyncio.run(bench.post("/validate/fail", request, headers=headers))
    tracer.close()


@pytest.mark.parametrize("open_collector", [GrpcCollector, HttpCollector])
def test_a_span_tells_of_request_answer_and_rules(open_collector, tmp_path: Path) -> None:
    with open_collector() as collector:
        trace(
            choose(collector),
            tmp_path,
            make_policy("teams", require_label("team"), require_label("tier")),
            make_policy("fine", require_label("team", "Audit")),
        )
    (span,) = collector.spans
    assert span.name == "ADMISSION CREATE Pod"
    assert span.kind == span.SPAN_KIND_SERVER
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60e9
    found = read(span.attributes)
    expected = {
        "http.target": "/validate/fail",
        "admission.request.name": "web",
        "admission.request.namespace": "shop",
        "admission.request.uid": "6b7a",
        "admission.request.dryrun": True,
        "admission.request.kind.version": "v1",
        "admission.request.resource.resource": "pods",
        "admission.request.user.name": "ann",
        "admission.response.allowed": False,
    }
    assert {name: found[name] for name in expected} == expected
    assert "The label team is required" in found["admission.response.result.message"]
    # The object itself may hold secrets.
    assert not any("object" in name for name in found)
    # Rules that only audit are asked after the answer: they are no part of it.
    events = [(event.name, read(event.attributes)) for event in span.events]
    told = [(e["kyverno.policy.name"], e["kyverno.rule.name"], e["kyverno.rule.result"]) for _, e in events]  # fmt: skip
    assert told == [("teams", "need-team", "fail"), ("teams", "need-tier", "fail")]
    name, first = events[0]
    assert name == "policy"
    assert (first["kyverno.policy.group"], first["kyverno.policy.kind"]) == (
        "kyverno.io",
        "ClusterPolicy",
    )
    assert span.start_time_unix_nano <= span.events[0].time_unix_nano <= span.end_time_unix_nano
    assert collector.resource["service.name"] == "kyverno"


def test_the_span_of_the_api_server_is_the_parent(tmp_path: Path) -> None:
    with HttpCollector() as collector:
        policy = make_policy("teams", require_label("team"))
        trace(choose(collector), tmp_path, policy, headers=PARENT)
    (span,) = collector.spans
    assert span.trace_id.hex() == TRACE
    assert span.parent_span_id.hex() == "00f067aa0ba902b7"


def test_the_process_for_slow_requests_continues_the_trace() -> None:
    with HttpCollector() as collector:
        tracer = build_tracer(choose(collector))
        assert tracer is not None
        call = HttpRequest("POST", "/validate", b"", b"", b"", PARENT)

        def render() -> str:
            tracer.begin(call)
            return render_parent()

        line = copy_context().run(render)
        tracer.close()
    assert line.startswith(f"traceparent: 00-{TRACE}-")
    assert line.endswith("-01\r\n")
    assert "00f067aa0ba902b7" not in line


def test_without_a_trace_nothing_is_added_to_requests() -> None:
    assert render_parent() == ""


def test_what_the_api_server_does_not_sample_is_not_sent(tmp_path: Path) -> None:
    with HttpCollector() as collector:
        headers = {b"traceparent": [PARENT[b"traceparent"][0][:-2] + b"00"]}
        trace(choose(collector), tmp_path, make_policy("p", require_label("a")), headers=headers)
    assert collector.spans == []


def test_the_usual_variables_say_who_sends(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gate")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=platform")
    monkeypatch.setenv("POD_NAME", "lictor-0")
    with HttpCollector() as collector:
        trace(choose(collector), tmp_path, make_policy("p", require_label("a")))
    found = collector.resource
    assert (found["service.name"], found["team"], found["k8s.pod.name"]) == (
        "gate",
        "platform",
        "lictor-0",
    )


def test_many_rules_are_many_events(tmp_path: Path) -> None:
    """The usual limit of OpenTelemetry, 128, would lose the first ones."""
    policies = [
        make_policy(f"p{n}", *({**require_label("team"), "name": f"r{m}"} for m in range(10)))
        for n in range(20)
    ]
    with HttpCollector() as collector:
        trace(choose(collector), tmp_path, *policies)
    (span,) = collector.spans
    assert len(span.events) == 200


def test_spans_go_over_tls_where_an_authority_is_named(tmp_path: Path) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = make_authority("test", Algorithm.ECDSA, now, day)
    serving = make_serving(authority, ("127.0.0.1",), Algorithm.ECDSA, now, day)
    pair, trusted = tmp_path / "pair.pem", tmp_path / "ca.pem"
    pair.write_text(serving.certificate_pem + serving.key_pem)
    trusted.write_text(authority.certificate_pem)
    (tmp_path / "policies").mkdir()
    with HttpCollector(str(pair)) as collector:
        flags = choose(collector, tracing_creds=str(trusted))
        check_tracing(flags)
        trace(flags, tmp_path / "policies", make_policy("p", require_label("a")))
    assert len(collector.spans) == 1


def test_a_collector_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sender = HttpSender(Flags(tracing_address="127.0.0.1", tracing_port=str(port)))
    assert [sender.send(b""), sender.send(b"")] == [False, False]
    assert [record.message for record in caplog.records] == ["spans not sent"]


def test_a_connection_that_was_closed_is_opened_again() -> None:
    with HttpCollector() as collector:
        sender = HttpSender(choose(collector))
        assert sender.send(b"")
        assert sender._connection is not None
        sock = sender._connection.sock
        assert sock is not None
        sock.shutdown(socket.SHUT_RDWR)
        assert sender.send(b"")
        collector.status = 503
        assert not sender.send(b"")
        sender.close()


def test_nothing_is_traced_unless_asked_for() -> None:
    assert build_tracer(Flags()) is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Flags(enable_tracing=True), "tracingAddress"),
        (
            Flags(enable_tracing=True, tracing_address="x", tracing_creds="/no/such"),
            "tracingCreds: No such file",
        ),
    ],
)
def test_what_is_missing_is_told_before_anything_starts(flags: Flags, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_tracing(flags)


def test_a_missing_library_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_export, "find_spec", lambda _: None)
    check_tracing(Flags())
    with pytest.raises(UsageError, match=r"lictor\[tracing\]"):
        check_tracing(Flags(enable_tracing=True, tracing_address="x"))
