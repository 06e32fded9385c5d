"""`lictor serve` as a whole: sockets and first certificate, then the processes."""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from lictor.core.errors import UsageError
from lictor.http.listener import open_port
from lictor.http.serving_certificate import LiveCertificate, make_temporary
from lictor.policies.trial_jobs import preload_compiler, serve_trials, start_trials
from lictor.webhook.capacity import ProcessMemory, count_cores, divide_memory, find_memory
from lictor.webhook.file_policies import FileLookups, FilePolicies
from lictor.webhook.metrics_page import FOLDER_VARIABLE
from lictor.webhook.options import Inherited, ServeOptions
from lictor.webhook.policy_webhooks import run_review
from lictor.webhook.probe import Probe, open_unix_socket
from lictor.webhook.slots import ProcessSlot, SharedFlag
from lictor.webhook.span_export import check_tracing
from lictor.webhook.supervisor import (
    SupervisedProcess,
    Supervisor,
    pair_processes,
    run_in_child,
)

if TYPE_CHECKING:
    from lictor.webhook.worker import SideTask

_BACKLOG = 1024
# To finish what is under way; see the worker's own limits.
_GRACE_SECONDS = 35.0
# Where cores are short, what takes long waits for what is answered at once; see nice(1).
_GIVES_WAY = 10
# What every process needs sooner or later.
_SHARED = (
    "httptools",
    "prometheus_client.multiprocess",
    "uvloop",
    "lictor.core.evaluate.generate",
    "lictor.core.evaluate.mutate",
    "lictor.core.evaluate.pod_security",
    "lictor.webhook.components",
    "lictor.webhook.worker",
)
_SHARED_WITH_CLUSTER = (
    "lictor.core.families.kyverno_cel.mutating",
    "lictor.core.families.kyverno_cel.validating",
    "lictor.lint.exceptions",
    "lictor.lint.cel_expressions",
    "lictor.webhook.cluster_backend",
)


# Not the exporter for gRPC, whose library does not like forks.
_SHARED_WITH_TRACING = (
    "opentelemetry.exporter.otlp.proto.common.trace_encoder",
    "opentelemetry.sdk.trace.export",
    "opentelemetry.trace.propagation.tracecontext",
)


def run_alone(
    options: ServeOptions, slot: ProcessSlot, departed: ProcessSlot, side_task: "SideTask"
) -> None:
    """Serve in this process, which someone else supervises, together with another task.

    `departed`: where that supervisor keeps what processes counted that are no more.
    """
    with _metrics_folder():
        share = _find_share(options, 1, has_control=True)
        inherited = _prepare(options, (slot, departed), share)
        _preload(options)
        from lictor.webhook.worker import run_worker

        run_worker(options, inherited, slot, side_task)


def run_service(options: ServeOptions, control: Callable[[], None] | None = None) -> int:
    """Serve until SIGTERM; the exit code. `control` runs the loops in a separate process."""
    check_tracing(options.flags)
    workers = options.workers or count_cores()
    with _metrics_folder() as folder:
        # Two for each worker, so that a new one can come before the old one goes.
        addresses = [f"{folder}/{number}" for number in range(2 * workers)]
        others = tuple(ProcessSlot() for _ in range(5))
        slots = (
            *(ProcessSlot(probe_socket=open_unix_socket(address)) for address in addresses),
            *others,
        )
        share = _find_share(options, workers + 1, has_control=control is not None)
        trials = "" if options.policies else f"{folder}/trials"
        inherited = msgspec.structs.replace(
            _prepare(options, slots, share), slow_address=f"{folder}/slow", trials_address=trials
        )
        _preload(options)
        processes = _build_workers(options, inherited, addresses)
        processes.append(_build_slow(options, inherited, others[:2]))
        if trials:
            processes.append(_build_trials(trials, others[2]))
        if control is not None:
            loops = _hold(control, share, trials)
            processes.append(SupervisedProcess("control", lambda _: loops(), others[3]))
        grace = _GRACE_SECONDS + options.shutdown_delay
        return Supervisor(processes, slots[-1], grace=grace, is_ending=inherited.is_ending).run()


def _build_workers(
    options: ServeOptions, inherited: Inherited, addresses: Sequence[str]
) -> list[SupervisedProcess]:
    """The processes that answer, each with one that may take its place."""
    from lictor.webhook.worker import run_worker

    workers = len(addresses) // 2

    def build_process(number: int) -> SupervisedProcess:
        return SupervisedProcess(
            f"worker-{number % workers}",
            lambda slot: run_worker(options, inherited, slot),
            inherited.slots[number],
            patience=options.patience,
            probe=Probe(addresses[number]),
        )

    return pair_processes(build_process, workers)


