"""A registry that is slow or dead holds up nobody else."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from registry_server import RegistryServer

from lictor.core.errors import LookupFailedError
from lictor.core.ports import DEFAULT_ACCESS
from lictor.images.credentials import CredentialSources
from lictor.images.registries import RemoteRegistries
from lictor.images.settings import RegistrySettings

_MANY = 100
# Fewer than may wait for all silent registries together, however busy the machine is.
_FEW = 40


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def dead() -> Iterator[str]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=_MANY) as listening:
        yield f"localhost:{listening.getsockname()[1]}"


def _ask(registries: RemoteRegistries, name: str, number: int) -> None:
    registries.manifest(f"{name}/app", f"v{number}", DEFAULT_ACCESS)


def _ask_in_background(
    registries: RemoteRegistries, name: str, count: int = _MANY
) -> threading.Thread:
    def ask_all() -> None:
        with ThreadPoolExecutor(count) as threads:
            for number in range(count):
                threads.submit(_ask, registries, name, number)

    thread = threading.Thread(target=ask_all)
    thread.start()
    return thread


def test_a_dead_registry_delays_no_question_to_others(server: RegistryServer, dead: str) -> None:
    settings = RegistrySettings(
        exchange_seconds=5.0, question_seconds=5.0, connections=16, connections_to_strangers=12
    )
    registries = RemoteRegistries(settings)
    for number in range(20):
        server.put_image("app", f"v{number}", {})
    stuck = _ask_in_background(registries, dead, _FEW)
    time.sleep(0.3)
    spent = []
    # The other one is as unknown as the dead one, and its share is its own.
    for number in range(20):
        started = time.monotonic()
        _ask(registries, server.name, number)
        spent.append(time.monotonic() - started)
    assert stuck.is_alive()
    # A few milliseconds; the machine may be busy otherwise.
    assert sorted(spent)[len(spent) // 2] < 1
    stuck.join()


def test_nobody_waits_for_a_registry_that_was_silent_before(dead: str) -> None:
    registries = RemoteRegistries(RegistrySettings(exchange_seconds=0.1, attempts=1))
    for number in range(3):
        with pytest.raises(LookupFailedError, match="does not answer"):
            _ask(registries, dead, number)
    # Said at once: whoever waits says that it does not answer.
    with pytest.raises(LookupFailedError, match="did not answer 3 times in a row"):
        _ask(registries, dead, 4)


def test_questions_that_wait_for_one_registry_are_counted(dead: str) -> None:
    settings = RegistrySettings(
        exchange_seconds=1.0, connections_per_registry=2, waiting_per_registry=3
    )
    registries = RemoteRegistries(settings)
    messages: list[str] = []

    def ask(number: int) -> None:
        try:
            _ask(registries, dead, number)
        except LookupFailedError as error:
            messages.append(str(error))

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(ask, range(10)))
    assert sum("too many requests are waiting" in message for message in messages) == 5


def test_a_deadline_ends_the_wait(dead: str) -> None:
    registries = RemoteRegistries(remaining=lambda: 0.2)
    started = time.monotonic()
    with pytest.raises(LookupFailedError, match=r"did not answer within 0\.2 s"):
        _ask(registries, dead, 1)
    assert time.monotonic() - started < 12


def test_an_answer_that_drips_is_not_read_for_ever() -> None:
    """Each piece comes in time; the whole does not."""
    stop = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            while not stop.wait(0.05):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        registries = RemoteRegistries(RegistrySettings(exchange_seconds=0.4))
        with pytest.raises(LookupFailedError, match="does not answer"):
            _ask(registries, f"localhost:{listening.getsockname()[1]}", 1)
        stop.set()
        thread.join()


def test_many_threads_ask_at_the_same_time(server: RegistryServer) -> None:
    """100 questions of 100 ms: one after the other they take 10 s."""
    for number in range(_MANY):
        server.put_image("app", f"v{number}", {})

    def wait(_path: str, _headers: object) -> None:
        time.sleep(0.1)

    server.handle = wait
    registries = RemoteRegistries()
    started = time.monotonic()
    with ThreadPoolExecutor(64) as threads:
        list(threads.map(lambda number: _ask(registries, server.name, number), range(_MANY)))
    assert time.monotonic() - started < 9


def test_few_threads_wait_for_a_dead_registry(dead: str) -> None:
    registries = RemoteRegistries(RegistrySettings(exchange_seconds=3.0, question_seconds=3.0))
    stuck = _ask_in_background(registries, dead)
    time.sleep(1.3)
    with pytest.raises(LookupFailedError, match="requests wait for it already"):
        _ask(registries, dead, 0)
    assert stuck.is_alive()
    stuck.join()


def test_a_helper_that_hangs_delays_no_question_to_others(
    server: RegistryServer, tmp_path: Path
) -> None:
    """Registries that want to be logged in to wait for it; the others do not."""
    program, finish = tmp_path / "docker-credential-slow", tmp_path / "finish"
    program.write_text(f"#!/bin/sh\nuntil [ -e {finish} ]; do sleep 0.05; done\n")
    program.chmod(0o755)
    (tmp_path / "config.json").write_text('{"credsStore": "slow"}')
    environment = {"DOCKER_CONFIG": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    sources = CredentialSources(environment=environment, helper_seconds=60.0)
    registries = RemoteRegistries(sources=sources)
    server.put_image("app", "v1", {})
    is_challenged = threading.Event()

    def challenge(_path: str, _headers: object) -> tuple[int, dict[str, str], bytes]:
        is_challenged.set()
        return 401, {"WWW-Authenticate": 'Basic realm="x"'}, b""

    with RegistryServer() as private:
        private.handle = challenge
        stuck = _ask_in_background(registries, private.name, _FEW)
        assert is_challenged.wait(60)
        _ask(registries, server.name, 1)
        assert stuck.is_alive()
        finish.touch()
        stuck.join()
