"""`install`: prints or applies all manifests of an installation."""

import asyncio
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from lictor.cli.flag_command import FlagCommand, format_option, slice_option
from lictor.core.errors import UsageError
from lictor.core.raw import Json, JsonObject
from lictor.core.release import DEFAULT_IMAGE, VERSION

if TYPE_CHECKING:
    from lictor.install.installation import Installation
    from lictor.install.installing import InstallStep
    from lictor.kubernetes.client import Client
    from lictor.kubernetes.config import ClusterConfig

_EXAMPLES = """\
# Look at everything, then apply it
lictor install > lictor.yaml
kubectl apply --server-side -f lictor.yaml

# Install into the cluster of the current context
lictor install --apply

# Take Kyverno's place, with its names: look first, then do it
lictor install --namespace kyverno --prefix kyverno --diff
lictor install --namespace kyverno --prefix kyverno --apply

# A small cluster: one Deployment with one replica
lictor install --all-in-one --replicas 1 --apply

# Flags and settings as Kyverno has them
lictor install --flag enablePolicyException=true --flag exceptionNamespace=policy-exceptions \\
  --set-config excludeGroups=system:nodes,admins

# The values of the chart
lictor install --values values.yaml --apply"""
# Set by the options of this command, or without a meaning in a cluster.
_OWN_FLAGS = frozenset(("context", "kubeconfig", "openreportsEnabled"))

# There is no public image: Pods would wait for one that no registry has.
_IMAGE_NOTE = (
    f"Pods run the image {DEFAULT_IMAGE}, as make image builds it from the source: every node must "
    "have it. Name one of your registry with --image; see docs/get-started/cluster.md."
)


def _refuse_helm_values(_: click.Context, __: click.Parameter, given: str | None) -> None:
    if given is not None:
        raise UsageError(
            f"--set {given}: this is an option of Helm; write the value to a file for --values, "
            "or use an option such as --replicas, --image, --flag or --set-config"
        )


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@click.option("--namespace", default="", show_default="lictor", help="Where to install.")
@click.option(
    "--prefix", default="", show_default="lictor", help="Prefix of the names of all objects."
)
@slice_option(
    "--values",
    "value_files",
    help="Files with values of the chart; other options override them.",
)
@click.option("--replicas", type=int, show_default="3", help="Replicas of the webhook server.")
@click.option(
    "--controller-replicas",
    type=int,
    show_default="1",
    help="Replicas of each other controller.",
)
@click.option("--all-in-one", is_flag=True, help="One Deployment instead of four.")
@click.option(
    "--image",
    default="",
    show_default=DEFAULT_IMAGE,
    help="The image that Pods run; this one is what make image builds.",
)
@slice_option(
    "--image-pull-secret",
    "image_pull_secrets",
    help="Secrets of the namespace that the image is pulled with.",
)
@click.option(
    "--openreports", "open_reports", is_flag=True, help="Write reports of openreports.io."
)
@click.option("--web", is_flag=True, help="Add the web UI.")
@slice_option("--web-host", "web_hosts", help="Host names of the web UI; implies --web.")
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
@click.option("--set", hidden=True, expose_value=False, callback=_refuse_helm_values)
@click.option("--apply", is_flag=True, help="Apply to the cluster instead of printing.")
@click.option("--diff", is_flag=True, help="Only show what --apply would change in the cluster.")
@click.option(
    "--yes",
    is_flag=True,
    help="With --apply: overwrite fields that others have set, and replace Kyverno's Deployments, "
    "without a question. Settings that Kyverno has stay.",
)
@click.option("--kubeconfig", default="", help="The kubeconfig file to use with --apply or --diff.")
@click.option("--context", default="", help="The context of the kubeconfig to use.")
@format_option("yaml", "json")
def install(
    *,
    apply: bool,
    diff: bool,
    yes: bool,
    kubeconfig: str,
    context: str,
    form: str,
    **options: Json,
) -> int:
    """Print, or apply, all manifests of an installation.

    Kinds, rights, settings, Services and Deployments. Applying again brings an installation up to
    date; settings that are there, replicas, and fields that others have set stay as they are, and
    are shown. Webhook configurations and certificates are made by the controllers once they run.

    Exits with 0, with 1 if --diff finds a change, and with 2 for a usage error.
    """
    from lictor.install.build import build_manifests

    installation = _read_options(**options)
    manifests = build_manifests(installation)
    if any(DEFAULT_IMAGE in _list_images(manifest) for manifest in manifests):
        click.echo(_IMAGE_NOTE, err=True)
    if apply and diff:
        raise UsageError("--apply and --diff: give one of them")
    if apply or diff:
        from lictor.kubernetes.kubeconfig import load_config

        config = load_config(kubeconfig, context)
        return asyncio.run(_open_cluster(config, installation, diff=diff, yes=yes))
    from lictor.cli.crds import render_manifests

    click.echo(render_manifests(manifests, form), nl=False)
    return 0


def _list_images(manifest: JsonObject) -> list[str]:
    if manifest["kind"] != "Deployment":
        return []
    return [each["image"] for each in manifest["spec"]["template"]["spec"]["containers"]]


