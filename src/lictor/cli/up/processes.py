"""The processes of an embedded cluster: API server, webhook with controllers, under one parent.

Each imports what it needs by itself, at the same time as the other; the parent stays small.
"""

import logging
import os
from collections.abc import Sequence

from lictor.cli.logs import set_up_logging
from lictor.cli.up.credentials import Credentials, keep_credentials, write_files
from lictor.cli.up.kubeconfig import (
    remove_kubeconfig,
    write_admin_kubeconfig,
    write_own_kubeconfig,
)
from lictor.cli.up.plan import Plan
from lictor.cli.up.policy_files import FileObject
from lictor.serve.slots import ProcessSlot
from lictor.serve.supervisor import SupervisedProcess, Supervisor

# As one and the same Pod, so that whoever is restarted need not wait for a Lease to run out.
_IDENTITY = "lictor-up"
# Without a turn of its loop for so many seconds, lictor is replaced.
_PATIENCE = 15.0


def run_cluster(plan: Plan, objects: Sequence[FileObject], began: float) -> int:
    """Run everything until Ctrl-C; the exit code."""
    set_up_logging(plan.flags)
    if not plan.flags.v:
        logging.getLogger().setLevel(logging.WARNING)
    os.environ["POD_NAME"] = _IDENTITY
    credentials = _write_files(plan)

    def serve(_: ProcessSlot) -> None:
        from lictor.cli.up.api_server import run_api_server
        from lictor.cli.up.welcome import Welcome

        run_api_server(plan, credentials, Welcome(plan, objects, began).run)

    processes = [SupervisedProcess("api-server", serve, ProcessSlot(), is_vital=True)]
    if not plan.is_bare:
        processes.append(
            SupervisedProcess(
                "lictor", lambda slot: _run_lictor(plan, slot), ProcessSlot(), _PATIENCE
            )
        )
    try:
        return Supervisor(processes, ProcessSlot()).run()
    finally:
        if not plan.keeps_objects:
            # It leads nowhere any more.
            remove_kubeconfig(plan.kubeconfig, credentials)


def _write_files(plan: Plan) -> Credentials:
    credentials = keep_credentials(plan.folder, plan.hosts)
    write_files(plan.folder, credentials)
    write_admin_kubeconfig(plan.kubeconfig, plan.url, credentials)
    if not plan.is_bare:
        write_own_kubeconfig(plan.own_kubeconfig, plan.own_url, credentials)
    return credentials


def _run_lictor(plan: Plan, slot: ProcessSlot) -> None:
    """Webhook and controllers in one process: memory counts for more here than many cores."""
    from lictor.cli.up.webhook_certificate import make_certificate, send_secrets
    from lictor.control.run import run_control
    from lictor.serve.options import ServeOptions
    from lictor.serve.service import run_alone

    options = ServeOptions(
        plan.flags,
        plan.names,
        workers=1,
        certificate=plan.webhook_certificate,
        key=plan.webhook_key,
        metrics=plan.metrics,
    )

    secrets = make_certificate(plan)

    async def control() -> None:
        await send_secrets(plan, secrets)
        await run_control((), plan.flags, plan.names, heeds_signals=False)

    run_alone(options, slot, control)
