"""`uninstall`: an installation out of a cluster, also when nothing of it runs."""

import asyncio
from typing import TYPE_CHECKING

import click

from lictor.cli.flag_command import FlagCommand
from lictor.cli.release import VERSION

if TYPE_CHECKING:
    from lictor.cluster.manifests.installation import Installation

_EXAMPLES = """\
# Remove everything, with all policies and reports
lictor uninstall

# Keep the kinds, and so the policies and reports
lictor uninstall --keep-crds

# Remove an installation under Kyverno's names
lictor uninstall --namespace kyverno --prefix kyverno"""


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@click.option("--namespace", default="lictor", show_default=True, help="Where it is installed.")
@click.option(
    "--prefix", default="lictor", show_default=True, help="How the names of its objects begin."
)
@click.option("--keep-crds", is_flag=True, help="Keep the kinds, all policies and all reports.")
@click.option("--kubeconfig", default="", help="The kubeconfig file to use.")
@click.option("--context", default="", help="The context of the kubeconfig to use.")
def uninstall(
    *, namespace: str, prefix: str, keep_crds: bool, kubeconfig: str, context: str
) -> None:
    """Remove an installation from the cluster.

    The webhooks go first, so that the cluster is never left asking someone who is gone. With the
    kinds go all policies and reports, unless --keep-crds is given.
    """
    from lictor.cluster.manifests.installation import Installation

    installation = Installation(image="", version=VERSION, prefix=prefix, namespace=namespace)
    asyncio.run(_remove(installation, kubeconfig, context, keep_crds=keep_crds))


async def _remove(
    installation: "Installation", kubeconfig: str, context: str, *, keep_crds: bool
) -> None:
    from lictor.cluster.client import Client
    from lictor.cluster.config import load_config
    from lictor.cluster.manifests.installing import uninstall as remove

    client = Client(load_config(kubeconfig, context), field_manager="lictor-install")
    try:
        async for line in remove(client, installation, keep_crds=keep_crds):
            click.echo(line)
    finally:
        await client.close()
