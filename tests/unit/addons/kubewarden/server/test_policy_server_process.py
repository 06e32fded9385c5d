"""A policy server while it runs: files that change, certificates, metrics, and processes that die."""

import contextlib
import ctypes
import http.client
import os
import signal
import socket
import ssl
import time
from concurrent import futures
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from policy_serving import PolicyServerProcess, find_port, write_guest

from lictor.http.keys import Algorithm, KeyPair, make_authority, make_serving


def test_policies_are_loaded_without_a_restart(tmp_path: Path) -> None:
    accept, reject = write_guest(tmp_path, "accept"), write_guest(tmp_path, "reject")
    with PolicyServerProcess(tmp_path, {"a": {"module": accept}}, "--workers", "2") as server:
        assert server.ask("a")["allowed"] is True
        assert server.call("POST", "/validate/b", {"request": 1})[0] == 422
        server.write({"a": {"module": reject}, "b": {"module": accept}})
        server.wait_until(lambda: _knows(server, "b"))
        server.wait_until(lambda: not any(server.ask("a")["allowed"] for _ in range(8)))

        (tmp_path / "policies.yml").write_text("a: [")
        server.wait_until(lambda: "policies not taken" in server.read_log())
        assert server.ask("b")["allowed"] is True

        # Also where a process has to start anew while the file is broken.
        for child in _list_children(server.process.pid):
            os.kill(child, signal.SIGKILL)
        server.wait_until(lambda: _knows(server, "b"))
        assert server.ask("a")["allowed"] is False

        server.write({"b": {"module": write_guest(tmp_path, "invalid")}, "c": {"module": accept}})
        time.sleep(2.5)
        assert server.ask("b")["allowed"] is True


def _knows(server: PolicyServerProcess, policy: str) -> bool:
    try:
        return all(server.ask(policy)["allowed"] for _ in range(8))
    except (AssertionError, OSError):
        return False


def _list_children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_what_a_namespace_is_exempt_from(tmp_path: Path) -> None:
    policies = {"no": {"module": write_guest(tmp_path, "reject")}}
    flags = ("--always-accept-admission-reviews-on-namespace", "ours", "--workers", "1")
    with PolicyServerProcess(tmp_path, policies, *flags) as server:
        assert server.ask("no", namespace="ours")["allowed"] is True
        assert server.ask("no", namespace="theirs")["allowed"] is False
        # A process that ends on SIGTERM tells so by its readiness, and answers to the end.
        server.process.terminate()
        server.wait_until(lambda: not server.is_ready())
        assert server.ask("no")["allowed"] is False
        assert server.process.wait(60) == 0


def test_variables_do_as_flags(tmp_path: Path) -> None:
    policies = {"no": {"module": write_guest(tmp_path, "reject")}}
    given = {
        "KUBEWARDEN_ALWAYS_ACCEPT_ADMISSION_REVIEWS_ON_NAMESPACE": "ours",
        "KUBEWARDEN_WORKERS": "1",
        "KUBEWARDEN_LOG_FMT": "json",
        "NO_COLOR": "1",
    }
    with PolicyServerProcess(tmp_path, policies, **given) as server:
        assert server.ask("no", namespace="ours")["allowed"] is True
        assert '"msg":"policy evaluated"' in server.read_log()


def test_certificates_follow_their_files(tmp_path: Path) -> None:
    authority, other = _make_authority("one"), _make_authority("two")
    _write_pair(tmp_path, "server", _make_pair(authority))
    (tmp_path / "clients.pem").write_text(authority.certificate_pem)
    policies = {"a": {"module": write_guest(tmp_path, "accept")}}
    flags = ["--cert-file", "server.pem", "--key-file", "server.key", "--workers", "1"]
    flags += ["--client-ca-file", "clients.pem"]
    with PolicyServerProcess(tmp_path, policies, *flags) as server:
        of_one, of_two = (_make_context(tmp_path, authority, each) for each in (authority, other))
        nobody = _make_context(tmp_path, authority, None)
        assert _is_served(server, of_one)
        assert not _is_served(server, of_two)
        assert not _is_served(server, nobody)

        (tmp_path / "clients.pem").write_text(other.certificate_pem)
        server.wait_until(lambda: _is_served(server, of_two))
        assert not _is_served(server, of_one)
        assert not _is_served(server, nobody)

        (tmp_path / "clients.pem").write_text("junk")
        new = _make_pair(other)
        (tmp_path / "server.pem").write_text(new.certificate_pem)
        time.sleep(2.0)
        assert _is_served(server, of_two)
        (tmp_path / "clients.pem").write_text(other.certificate_pem)
        (tmp_path / "server.key").write_text(new.key_pem)
        trusts_new = _make_context(tmp_path, other, other)
        server.wait_until(lambda: _is_served(server, trusts_new))


