"""`lictor policy-server` as a whole: first a look at everything, then ports and processes."""

import asyncio
import contextlib
import logging
import shutil
import socket
import tempfile
from importlib import import_module
from pathlib import Path

from lictor.addons.kubewarden.server.options import PolicyServerOptions
from lictor.addons.kubewarden.server.otlp import check_collector
from lictor.addons.kubewarden.server.worker import (
    PolicyServerSockets,
    ReportSlot,
    check_policies,
    run_policy_worker,
)
from lictor.core.errors import LictorError, LoadError
from lictor.http.listener import open_port
from lictor.webhook.capacity import count_cores, divide_memory, find_memory
from lictor.webhook.slots import ProcessSlot, SharedFlag
from lictor.webhook.supervisor import (
    SupervisedProcess,
    Supervisor,
    pair_processes,
    run_in_child,
)

log = logging.getLogger(__name__)

_GRACE_SECONDS = 25.0
# What every process needs, also where it is usually imported when first used: imported once, and
# shared. Each of them would take its time for it before it is ready.
_SHARED = (
    "httptools",
    "uvloop",
    "wasmtime",
    "lictor.kubernetes.config",
    "lictor.core.lang.patch.json_patch",
    "lictor.addons.kubewarden.runtime.rego",
)


def run_policy_server(options: PolicyServerOptions) -> int:
    """Serve until SIGTERM; the exit code. Raises what speaks against starting."""
    if options.sends_metrics or options.sends_traces:
        check_collector()
    for name in _SHARED:
        import_module(name)
    _check_in_child(options)
    folder = _make_folder(options)
    try:
        return _supervise(options, folder)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _make_folder(options: PolicyServerOptions) -> Path | None:
    """For what processes leave to those that take their place; None where nothing can be written.

    In a container there may be no other folder to write to than that for modules.
    """
    for place in (None, options.download_folder):
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix=".lictor-policy-server-", dir=place))
    return None


def _supervise(options: PolicyServerOptions, folder: Path | None) -> int:
    number = options.workers or count_cores()
    # Two for each process, so that a new one can come before the old one goes.
    slots = tuple(ProcessSlot() for _ in range(2 * number + 1))
    sockets = PolicyServerSockets(
        _listen(options.address, options.port),
        _listen(options.address, options.readiness_port),
        _listen(options.address, options.metrics_port) if options.metrics_port else None,
        slots,
        divide_memory(find_memory(options.memory_limit), number, has_control=False),
        tuple(ReportSlot(slot, ProcessSlot()) for slot in slots[:-1]),
        SharedFlag(),
        None if folder is None else folder / "policies.yml",
    )

    def build_process(place: int) -> SupervisedProcess:
        return SupervisedProcess(
            f"worker-{place % number}",
            lambda slot: run_policy_worker(options, sockets, slot),
            slots[place],
            patience=options.patience,
        )

    processes = pair_processes(build_process, number)
    return Supervisor(processes, slots[-1], grace=_GRACE_SECONDS, is_ending=sockets.is_ending).run()


def _listen(address: str, port: int) -> socket.socket:
    try:
        return open_port(address, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LoadError(f"cannot listen on {address}, port {port}: {reason}") from error


def _check_in_child(options: PolicyServerOptions) -> None:
    """Fetch, compile and open everything once, in a process that ends: the parent stays small.

    Compiled modules are on disk afterwards, where all processes find them.
    """
    reason, code = run_in_child(lambda: _check(options).encode(errors="replace")[:60_000])
    if reason or code:
        unknown = f"the policies could not be opened: exit code {code}"
        raise LoadError(reason.decode(errors="replace") or unknown)


def _check(options: PolicyServerOptions) -> str:
    """Why the policies cannot be served; empty if they can."""
    try:
        asyncio.run(check_policies(options))
    except LictorError as error:
        return str(error) or type(error).__name__
    except KeyboardInterrupt:
        return "interrupted"
    except BaseException as error:
        log.exception("policies could not be opened")
        return f"{type(error).__name__}: {error}"
    return ""
