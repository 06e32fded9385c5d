"""The process of the API server: its objects, its controllers, and the word that all is ready."""

import asyncio
import gc
import signal
import ssl
from collections.abc import Awaitable, Callable

import click

from lictor.apiserver.controllers.workloads import WorkloadControllers
from lictor.apiserver.server import Server, ServerSettings, build_server
from lictor.cli.up.credentials import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    CREDENTIALS_FILE,
    KEY_FILE,
    Credentials,
    describe_damage,
)
from lictor.cli.up.own_objects import find_own_user, install, renew_webhooks
from lictor.cli.up.plan import ClusterPlan
from lictor.errors import LictorError

# What is done once the server answers.
Welcome = Callable[[Server], Awaitable[None]]


def run_api_server(plan: ClusterPlan, credentials: Credentials, welcome: Welcome) -> None:
    """Serve until SIGTERM."""
    # The terminal tells everyone of Ctrl-C; we end when all others have.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What was there before the fork is shared: collecting it would copy its pages.
    gc.freeze()
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(plan, credentials, welcome))
    except LictorError as error:
        # People can do something about it; nobody needs to see where in the program it was.
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from error


async def _serve(plan: ClusterPlan, credentials: Credentials, welcome: Welcome) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = build_server(_choose_settings(plan, credentials))
    if not plan.is_bare:
        renew_webhooks(server, plan)
    await server.prepare()
    if not plan.is_bare:
        await install(server, plan.installation)
    try:
        await server.start()
    except ssl.SSLError as error:
        raise describe_damage(plan.folder / CREDENTIALS_FILE, error) from error
    workloads = WorkloadControllers(server.api, server.store, server.catalogue)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(workloads.run()), group.create_task(_greet(welcome, server))]
        await stop.wait()
        for task in tasks:
            task.cancel()
    await server.stop()


async def _greet(welcome: Welcome, server: Server) -> None:
    await welcome(server)


def _choose_settings(plan: ClusterPlan, credentials: Credentials) -> ServerSettings:
    return ServerSettings(
        address=plan.address,
        port=plan.port,
        certificate=plan.folder / CERTIFICATE_FILE,
        key=plan.folder / KEY_FILE,
        client_authority=plan.folder / AUTHORITY_FILE,
        tokens={} if plan.is_bare else {credentials.own_token: find_own_user(plan.installation)},
        database=plan.database,
        listener=plan.listener,
        plain_listener=None if plan.is_bare else plan.plain_listener,
    )