def _is_served(server: PolicyServerProcess, context: ssl.SSLContext) -> bool:
    body = {"request": 1}
    try:
        return server.call("POST", "/validate_raw/a", body, context=context)[0] == 200
    except OSError:
        return False


def _make_authority(name: str) -> KeyPair:
    from datetime import UTC, datetime, timedelta

    return make_authority(name, Algorithm.ECDSA, datetime.now(UTC), timedelta(days=1))


def _make_pair(authority: KeyPair) -> KeyPair:
    from datetime import UTC, datetime, timedelta

    hosts = ("localhost", "127.0.0.1")
    return make_serving(authority, hosts, Algorithm.ECDSA, datetime.now(UTC), timedelta(days=1))


def _make_client(authority: KeyPair) -> tuple[str, str]:
    """Certificate and key of a client; those of `make_serving` are for servers only."""
    pem = serialization.Encoding.PEM
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem.encode())
    signer = serialization.load_pem_private_key(authority.key_pem.encode(), None)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .sign(signer, hashes.SHA256())
    )
    words = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem).decode(), words.decode()


def _write_pair(folder: Path, name: str, pair: KeyPair) -> None:
    (folder / f"{name}.pem").write_text(pair.certificate_pem)
    (folder / f"{name}.key").write_text(pair.key_pem)


def _make_context(folder: Path, trusted: KeyPair, issuer: KeyPair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusted.certificate_pem)
    if issuer is not None:
        file = folder / "client.pem"
        file.write_text("".join(_make_client(issuer)))
        context.load_cert_chain(file)
    return context


def test_metrics_on_a_page_and_by_otlp(tmp_path: Path) -> None:
    policies: dict[str, Any] = {
        "no": {"module": write_guest(tmp_path, "reject"), "policyMode": "monitor"},
        "change": {"module": write_guest(tmp_path, "mutate"), "allowedToMutate": True},
        "bad": {"module": write_guest(tmp_path, "invalid")},
    }
    port = find_port()
    flags = ("--continue-on-errors", "--metrics-port", str(port), "--workers", "2")
    with (
        _collect() as (address, received),
        PolicyServerProcess(
            tmp_path,
            policies,
            *flags,
            "--enable-metrics",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{address}",
            OTEL_METRIC_EXPORT_INTERVAL="500",
        ) as server,
    ):
        assert server.ask("no")["allowed"] is True
        assert server.ask("change", "audit")["patch"]
        server.call("POST", "/validate_raw/change", {"request": {"uid": "r"}})
        wanted = (
            'kubewarden_policy_evaluations_total{policy_name="no",policy_mode="monitor",'
            'resource_kind="Pod",resource_namespace="shop",resource_request_operation="CREATE",'
            'accepted="false",mutated="false",request_origin="validate",error_code="403"} 1'
        )
        read = lambda: str(server.call("GET", "/metrics", port=port)[1])  # noqa: E731
        server.wait_until(lambda: wanted in read())
        assert 'policy_name="bad",initialization_error="' in read()
        assert (
            'policy_name="change",policy_mode="protect",accepted="true",mutated="true"}' in read()
        )
        server.wait_until(lambda: _find_labels(received, "no") is not None)
    assert _find_labels(received, "no") == {
        "policy_name": "no", "policy_mode": "monitor", "resource_kind": "Pod",
        "resource_namespace": "shop", "resource_request_operation": "CREATE", "accepted": False,
        "mutated": False, "request_origin": "validate", "error_code": "403",
    }  # fmt: skip


class _collect:  # noqa: N801  (used as a function)
    """An OTLP collector that keeps what it is sent."""

    def __enter__(self) -> tuple[str, list[Any]]:
        grpc = pytest.importorskip("grpc")
        from opentelemetry.proto.collector.metrics.v1 import (
            metrics_service_pb2,
            metrics_service_pb2_grpc,
        )

        received: list[Any] = []

        class Collector(metrics_service_pb2_grpc.MetricsServiceServicer):
            def Export(self, request: Any, _: Any) -> Any:  # noqa: N802
                received.append(request)
                return metrics_service_pb2.ExportMetricsServiceResponse()

        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Collector(), self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return f"127.0.0.1:{port}", received

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)


def _find_labels(received: list[Any], policy: str) -> dict[str, Any] | None:
    """Of the counter, as it was sent last."""
    for request in reversed(received):
        metrics = request.resource_metrics[0].scope_metrics[0].metrics
        counter = next(m for m in metrics if m.name == "kubewarden_policy_evaluations_total")
        for point in counter.sum.data_points:
            labels = {
                each.key: getattr(each.value, each.value.WhichOneof("value"))
                for each in point.attributes
            }
            if labels["policy_name"] == policy:
                return labels
    return None


