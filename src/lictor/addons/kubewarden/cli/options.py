"""Flags that several of the `wasm` commands share, and how their errors end."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import click

from lictor.cli.flag_command import FlagCommand
from lictor.cli.terminal import show_plainly
from lictor.core.errors import UsageError
from lictor.core.raw import Json

Function = TypeVar("Function", bound=Callable[..., object])


class WasmCommand(FlagCommand):
    """A command of kwctl: a wrong call ends with 2, and all that fails later with 1."""

    def invoke(self, ctx: click.Context) -> Json:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            raise click.ClickException(str(error)) from error


def source_options(function: Function) -> Function:
    """How the hosts are spoken to that policies come from."""
    return _add_options(
        function,
        click.option("--sources-path", default="", help="File that names insecure hosts and CAs."),
        click.option(
            "--docker-config-json-path", default="", help="Folder with config.json (credentials)."
        ),
    )


def verification_options(function: Function) -> Function:
    """Who must have signed a policy."""
    return _add_options(
        function,
        click.option("--verification-config-path", default="", help="File with the signers."),
        click.option(
            "-k", "--verification-key", multiple=True, help="File with the public key of a signer."
        ),
        click.option(
            "-a",
            "--verification-annotation",
            multiple=True,
            help="Annotation that must be signed: NAME=VALUE.",
        ),
        click.option("--cert-email", default="", help="The signer in the certificate."),
        click.option("--cert-oidc-issuer", default="", help="Who vouches for the signer."),
        click.option("--github-owner", default="", help="Owner whose workflows must have signed."),
        click.option("--github-repo", default="", help="Repository whose workflow must have."),
        click.option("--sigstore-trust-config", default="", help="File with a trust root."),
    )


def _add_options(function: Function, *options: Callable[[Function], Function]) -> Function:
    for option in reversed(options):
        function = option(function)
    return function


def warn(lines: Iterable[str]) -> None:
    """Print a warning."""
    for line in lines:
        click.echo(f"Warning: {show_plainly(line)}", err=True)
