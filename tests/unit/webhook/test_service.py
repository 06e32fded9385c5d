"""`lictor serve` as a whole, with real processes on real sockets."""

import http.client
import multiprocessing
import os
import re
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import orjson
import pytest
from serving import make_policy, make_review, require_label, write_policies

from lictor.core.raw import JsonObject
from lictor.http import connection_state
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.webhook import capacity
from lictor.webhook.options import ServeOptions
from lictor.webhook.service import run_service

# Forked children on a busy machine take their time.
PATIENCE = 90.0


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Service:
    """A running service, seen from outside."""

    def __init__(self, port: int, metrics: int, pid: int) -> None:
        self.port = port
        self.metrics = metrics
        self.pid = pid

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)

    def ask(self, review: JsonObject, path: str = "/validate/fail") -> JsonObject:
        headers = {"content-type": "application/json"}
        body = orjson.dumps(review)
        with closing(self.connect()) as connection:
            connection.request("POST", f"{path}?timeout=10s", body, headers)
            answer = connection.getresponse()
            assert answer.status == 200
            response: JsonObject = orjson.loads(answer.read())["response"]
        return response

    def is_ready(self) -> bool:
        with closing(self.connect()) as connection:
            try:
                connection.request("GET", "/health/readiness")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False

    def read_metrics(self) -> str:
        """The page; whoever showed it may have ended just now, and another one shows it too."""
        deadline = time.monotonic() + PATIENCE
        while True:
            metrics = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=30)
            with closing(metrics) as connection:
                try:
                    connection.request("GET", "/metrics")
                    return connection.getresponse().read().decode()
                except (OSError, http.client.HTTPException):
                    assert time.monotonic() < deadline
            time.sleep(0.05)

    def read_dropped(self) -> float:
        """Connections dropped because they said nothing."""
        page = self.read_metrics()
        found = re.search(r'lictor_connections_dropped_total\{reason="silent"\} (\S+)', page)
        return float(found[1]) if found else 0.0

    def wait_for_children(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(self.children) < count:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    @property
    def children(self) -> list[int]:
        """The workers and, unless some were replaced, at the end the one for slow requests."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        with suppress(FileNotFoundError):
            return [int(pid) for pid in path.read_text().split()]
        return []

    def wait(self, what: str) -> None:
        """Until something is true; `what` names the method."""
        deadline = time.monotonic() + PATIENCE
        while not getattr(self, what)():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)


@contextmanager
def serve(
    folder: Path,
    workers: int = 2,
    patience: float = 20.0,
    shutdown_delay: str = "0s",
) -> Iterator[Service]:
    port, metrics = _find_port(), _find_port()
    flags = Flags(
        webhook_server_host="127.0.0.1",
        webhook_server_port=port,
        metrics_host="127.0.0.1",
        metrics_port=metrics,
        shutdown_delay=shutdown_delay,
    )
    options = ServeOptions(flags, Names(), workers, (folder,), patience=patience)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=lambda: os._exit(run_service(options)))
    process.start()
    assert process.pid is not None
    service = Service(port, metrics, process.pid)
    try:
        service.wait("is_ready")
        # One more for slow requests; it may come after the first of the workers is ready.
        service.wait_for_children(workers + 1)
        yield service
    finally:
        process.terminate()
        process.join(PATIENCE)
        assert process.exitcode == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_policies(tmp_path, make_policy("teams", require_label("team")))
    return tmp_path


def test_it_answers_counts_and_ends(folder: Path) -> None:
    with serve(folder) as service:
        assert service.ask(make_review({"team": "x"}))["allowed"]
        assert not service.ask(make_review())["allowed"]
        deadline = time.monotonic() + PATIENCE
        while 'request_allowed="false"' not in service.read_metrics():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "kyverno_policy_results_total" in service.read_metrics()


def test_a_process_that_dies_or_hangs_is_replaced(folder: Path) -> None:
    with serve(folder, workers=2, patience=1.5) as service:
        first = service.children[:2]
        os.kill(first[0], signal.SIGKILL)
        # The other one answers whatever happens, on the same socket.
        for _ in range(5):
            assert service.ask(make_review({"team": "x"}))["allowed"]
        _wait_for_others(service, first[:1])
        os.kill(first[1], signal.SIGSTOP)
        _wait_for_others(service, first)
        service.wait("is_ready")
        assert service.ask(make_review({"team": "x"}))["allowed"]


def test_a_process_that_accepts_nobody_is_replaced(folder: Path) -> None:
    """It gives signs of life all the time; but it has no more files to open for connections."""
    with serve(folder, workers=2, patience=1.5) as service:
        (first, other, _) = service.children
        # The parent has asked it by then, and was answered.
        time.sleep(2.5)
        resource.prlimit(first, resource.RLIMIT_NOFILE, (3, 3))
        for _ in range(5):
            assert service.ask(make_review({"team": "x"}))["allowed"]
        _wait_for_others(service, [first])
        assert other in service.children
        service.wait("is_ready")


def _wait_for_others(service: Service, gone: list[int], count: int = 3) -> None:
    deadline = time.monotonic() + PATIENCE
    while set(gone) & set(service.children) or len(service.children) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_others_do_not_wait_for_slow_requests(tmp_path: Path) -> None:
    """One process for all: while it judged a slow request, nobody else was answered."""
    slow = require_label("team")
    # More work than anyone has time for, about some Pods.
    letters = f"split('{','.join('a' * 400)}', ',')"
    condition = {"key": "{{ element }}", "operator": "Equals", "value": "b"}
    work: JsonObject = {"list": letters, "deny": {"conditions": {"any": [condition]}}}
    for _ in range(2):
        work = {"list": letters, "foreach": [work]}
    slow["validate"] = {"failureAction": "Enforce", "message": "no", "foreach": [work]}
    chosen = {"matchLabels": {"slow": "yes"}}
    slow["match"] = {"any": [{"resources": {"kinds": ["Pod"], "selector": chosen}}]}
    write_policies(
        tmp_path,
        make_policy("slow", slow),
        make_policy("teams", require_label("team")),
    )
    quick = make_review(namespace="green")
    heavy = make_review({"team": "x", "slow": "yes"}, namespace="red")
    with serve(tmp_path, workers=1) as service:
        answers: list[JsonObject] = []
        clients = [
            threading.Thread(target=lambda: answers.append(service.ask(heavy))) for _ in range(3)
        ]
        for client in clients:
            client.start()
        answered = 0
        while any(client.is_alive() for client in clients):
            assert not service.ask(quick)["allowed"]
            answered += 1
        assert len(answers) == 3
        assert "could not be evaluated" in str(answers[0])
    # Where they wait, they are answered between the slow ones.
    assert answered >= 8


def test_open_connections_are_answered_to_the_end(folder: Path) -> None:
    with serve(folder, workers=1) as service, closing(service.connect()) as connection:
        body = orjson.dumps(make_review({"team": "x"}))
        connection.putrequest("POST", "/validate/fail")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body[:50])
        os.kill(service.pid, signal.SIGTERM)
        time.sleep(0.5)
        connection.send(body[50:])
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("connection") == "close"
        assert orjson.loads(answer.read())["response"]["allowed"]


class _Replicas:
    """What a Service does: new connections go to whoever was ready when it last looked."""

    def __init__(self, *services: Service) -> None:
        self.ready = list(services)
        self._services = services
        self._turn = 0

    def look(self) -> None:
        self.ready = [service for service in self._services if service.is_ready()]

    def connect(self) -> http.client.HTTPSConnection:
        self._turn += 1
        return self.ready[self._turn % len(self.ready)].connect()


class _Client(threading.Thread):
    """Asks all the time, on a connection that it keeps for as long as the server wants it."""

    def __init__(self, replicas: _Replicas, stop: threading.Event) -> None:
        super().__init__()
        self._replicas = replicas
        self._ended = stop
        self.answered = 0
        self.seconds: list[float] = []
        self.lost: list[str] = []

    def run(self) -> None:
        body = orjson.dumps(make_review({"team": "x"}))
        connection = self._replicas.connect()
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                connection.request(
                    "POST", "/validate/fail", body, {"content-type": "application/json"}
                )
                answer = connection.getresponse()
                ends = answer.getheader("connection") == "close"
                assert orjson.loads(answer.read())["response"]["allowed"]
                self.answered += 1
                self.seconds.append(time.monotonic() - began)
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
                ends = True
            if ends:
                connection.close()
                connection = self._replicas.connect()
        connection.close()


@contextmanager
def _load(replicas: _Replicas, clients: int = 3) -> Iterator[list[_Client]]:
    stop = threading.Event()
    threads = [_Client(replicas, stop) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_no_request_is_lost_when_a_replica_ends(folder: Path) -> None:
    with (
        serve(folder, workers=1) as stays,
        serve(folder, workers=2, shutdown_delay="4s") as ends,
    ):
        replicas = _Replicas(stays, ends)
        with _load(replicas) as clients:
            time.sleep(0.3)
            os.kill(ends.pid, signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE
            while replicas.ready != [stays]:
                assert time.monotonic() < deadline
                replicas.look()
            while ends.children:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert [client.lost for client in clients] == [[]] * len(clients)
        assert min(client.answered for client in clients) > 10


def test_no_request_is_lost_when_a_process_ends(folder: Path) -> None:
    with serve(folder, workers=2) as service, _load(_Replicas(service)) as clients:
        for _ in range(2):
            before = service.children
            os.kill(before[0], signal.SIGTERM)
            _wait_for_others(service, before[:1])
            service.wait("is_ready")
        time.sleep(0.2)
    assert [client.lost for client in clients] == [[]] * len(clients)


def _begin_request(service: Service, body: bytes) -> http.client.HTTPSConnection:
    """All of it but for its end."""
    connection = service.connect()
    connection.putrequest("POST", "/validate/fail")
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", str(len(body)))
    connection.endheaders(body[:-10])
    return connection


def test_a_process_that_has_grown_is_replaced_and_nothing_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grown by bodies that come in part: what was begun is answered by the old process."""
    monkeypatch.setattr(capacity, "_SETTLING_SECONDS", 1.0)
    monkeypatch.setattr(capacity, "_TRIM_SECONDS", 1.0)
    monkeypatch.setattr(capacity, "_LEAST_GROWTH", 12_000_000)
    monkeypatch.setattr(capacity, "_GROWTH_SHARE", 0.0)
    # As long as it takes: nobody is to be let go because the machine is busy.
    monkeypatch.setattr(connection_state, "_REQUEST_SECONDS", 2 * PATIENCE)
    body = orjson.dumps(make_review({"team": "x"})).ljust(2_000_000)
    recycled = 'lictor_worker_recycled_total{process="worker-0"} 1.0'
    with (
        serve(folder, workers=1) as service,
        _load(_Replicas(service), clients=2) as clients,
    ):
        (first, _) = service.children
        begun = []
        deadline = time.monotonic() + PATIENCE
        # The first of them may count as usual; more of them do not, whenever that is measured.
        while recycled not in service.read_metrics():
            assert time.monotonic() < deadline
            begun.append(_begin_request(service, body))
            time.sleep(0.2)
        # The old process has been told to end by now.
        assert begun
        for connection in begun:
            connection.send(body[-10:])
        for connection in begun:
            response = orjson.loads(connection.getresponse().read())["response"]
            assert response["allowed"], response
            connection.close()
        _wait_for_others(service, [first], count=2)
    assert [client.lost for client in clients] == [[]] * len(clients)


def test_killed_processes_lose_what_they_had_and_no_more(folder: Path) -> None:
    with serve(folder, workers=2) as service, _load(_Replicas(service)) as clients:
        for _ in range(2):
            before = service.children
            os.kill(before[0], signal.SIGKILL)
            _wait_for_others(service, before[:1])
        service.wait("is_ready")
        time.sleep(0.2)
    assert all(len(client.lost) <= 2 for client in clients), [client.lost for client in clients]
    assert min(client.answered for client in clients) > 10


def test_silent_connections_harm_nobody(folder: Path) -> None:
    """More than may be open at once, from several addresses; dropped, and others are served."""
    with serve(folder, workers=1) as service, _load(_Replicas(service), clients=2) as clients:
        silent = []
        for number in range(4500):
            sock = socket.create_connection(
                ("127.0.0.1", service.port), source_address=(f"127.0.1.{1 + number // 1500}", 0)
            )
            silent.append(sock)
        for _ in range(5):
            assert service.ask(make_review({"team": "x"}))["allowed"]
        deadline = time.monotonic() + PATIENCE
        while service.read_dropped() < len(silent):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for sock in silent:
            sock.close()
    assert [client.lost for client in clients] == [[]] * len(clients)
    assert max(max(client.seconds) for client in clients) < 20