def _build_slow(
    options: ServeOptions, inherited: Inherited, slots: Sequence[ProcessSlot]
) -> SupervisedProcess:
    """The process that evaluates slow requests, and one that may take its place."""
    from lictor.webhook.worker import run_worker

    for_slow = _prepare_slow(inherited, inherited.slow_address)
    first, second = (
        SupervisedProcess(
            "slow-requests",
            lambda slot: run_worker(options, for_slow, slot),
            slot,
            patience=options.patience,
            niceness=_GIVES_WAY,
        )
        for slot in slots
    )
    first.successor = second
    return first


def _build_trials(address: str, slot: ProcessSlot) -> SupervisedProcess:
    """One process that tries policies for all others: each of them would take as much memory."""
    listener = open_unix_socket(address, _BACKLOG)
    run = lambda _: serve_trials(listener, run_review)  # noqa: E731
    return SupervisedProcess("trials", run, slot, ends_last=True, niceness=_GIVES_WAY)


def _hold(control: Callable[[], None], share: int, trials: str) -> Callable[[], None]:
    """The controllers, within their part of the memory: else the kernel would choose who ends."""

    def run() -> None:
        ProcessMemory(share)
        start_trials(address=trials)
        control()

    return run


def _prepare_slow(inherited: Inherited, address: str) -> Inherited:
    """For the process that evaluates slow requests: not reachable from outside."""
    listener = open_unix_socket(address, _BACKLOG)
    return msgspec.structs.replace(
        inherited, listener=listener, metrics=None, slow_address="", is_for_slow=True
    )


def _find_share(options: ServeOptions, workers: int, *, has_control: bool) -> int:
    total = find_memory(options.flags.memory_limit)
    return divide_memory(total, workers, has_control=has_control)


def _prepare(options: ServeOptions, slots: tuple[ProcessSlot, ...], share: int) -> Inherited:
    flags = options.flags
    listener = _listen(flags.webhook_server_host, flags.webhook_server_port)
    metrics = None
    if not flags.disable_metrics:
        metrics = options.metrics or _listen(flags.metrics_host, flags.metrics_port)
    certificate, key, is_temporary = _find_certificate(options)
    return Inherited(
        listener,
        metrics,
        slots,
        certificate,
        key,
        is_temporary,
        share,
        SharedFlag(),
        _read_policies(options),
    )


def _read_policies(options: ServeOptions) -> FilePolicies | None:
    if not options.policies:
        return None
    policies = FilePolicies(*options.policies, lookups=FileLookups(options.flags))
    for policy in policies.policies:
        policies.programs(policy)
    return policies


def _listen(host: str, port: int) -> socket.socket:
    """One socket for all processes: none of them loses what another has not accepted yet."""
    try:
        return open_port(host, port)
    except OSError as error:
        raise UsageError(f"cannot listen on port {port}: {error.strerror or error}") from error


def _find_certificate(options: ServeOptions) -> tuple[bytes, bytes, bool]:
    if options.certificate is not None and options.key is not None:
        pair = options.certificate.read_bytes(), options.key.read_bytes()
        if not LiveCertificate().load(*pair):
            raise UsageError("--tlsCert and --tlsKey are no certificate and its private key")
        return *pair, False
    certificate, key = _make_certificate()
    # Without a cluster there is no better one to wait for.
    return certificate, key, not options.policies


def _make_certificate() -> tuple[bytes, bytes]:
    """In a separate process: the libraries take memory that is not needed afterwards."""
    names = ("localhost", "127.0.0.1", "::1", socket.gethostname()[:63])
    data, code = run_in_child(lambda: msgspec.msgpack.encode(make_temporary(names)))
    if code != 0:
        raise UsageError("no certificate could be made; give --tlsCert and --tlsKey")
    certificate, key = msgspec.msgpack.decode(data, type=tuple[bytes, bytes])
    return certificate, key


def _preload(options: ServeOptions) -> None:
    """Import before the processes part: they share what is there already."""
    for name in _SHARED if options.policies else (*_SHARED, *_SHARED_WITH_CLUSTER):
        import_module(name)
    for name in _SHARED_WITH_TRACING if options.flags.enable_tracing else ():
        import_module(name)
    if not options.policies:
        # The first policy in CEL takes a hundred times longer than the next: no request is to wait
        # for that, in any process that takes the place of another.
        preload_compiler()


@contextlib.contextmanager
def _metrics_folder() -> Iterator[str]:
    """Where prometheus-client keeps what several processes count. Must be set before its import.

    Other users must not open it: the sockets of the processes are there, too.
    """
    folder = tempfile.mkdtemp(prefix="lictor-metrics-")
    os.environ[FOLDER_VARIABLE] = folder
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
