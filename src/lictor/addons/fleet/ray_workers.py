"""Workers that Ray runs, on this machine or in a Ray cluster.

Ray sends tasks and answers as pickles between this process and the workers that it starts for this
run only. A worker gets the policies once, and compiles them itself.
"""

import os
import secrets
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from msgspec.structs import replace

from lictor.addons.fleet.dispatch import Died
from lictor.addons.fleet.evaluator import (
    ClusterFacts,
    FleetAnswer,
    FleetEvaluator,
    FleetJob,
    FleetTask,
)
from lictor.cli.apply_plan import RAY, RAY_ADDRESS
from lictor.cli.inputs.parallel import WorkerError, usable_cores
from lictor.core.errors import UsageError
from lictor.core.release import VERSION

# The cluster whose head runs on this machine.
_HERE = "auto"
_MISSING = "--engine ray needs Ray; install it with: pip install 'lictor[ray]'"
# By default Ray reports its usage to its vendor, and takes settings from `uv run`.
_CONNECTION_ATTEMPTS = 3
_AUTHENTICATION = "RAY_AUTH_MODE"
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}


class _Actor(FleetEvaluator):
    """Runs in a worker."""

    def get_version(self) -> str:
        return VERSION


@contextmanager
def open_ray(engine: str, job: FleetJob, wanted: int = 0) -> Iterator["RayWorkers"]:
    """Connect to a Ray cluster, or run Ray on this machine until the end of the context."""
    if engine == RAY:
        _protect()
    ray = _import_ray()
    with _keep_stdout():
        _connect(ray, engine, wanted)
        try:
            yield RayWorkers(ray, job, wanted)
        finally:
            ray.shutdown()


def _protect() -> None:
    """Require a token: Ray's ports are open, and run any code that they receive."""
    if _AUTHENTICATION not in os.environ:
        os.environ[_AUTHENTICATION] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _import_ray() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UsageError(_MISSING) from error
    return ray


def _connect(ray: Any, engine: str, wanted: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if engine == RAY:
        cores = wanted or usable_cores()
        # The dashboard would open one more port.
        ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)
        return
    address = engine if engine != RAY_ADDRESS + _HERE else _HERE
    for attempt in range(_CONNECTION_ATTEMPTS):
        try:
            ray.init(address=address, **quiet)
            return
        except (ConnectionError, OSError, RuntimeError, ValueError, ImportError) as error:
            # A busy head closes connections; a second attempt succeeds.
            is_last = attempt + 1 == _CONNECTION_ATTEMPTS
            if isinstance(error, ConnectionAbortedError) and not is_last:
                continue
            raise WorkerError(
                f"--engine {engine}: no Ray cluster could be reached there ({_join_lines(error)}); "
                "is it running, with the same versions of Ray and Python as here?"
            ) from error


class RayWorkers:
    """Implements `dispatch.Workers`: each worker is a Ray actor."""

    def __init__(self, ray: Any, job: FleetJob, wanted: int) -> None:
        self._ray = ray
        self._job = ray.put(job)
        self._actor = ray.remote(_Actor).options(num_cpus=1, max_restarts=0)
        self._actors: dict[int, Any] = {}
        # The references of unanswered tasks of each worker, the oldest first.
        self._owed: dict[int, deque[Any]] = {}
        self._shared: dict[str, Any] = {}
        self._started = 0
        self.size = wanted or max(int(ray.cluster_resources().get("CPU", 1)), 1)

    def start(self) -> int:
        worker, self._started = self._started, self._started + 1
        actor = self._actor.remote(self._job)
        self._actors[worker] = actor
        # Checked first: another version could return other results.
        self._owed[worker] = deque([actor.get_version.remote()])
        return worker

    def send(self, worker: int, task: FleetTask) -> None:
        facts = None if task.facts is None else self._share(task.facts)
        sent = self._actors[worker].run.remote(replace(task, facts=None), facts)
        self._owed[worker].append(sent)

    def _share(self, facts: ClusterFacts) -> Any:
        """Send the facts of a cluster once to each machine."""
        if facts.cluster not in self._shared:
            self._shared = {facts.cluster: self._ray.put(facts)}
        return self._shared[facts.cluster]

    def wait(self) -> tuple[int, FleetAnswer | Died]:
        while True:
            oldest = {owed[0]: worker for worker, owed in self._owed.items() if owed}
            (ready,), _ = self._ray.wait(list(oldest), num_returns=1)
            worker = oldest[ready]
            answer = self._fetch(worker, ready)
            if isinstance(answer, str):
                _check_version(answer)
                continue
            return worker, answer

    def _fetch(self, worker: int, ready: Any) -> FleetAnswer | Died | str:
        errors = self._ray.exceptions
        deaths = (
            errors.RayActorError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        )
        try:
            answer: FleetAnswer | str = self._ray.get(ready)
        except deaths as error:
            # If only the connection is broken, the worker still runs, but cannot answer.
            self._ray.kill(self._actors.pop(worker))
            del self._owed[worker]
            return Died(_describe_death(error))
        self._owed[worker].popleft()
        return answer


def _join_lines(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def _check_version(version: str) -> None:
    if version != VERSION:
        raise WorkerError(
            f"a worker has lictor {version}, but this is {VERSION}: install the same everywhere"
        )


def _describe_death(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # If a worker failed to start, the reason is at the end of a traceback.
    return lines[-1] if "creation task" in lines[0] else lines[0]


class _OwnThreadStream:
    """Standard output for the thread that prints results; other threads print to stderr.

    Ray reports the death of workers from another thread, between the results.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        is_own = threading.get_ident() == self._thread
        return (self._stream if is_own else sys.stderr).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _keep_stdout() -> Iterator[None]:
    stream = sys.stdout
    sys.stdout = _OwnThreadStream(stream)
    try:
        yield
    finally:
        sys.stdout = stream
