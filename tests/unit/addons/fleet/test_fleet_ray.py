"""What holds for Ray's workers before any Ray is asked."""

import os
import sys
import threading

import pytest

from lictor.addons.fleet import ray_workers
from lictor.cli.inputs.parallel import WorkerError


def test_a_ray_of_our_own_is_closed_to_others(monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    ray_workers._protect()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    first = os.environ["RAY_AUTH_TOKEN"]
    assert len(first) == 64
    del os.environ["RAY_AUTH_MODE"]
    ray_workers._protect()
    assert os.environ["RAY_AUTH_TOKEN"] != first


def test_what_someone_chose_stays(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    ray_workers._protect()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_a_worker_of_another_version_is_refused():
    with pytest.raises(WorkerError, match=r"a worker has lictor 0\.0\.1"):
        ray_workers._check_version("0.0.1")


def test_what_ray_prints_does_not_get_among_results(capsys):
    with ray_workers._keep_stdout():
        print("a result")  # noqa: T201
        thread = threading.Thread(target=lambda: print("a worker died"))  # noqa: T201
        thread.start()
        thread.join()
        assert sys.stdout.isatty() is False
    found = capsys.readouterr()
    assert (found.out, found.err) == ("a result\n", "a worker died\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The actor died unexpectedly.\nmore\nmuch more", "The actor died unexpectedly."),
        (
            "error in its creation task\n  File x\nNo module named 'lictor'",
            "No module named 'lictor'",
        ),
        ("", "RuntimeError"),
    ],
)
def test_one_line_says_why_a_worker_died(text, reason):
    assert ray_workers._describe_death(RuntimeError(text)) == reason


class FakeRay:
    """Refuses so many times."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.addresses = []

    def init(self, address, **_):
        self.addresses.append(address)
        if self.errors:
            raise self.errors.pop(0)


def test_a_head_that_is_busy_is_asked_again():
    ray = FakeRay(ConnectionAbortedError("busy"), ConnectionAbortedError("busy"))
    ray_workers._connect(ray, "ray://head:10001", 2)
    assert ray.addresses == ["ray://head:10001"] * 3


@pytest.mark.parametrize(
    ("errors", "calls"),
    [([ConnectionError("nobody\n there")], 1), ([ConnectionAbortedError("nobody there")] * 3, 3)],
)
def test_a_head_that_cannot_be_reached_is_named(errors, calls):
    ray = FakeRay(*errors)
    with pytest.raises(WorkerError, match=r"ray://head:10001: no Ray .*\(nobody there\)"):
        ray_workers._connect(ray, "ray://head:10001", 2)
    assert len(ray.addresses) == calls


def test_auto_is_the_cluster_of_this_machine():
    ray = FakeRay()
    ray_workers._connect(ray, "ray://auto", 2)
    assert ray.addresses == ["auto"]
