"""The processes of an embedded cluster: API server, webhook with controllers, under one parent.

The processes import their modules in parallel; the parent stays small.
"""

import asyncio
import logging
import os
import select
import signal
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click

from lictor.addons.apiserver.up.credentials import (
    Credentials,
    keep_credentials,
    remove_kubeconfig,
    write_admin_kubeconfig,
    write_files,
    write_own_kubeconfig,
    write_private,
)
from lictor.addons.apiserver.up.plan import ClusterPlan
from lictor.addons.apiserver.up.policy_files import FileObject
from lictor.cli.logs import set_up_logging
from lictor.controllers.certificates import build_secret, choose_settings
from lictor.core.families.built_in import load_part
from lictor.core.raw import JsonObject
from lictor.http.keys import make_authority, make_serving
from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import SECRET
from lictor.webhook.slots import ProcessSlot
from lictor.webhook.span_export import check_tracing
from lictor.webhook.supervisor import SupervisedProcess, Supervisor


def make_certificate(plan: ClusterPlan) -> tuple[JsonObject, ...]:
    """Write the files that the webhook serves with; the Secrets that belong to them.

    From then on the controller of certificates keeps the Secrets, as in any cluster.
    """
    place, now = choose_settings(plan.flags, plan.names), datetime.now(UTC)
    name = f"*.{place.namespace}.svc"
    authority = make_authority(name, place.algorithm, now, place.authority_lifetime)
    serving = make_serving(authority, place.hosts, place.algorithm, now, place.serving_lifetime)
    write_private(plan.webhook_certificate, serving.certificate_pem.encode())
    write_private(plan.webhook_key, serving.key_pem.encode())
    return tuple(
        build_secret(place.namespace, secret, (pair.certificate,), pair)
        for secret, pair in (
            (place.authority_secret, authority),
            (place.serving_secret, serving),
        )
    )


async def send_secrets(plan: ClusterPlan, secrets: Iterable[JsonObject]) -> None:
    """Put the Secrets into the cluster, in place of those of an earlier run."""
    client = Client(load_config(plan.flags.kubeconfig))
    try:
        for secret in secrets:
            await client.apply(SECRET, secret)
    finally:
        await client.close()


# The same Pod name for all runs, so that a restart need not wait for a Lease to expire.
_IDENTITY = "lictor-up"
# Without a turn of its loop for so many seconds, lictor is replaced.
_STALL_SECONDS = 15.0


def run_cluster(plan: ClusterPlan, objects: Sequence[FileObject], began: float) -> int:
    """Run everything until Ctrl-C; the exit code."""
    check_tracing(plan.flags)
    set_up_logging(plan.flags)
    if not plan.flags.v:
        logging.getLogger().setLevel(logging.WARNING)
    os.environ["POD_NAME"] = _IDENTITY
    credentials = _write_files(plan)

    def serve(_: ProcessSlot) -> None:
        from lictor.addons.apiserver.up.api_server import Startup, run_api_server

        run_api_server(plan, credentials, Startup(plan, objects, began))

    departed = ProcessSlot()
    processes = [SupervisedProcess("api-server", serve, ProcessSlot(), is_vital=True)]
    if not plan.is_bare:
        processes.append(
            SupervisedProcess(
                "lictor",
                lambda slot: _run_lictor(plan, slot, departed),
                ProcessSlot(),
                _STALL_SECONDS,
            )
        )
    if plan.page is not None:
        processes.append(SupervisedProcess("web", lambda _: _run_page(plan), ProcessSlot()))
    try:
        code = Supervisor(processes, departed).run()
        if not processes[0].pid:
            click.echo("Error: the API server ended, so lictor up ended too", err=True)
        return code
    finally:
        if not plan.keeps_objects:
            # It leads nowhere any more.
            remove_kubeconfig(plan.kubeconfig, credentials)


def _write_files(plan: ClusterPlan) -> Credentials:
    credentials = keep_credentials(plan.folder, plan.hosts)
    write_files(plan.folder, credentials)
    write_admin_kubeconfig(plan.kubeconfig, plan.url, credentials)
    if not plan.is_bare:
        write_own_kubeconfig(plan.own_kubeconfig, plan.own_url, credentials)
    return credentials


def _run_lictor(plan: ClusterPlan, slot: ProcessSlot, departed: ProcessSlot) -> None:
    """Webhook and controllers in one process: memory counts for more here than many cores."""
    from lictor.controllers.run import run_control
    from lictor.webhook.options import ServeOptions
    from lictor.webhook.service import run_alone

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

    run_alone(options, slot, departed, control)


def _run_page(plan: ClusterPlan) -> None:
    """Wait for the first browser; then read all reports, and serve the page.

    Until then it costs neither time nor memory.
    """
    # The terminal sends Ctrl-C to all processes; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if plan.page is None:
        return
    # There is nothing to finish yet, and that is no failure.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    select.select((plan.page,), (), ())
    import uvloop

    options = load_part("page options")(
        kubeconfigs=(str(plan.kubeconfig),), access_key=plan.page_key, names=plan.names
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(load_part("page server")(options, plan.page).run())
