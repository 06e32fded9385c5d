"""The processes of an embedded cluster: API server, webhook with controllers, under one parent."""

import logging
import os
from collections.abc import Coroutine, Sequence

from lictor.cli.logs import set_up_logging
from lictor.cli.up.api_server import run_api_server
from lictor.cli.up.credentials import (
    Credentials,
    keep_credentials,
    write_admin_kubeconfig,
    write_files,
    write_own_kubeconfig,
)
from lictor.cli.up.plan import Plan
from lictor.cli.up.webhook_certificate import make_secrets
from lictor.cli.up.welcome import Welcome
from lictor.raw import JsonObject
from lictor.serve.slots import Slot
from lictor.serve.supervisor import Post, Supervisor, start

# As one and the same Pod, so that whoever is restarted need not wait for a Lease to run out.
_IDENTITY = "lictor-up"


def run_cluster(plan: Plan, objects: Sequence[JsonObject], began: float) -> int:
    """Run everything until Ctrl-C; the exit code."""
    set_up_logging(plan.flags)
    if not plan.flags.v:
        logging.getLogger().setLevel(logging.WARNING)
    os.environ["POD_NAME"] = _IDENTITY
    credentials = _write_files(plan)
    secrets = () if plan.is_bare else make_secrets(plan)
    welcome = Welcome(plan, objects, began)

    def serve(_: Slot) -> None:
        run_api_server(plan, credentials, secrets, welcome.run)

    post = Post("api-server", serve, Slot(), is_vital=True)
    # It makes its objects while we import what the others need; clients wait at its port.
    start(post)
    try:
        return Supervisor([post], Slot()).run() if plan.is_bare else _run_lictor(plan, post)
    finally:
        if not plan.keeps_objects:
            # It leads nowhere any more.
            plan.kubeconfig.unlink(missing_ok=True)


def _write_files(plan: Plan) -> Credentials:
    credentials = keep_credentials(plan.folder, plan.hosts)
    write_files(plan.folder, credentials)
    write_admin_kubeconfig(plan.kubeconfig, plan.url, credentials)
    if not plan.is_bare:
        write_own_kubeconfig(plan.own_kubeconfig, plan.own_url, credentials)
    return credentials


def _run_lictor(plan: Plan, api_server: Post) -> int:
    from lictor.control.run import run_control
    from lictor.serve.options import Options
    from lictor.serve.service import run_service

    options = Options(
        plan.flags,
        plan.names,
        workers=1,
        certificate=plan.webhook_certificate,
        key=plan.webhook_key,
    )

    def control() -> Coroutine[None, None, None]:
        return run_control((), plan.flags, plan.names, heeds_signals=False)

    # With the webhook in one process: memory counts for more here than answering at once.
    return run_service(options, guest=control, beside=(api_server,))