def _read_options(
    *,
    flags: Iterable[str],
    settings: Iterable[str],
    value_files: Iterable[str],
    prefix: str,
    namespace: str,
    **given: Json,
) -> "Installation":
    from lictor.cli.controller_flags import read_flags, read_pairs
    from lictor.install.installation import Installation

    values = _read_values(value_files)
    return Installation(
        version=VERSION,
        prefix=prefix or values.get("fullnameOverride") or "lictor",
        namespace=namespace or values.get("namespaceOverride") or "lictor",
        # A wrong one would keep every Pod from starting.
        flags=read_flags(flags, _OWN_FLAGS),
        settings=read_pairs("--set-config", settings),
        values=values,
        **given,
    )


def _read_values(paths: Iterable[str]) -> JsonObject:
    """Merge files of values; the last one wins, and flags in them are flags."""
    from lictor.cli.controller_flags import read_flags
    from lictor.core.files import read_bytes
    from lictor.install.arguments import write_text
    from lictor.install.values import (
        CONTROLLERS,
        find_value,
        merge_values,
        name_container,
        read_values,
    )

    values: JsonObject = {}
    for path in paths:
        unused: list[str] = []
        values = merge_values(values, read_values(read_bytes(path), path, unused))
        if unused:
            lines = "".join(f"\n  {each}" for each in unused)
            click.echo(f"Warning: {path}: {len(unused)} values are not used:{lines}", err=True)
    for controller in CONTROLLERS:
        extra = find_value(values, f"{name_container(controller)}.extraArgs") or {}
        read_flags([f"{name}={write_text(value)}" for name, value in extra.items()], _OWN_FLAGS)
    return values


def _list_named(installation: "Installation") -> frozenset[str]:
    """Return the given options; they override the values in the cluster."""
    from lictor.install.installation import list_named_options

    context = click.get_current_context()
    usual = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
    given = {name for name in context.params if context.get_parameter_source(name) not in usual}
    return frozenset(given) | list_named_options(installation)


async def _open_cluster(
    config: "ClusterConfig", installation: "Installation", *, diff: bool, yes: bool
) -> int:
    from lictor.install.build import build_manifests
    from lictor.install.differences import MANAGER
    from lictor.install.installing import plan_installation
    from lictor.kubernetes.client import Client

    client = Client(config, field_manager=MANAGER)
    try:
        # Values kept from an earlier installation were not given here.
        named = _list_named(installation)
        installation = await _keep_flags(client, installation)
        steps = await plan_installation(client, installation, build_manifests(installation), named)
        if diff:
            return await _show(client, installation, steps)
        _confirm_replacement(steps, yes=yes)
        await _apply(client, installation, steps, overwrite=_may_overwrite(steps, yes=yes))
    finally:
        await client.close()
    return 0


async def _keep_flags(client: "Client", installation: "Installation") -> "Installation":
    """Add the flags of the running Deployments of these names, if they are not lictor's."""
    from lictor.install.taking_over import keep_flags, list_predecessors, read_flags

    found = await list_predecessors(client, installation)
    return keep_flags(installation, read_flags(found, installation))


async def _show(client: "Client", installation: "Installation", steps: "list[InstallStep]") -> int:
    from lictor.install.installing import describe_plan

    lines = [line async for line in describe_plan(client, installation, steps)]
    for line in lines or ["nothing would change"]:
        click.echo(line)
    return 1 if lines else 0


async def _apply(
    client: "Client", installation: "Installation", steps: "list[InstallStep]", *, overwrite: bool
) -> None:
    from lictor.install.installing import install as send
    from lictor.install.installing import wait_for_kinds

    async for line in send(client, installation, steps, overwrite=overwrite):
        click.echo(line)
    await wait_for_kinds(client, [step.manifest for step in steps])


def _confirm_replacement(steps: "Iterable[InstallStep]", *, yes: bool) -> None:
    """Raise unless someone wants what runs under our names to be replaced by lictor."""
    found = [f"{step.name} runs {step.replaces}" for step in steps if step.replaces]
    if not found or yes:
        return
    for line in found:
        click.echo(line, err=True)
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(
            "--yes replaces these Deployments in place; lictor migrate shows the differences. "
            "Nothing was changed"
        )
    if not click.confirm("Replace them in place, Pod by Pod?", err=True):
        raise click.ClickException("nothing was changed")


def _may_overwrite(steps: "Iterable[InstallStep]", *, yes: bool) -> bool:
    """Show what stays as it is in the cluster; someone at a terminal may decide otherwise."""
    from lictor.install.differences import describe_difference

    differing = [step for step in steps if step.kept and (step.is_theirs or not yes)]
    for step in differing:
        click.echo(f"{step.name} stays as it is in the cluster in these fields:", err=True)
        for difference in step.kept:
            for line in describe_difference(difference):
                click.echo(f"  {line}", err=True)
    if yes or all(step.is_theirs for step in differing):
        return yes
    if sys.stdin and sys.stdin.isatty():
        return click.confirm("Overwrite these fields with lictor's values?", err=True)
    click.echo("--yes overwrites them, --set-config a single setting", err=True)
    return False
