"""`serve`: the admission webhook."""

from pathlib import Path

import click

from lictor.cli.controller_flags import ControllerCommand, with_flags
from lictor.core.errors import UsageError
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names

_EXAMPLES = """\
# In a cluster, as `lictor install` sets it up
lictor serve

# From outside, with the controllers in another process
lictor serve --kubeconfig ~/.kube/config --no-control

# Without a cluster: policies from files, a self-signed certificate
lictor serve --policies policies/ --webhookServerPort 9443"""


@click.command(cls=ControllerCommand, short_help="Run the admission webhook.", examples=_EXAMPLES)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    help="Webhook processes; 0 is one for each core of the CPU quota.",
)
@click.option("--no-control", is_flag=True, help="Do not run the controllers beside the webhook.")
@click.option(
    "--policies",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="Serve policies from these files and folders, without a cluster.",
)
@click.option(
    "--tlsCert",
    "certificate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Serving certificate, instead of the one in the cluster.",
)
@click.option(
    "--tlsKey",
    "key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Private key of the serving certificate.",
)
@click.option(
    "--clientCAFile",
    "client_authorities",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take reviews only from clients with a certificate of these authorities.",
)
@with_flags
def serve(  # noqa: PLR0913  (one for each option)
    *,
    workers: int,
    no_control: bool,
    policies: tuple[Path, ...],
    certificate: Path | None,
    key: Path | None,
    client_authorities: Path | None,
    flags: Flags,
    names: Names,
) -> None:
    """Run the webhook: a process for each core, one for slow requests, one for the controllers.

    Flags with the meaning of Kyverno's have their names.
    """
    if (certificate is None) != (key is None):
        raise UsageError("--tlsCert and --tlsKey belong together")
    from lictor.cli.logs import set_up_logging
    from lictor.webhook.options import ServeOptions
    from lictor.webhook.service import run_service

    set_up_logging(flags)
    options = ServeOptions(
        flags, names, workers, policies, certificate, key, _read_authorities(client_authorities)
    )

    def control() -> None:
        from lictor.controllers.run import run_control_process

        run_control_process(flags, names, ("admission",))

    raise SystemExit(run_service(options, None if no_control or policies else control))


def _read_authorities(file: Path | None) -> str:
    if file is None:
        return ""
    import ssl

    try:
        text = file.read_text(encoding="ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (ValueError, ssl.SSLError) as error:
        raise UsageError(f"--clientCAFile: {file} holds no certificates in PEM") from error
    return text
