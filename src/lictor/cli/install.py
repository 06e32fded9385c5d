"""`install`: prints or applies all manifests of an installation."""

import asyncio
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.raw import Json, JsonObject
from lictor.release import VERSION

if TYPE_CHECKING:
    from lictor.cluster.config import ClusterConfig
    from lictor.cluster.manifests.installation import Installation
    from lictor.cluster.manifests.installing import InstallStep

_EXAMPLES = """\
# Look at everything, then apply it
lictor install > lictor.yaml
kubectl apply --server-side -f lictor.yaml

# Install into the cluster of the current context
lictor install --apply

# Take Kyverno's place, with its names
lictor install --namespace kyverno --prefix kyverno --apply

# A small cluster: one Deployment with one replica
lictor install --all-in-one --replicas 1 --apply

# Flags and settings as Kyverno has them
lictor install --flag enablePolicyException=true --flag exceptionNamespace=policy-exceptions \\
  --set-config excludeGroups=system:nodes,admins"""
# Set by the options of this command, or without a meaning in a cluster.
_OWN_FLAGS = frozenset(("context", "kubeconfig", "openreportsEnabled"))


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@click.option("--namespace", default="lictor", show_default=True, help="Where to install.")
@click.option(
    "--prefix", default="lictor", show_default=True, help="Prefix of the names of all objects."
)
@click.option(
    "--replicas", type=int, default=3, show_default=True, help="Replicas of the webhook server."
)
@click.option(
    "--controller-replicas",
    type=int,
    default=1,
    show_default=True,
    help="Replicas of each other controller.",
)
@click.option("--all-in-one", is_flag=True, help="One Deployment instead of four.")
@click.option(
    "--image", default=f"lictor:{VERSION}", show_default=True, help="The image that Pods run."
)
@slice_option(
    "--image-pull-secret",
    "image_pull_secrets",
    help="Secrets of the namespace that the image is pulled with.",
)
@click.option(
    "--openreports", "open_reports", is_flag=True, help="Write reports of openreports.io."
)
@click.option("--skip-crds", is_flag=True, help="Leave out the kinds; lictor crds prints them.")
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="NAME=VALUE",
    help="A flag for the controllers, under Kyverno's name.",
)
@click.option(
    "--set-config",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An entry of the ConfigMap, under Kyverno's name.",
)
@click.option("--apply", is_flag=True, help="Apply to the cluster instead of printing.")
@click.option(
    "--yes",
    is_flag=True,
    help="With --apply: overwrite settings and fields that others have set, without a question.",
)
@click.option("--kubeconfig", default="", help="The kubeconfig file to use with --apply.")
@click.option("--context", default="", help="The context of the kubeconfig to use with --apply.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="Output format: yaml or json.",
)
def install(
    *, apply: bool, yes: bool, kubeconfig: str, context: str, form: str, **options: Json
) -> None:
    """Print, or apply, all manifests of an installation.

    Kinds, rights, settings, Services and Deployments. Applying again brings an installation up to
    date; settings that are there, replicas, and fields that others have set stay as they are, and
    are shown. Webhook configurations and certificates are made by the controllers once they run.
    """
    from lictor.cluster.manifests.build import build_manifests

    installation = _read_options(**options)
    manifests = build_manifests(installation)
    if apply:
        from lictor.cluster.config import load_config

        asyncio.run(_apply(installation, manifests, load_config(kubeconfig, context), yes=yes))
        return
    from lictor.cli.crds import render_manifests

    click.echo(render_manifests(manifests, form), nl=False)


def _read_options(flags: Iterable[str], settings: Iterable[str], **given: Json) -> "Installation":
    from lictor.cli.controller_flags import read_flags, read_pairs
    from lictor.cluster.manifests.installation import Installation

    return Installation(
        version=VERSION,
        # A wrong one would keep every Pod from starting.
        flags=read_flags(flags, _OWN_FLAGS),
        settings=read_pairs("--set-config", settings),
        **given,
    )


def _list_named() -> frozenset[str]:
    """The options that were given: what they say wins over what is in the cluster."""
    context = click.get_current_context()
    usual = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) not in usual
    )


async def _apply(
    installation: "Installation",
    manifests: list[JsonObject],
    config: "ClusterConfig",
    *,
    yes: bool,
) -> None:
    from lictor.cluster.client import Client
    from lictor.cluster.manifests.differences import MANAGER
    from lictor.cluster.manifests.installing import install as send
    from lictor.cluster.manifests.installing import plan_installation, wait_for_kinds

    client = Client(config, field_manager=MANAGER)
    try:
        steps = await plan_installation(client, installation, manifests, _list_named())
        overwrite = yes or _may_overwrite(steps)
        async for line in send(client, installation, steps, overwrite=overwrite):
            click.echo(line)
        await wait_for_kinds(client, manifests)
    finally:
        await client.close()


def _may_overwrite(steps: "Iterable[InstallStep]") -> bool:
    """Show what stays as it is in the cluster; someone at a terminal may decide otherwise."""
    from lictor.cluster.manifests.differences import describe_difference

    differing = [step for step in steps if step.kept]
    for step in differing:
        click.echo(f"{step.name} stays as it is in the cluster in these fields:", err=True)
        for difference in step.kept:
            for line in describe_difference(difference):
                click.echo(f"  {line}", err=True)
    if not differing:
        return False
    if sys.stdin and sys.stdin.isatty():
        return click.confirm("Overwrite these fields with lictor's values?", err=True)
    click.echo("--yes overwrites them, --set-config a single setting", err=True)
    return False
