"""`uninstall`: removes an installation from a cluster, even if none of its Pods run."""

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from lictor.cli.flag_command import FlagCommand
from lictor.core.errors import UsageError
from lictor.core.release import VERSION

if TYPE_CHECKING:
    from lictor.install.installation import Installation
    from lictor.kubernetes.client import Client

_EXAMPLES = """\
# Remove lictor; the custom resource definitions, policies and reports stay
lictor uninstall

# Remove everything, with all policies and reports
lictor uninstall --crds

# Remove an installation under Kyverno's names
lictor uninstall --namespace kyverno --prefix kyverno"""


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@click.option("--namespace", default="lictor", show_default=True, help="Where it is installed.")
@click.option(
    "--prefix", default="lictor", show_default=True, help="Prefix of the names of its objects."
)
@click.option(
    "--crds",
    "--delete-crds",
    "delete_crds",
    is_flag=True,
    help="Delete the custom resource definitions too, and with them all policies and reports.",
)
@click.option("--yes", is_flag=True, help="Do not prompt.")
@click.option("--keep-crds", is_flag=True, hidden=True, help="What happens without --crds.")
@click.option("--kubeconfig", default="", help="The kubeconfig file to use.")
@click.option("--context", default="", help="The context of the kubeconfig to use.")
def uninstall(  # noqa: PLR0913  (one for each option)
    *,
    namespace: str,
    prefix: str,
    delete_crds: bool,
    yes: bool,
    keep_crds: bool,
    kubeconfig: str,
    context: str,
) -> None:
    """Remove an installation from the cluster.

    The webhooks are removed first, so that the cluster never calls a missing service. Custom
    resource definitions stay, with all policies and reports, unless --crds is given. A terminal
    shows a confirmation; elsewhere, --crds needs --yes. What stays is listed on standard error.
    """
    from lictor.install.installation import Installation

    if keep_crds and delete_crds:
        raise UsageError("--keep-crds and --crds: give one of them")
    installation = Installation(image="", version=VERSION, prefix=prefix, namespace=namespace)
    asyncio.run(_remove(installation, kubeconfig, context, delete_crds=delete_crds, yes=yes))


async def _remove(
    installation: "Installation", kubeconfig: str, context: str, *, delete_crds: bool, yes: bool
) -> None:
    from lictor.install.removing import uninstall as remove
    from lictor.kubernetes.client import Client
    from lictor.kubernetes.kubeconfig import load_config

    config = load_config(kubeconfig, context)
    client = Client(config, field_manager="lictor-install")
    try:
        if not yes:
            await _confirm(client, installation, delete_crds=delete_crds)
        async for line in remove(client, installation, delete_crds=delete_crds):
            click.echo(line)
        await _print_remaining(client, installation)
    finally:
        await client.close()


async def _confirm(client: "Client", installation: "Installation", *, delete_crds: bool) -> None:
    """Raise UsageError unless the user confirms, or only objects of lictor are removed."""
    from lictor.install.removing import count_objects

    counts = await count_objects(client) if delete_crds else {}
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    if not (sys.stdin and sys.stdin.isatty()):
        if counts:
            raise UsageError(f"--crds deletes {listed}: give --yes as well. Nothing was removed")
        return
    if counts:
        click.echo(f"With the custom resource definitions go {listed}.", err=True)
    what = f"lictor ({installation.prefix} in namespace {installation.namespace})"
    if not click.confirm(f"Remove {what} from {client.config.server}?", err=True):
        raise click.ClickException("nothing was removed")


async def _print_remaining(client: "Client", installation: "Installation") -> None:
    from lictor.install.removing import list_remaining

    async for line in list_remaining(client, installation):
        click.echo(f"stays: {line}", err=True)
