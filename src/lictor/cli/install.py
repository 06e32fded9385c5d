"""`install`: all manifests of an installation, printed or applied."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.cli.release import VERSION
from lictor.errors import UsageError
from lictor.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.cluster.manifests.installation import Installation

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
    "--prefix", default="lictor", show_default=True, help="How the names of all objects begin."
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
@click.option("--kubeconfig", default="", help="The kubeconfig file to use with --apply.")
@click.option("--context", default="", help="The context of the kubeconfig to use with --apply.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="How manifests are printed: yaml or json.",
)
def install(*, apply: bool, kubeconfig: str, context: str, form: str, **wishes: Json) -> None:
    """Print, or apply, all manifests of an installation.

    Kinds, rights, settings, Services and Deployments. Applying again brings an installation up to
    date. Webhook configurations and certificates are made by the controllers once they run.
    """
    from lictor.cluster.manifests.build import build_manifests

    installation = _read_wishes(**wishes)
    manifests = build_manifests(installation)
    if apply:
        asyncio.run(_apply(installation, manifests, kubeconfig, context))
        return
    from lictor.cli.crds import render_manifests

    click.echo(render_manifests(manifests, form), nl=False)


def _read_wishes(flags: Iterable[str], settings: Iterable[str], **given: Json) -> "Installation":
    from lictor.cluster.manifests.installation import Installation

    return Installation(
        version=VERSION,
        flags=_read_flags(flags),
        settings=_read_pairs("--set-config", settings),
        **given,
    )


def _read_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text}: write NAME=VALUE")
        pairs[name] = value
    return pairs


def _read_flags(texts: Iterable[str]) -> Mapping[str, str]:
    """Flags that the controllers know; a wrong one would keep every Pod from starting."""
    import msgspec

    from lictor.cli.flag_words import IGNORED
    from lictor.cluster.flags import Flags

    pairs = _read_pairs("--flag", texts)
    types = {field.encode_name: field.type for field in msgspec.structs.fields(Flags)}
    for name, value in pairs.items():
        if name in _OWN_FLAGS or (name not in types and name not in IGNORED):
            raise UsageError(_describe_unknown(name, types))
        _check_value(name, value, types.get(name))
    return pairs


def _describe_unknown(name: str, types: Iterable[str]) -> str:
    from difflib import get_close_matches

    if name in _OWN_FLAGS:
        return f"--flag {name}: cannot be set here"
    close = get_close_matches(name, types, n=1)
    return f"--flag {name}: no such flag" + (f"; did you mean {close[0]}?" if close else "")


def _check_value(name: str, value: str, kind: object) -> None:
    from lictor.cli.flag_command import read_bool

    if kind is bool and read_bool(value) is None:
        raise UsageError(f"--flag {name}={value}: write true or false")
    if kind is int and not value.isdecimal():
        raise UsageError(f"--flag {name}={value}: write a number")


async def _apply(
    installation: "Installation", manifests: list[JsonObject], kubeconfig: str, context: str
) -> None:
    from lictor.cluster.client import Client
    from lictor.cluster.config import load_config
    from lictor.cluster.manifests.installing import install as send
    from lictor.cluster.manifests.installing import wait_for_kinds

    client = Client(load_config(kubeconfig, context), field_manager="lictor-install")
    try:
        async for line in send(client, installation, manifests):
            click.echo(line)
        await wait_for_kinds(client, manifests)
    finally:
        await client.close()