def list_workers(server: PolicyServerProcess) -> list[int]:
    pid = server.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_process_that_grows_is_replaced(tmp_path: Path) -> None:
    """Here by what clients send and never finish; requests are answered meanwhile."""
    flags = ("--workers", "1", "--memory-limit", "64Mi")
    with (
        PolicyServerProcess(
            tmp_path, {"a": {"module": write_guest(tmp_path, "accept")}}, *flags
        ) as server,
        ExitStack() as stack,
    ):
        [first] = list_workers(server)
        limits = Path(f"/proc/{first}/limits").read_text()
        [line] = [each for each in limits.splitlines() if each.startswith("Max data size")]
        assert line.split()[3] != "unlimited"
        # Until it counts as settled.
        time.sleep(7)
        for _ in range(16):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(
                b"POST /validate/a HTTP/1.1\r\nhost: x\r\ncontent-length: 6000000\r\n\r\n"
            )
            client.sendall(b" " * 5_900_000)
        server.wait_until(
            lambda: server.ask("a")["allowed"] and "process has grown" in server.read_log()
        )
        stack.close()
        server.wait_until(lambda: server.ask("a")["allowed"] and first not in list_workers(server))


def test_the_page_tells_how_far_each_policy_is(tmp_path: Path) -> None:
    accept, invalid = write_guest(tmp_path, "accept"), write_guest(tmp_path, "invalid")
    policies = {"a": {"module": accept, "settings": {"word": "hush-hush"}}}
    with PolicyServerProcess(
        tmp_path, policies, "--continue-on-errors", "--workers", "2"
    ) as server:
        first = _read_states(server)["a"]
        assert first["state"] == "ready"
        # What is changed is another entry, what is broken says why, what is away is waited for.
        server.write(
            {
                "a": {"module": accept, "settings": {"word": "whisper"}},
                "b": {"module": invalid, "settings": {"word": "hush-hush"}},
                "c": {"module": "registry://localhost:1/none:1"},
            }
        )
        server.wait_until(lambda: set(_read_states(server)) == {"a", "b", "c"})
        server.wait_until(lambda: _read_states(server)["a"]["state"] == "ready")
        states = _read_states(server)
        assert states["a"]["digest"] != first["digest"]
        assert (states["b"]["state"], states["c"]["state"]) == ("failed", "pending")
        assert "invalid" in states["b"]["reason"]
        assert states["c"]["reason"]

        (tmp_path / "policies.yml").write_text("a: [whisper")
        server.wait_until(lambda: "refused" in _read_page(server))
        assert _read_states(server) == states
        assert "whisper" not in str(_read_page(server))
        assert server.call("POST", "/policies", port=server.probe_port)[0] == 405


def _read_page(server: PolicyServerProcess) -> Any:
    status, page = server.call("GET", "/policies", port=server.probe_port)
    assert status == 200
    return page


def _read_states(server: PolicyServerProcess) -> Any:
    return _read_page(server)["policies"]


def test_a_policy_that_ends_a_process_is_refused_until_it_changes(tmp_path: Path) -> None:
    loop, accept = write_guest(tmp_path, "loop"), write_guest(tmp_path, "accept")
    policies = {"a": {"module": loop, "policyMode": "monitor"}, "b": {"module": accept}}
    flags = ("--policy-timeout", "60", "--workers", "2")
    with PolicyServerProcess(tmp_path, policies, *flags) as server:
        before = _read_ticks(server)
        with futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(_ask_until_died, server)
            server.wait_until(lambda: _kill_the_busy(server, before) or asked.done())
            server.wait_until(asked.done)
        # The client learns of the death before the parent does.
        server.wait_until(lambda: "policy quarantined" in server.read_log())
        # Every process refuses it, also as a policy that only monitors; the others go on.
        for _ in range(8):
            answer = server.ask("a")
            assert answer["allowed"] is False
            assert "a process died while it evaluated the policy" in answer["status"]["message"]
        server.wait_until(lambda: _knows(server, "b"))
        server.wait_until(lambda: "a process died" in str(_read_page(server)))
        server.write({**policies, "a": {"module": accept}})
        server.wait_until(lambda: _knows(server, "a"))


def _ask_until_died(server: PolicyServerProcess) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.ask("a")


def _kill_the_busy(server: PolicyServerProcess, before: dict[tuple[int, int], int]) -> bool:
    """Send SIGSEGV to the thread that computes, as native code does; has one computed for long?"""
    used = {key: ticks - before.get(key, 0) for key, ticks in _read_ticks(server).items()}
    pid, thread = max((key for key in used if key[0] != key[1]), key=used.__getitem__)
    if used[pid, thread] <= 10:
        return False
    assert ctypes.CDLL(None).tgkill(pid, thread, signal.SIGSEGV) == 0
    return True


def _read_ticks(server: PolicyServerProcess) -> dict[tuple[int, int], int]:
    """How long each thread has computed, by process and thread."""
    found = {}
    for pid in list_workers(server):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                found[pid, int(task.name)] = int(fields[11])
    return found
