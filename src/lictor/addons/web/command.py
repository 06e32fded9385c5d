"""`web`: serve the page."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.core.raw import Json

if TYPE_CHECKING:
    from lictor.addons.web.options import WebOptions

_EXAMPLES = """\
# The cluster of the current context, with your own rights
lictor web

# Several clusters side by side
lictor web --kubeconfig ~/.kube/east --kubeconfig ~/.kube/west

# Reports from files, such as a pipeline keeps them
lictor web --report reports/

# For others: people sign in with tokens of the cluster, and see what they may list
lictor web --login --address 0.0.0.0 --tls-cert tls.crt --tls-key tls.key --host lictor.example"""
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(cls=FlagCommand, arity=(0, None), short_help="Serve the page.", examples=_EXAMPLES)
@click.option(
    "--report",
    "reports",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="Show the reports in these files and folders; more of them may follow.",
)
@click.option(
    "--kubeconfig", "kubeconfigs", multiple=True, help="Kubeconfigs of the clusters to show."
)
@click.option(
    "--context", "contexts", multiple=True, help="Contexts of the kubeconfig, one cluster each."
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; another one than this machine's own needs --login.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8088, show_default=True, help="The port."
)
@click.option(
    "--login",
    "requires_login",
    is_flag=True,
    help="Users sign in with tokens of the cluster and see what they may list.",
)
@click.option(
    "--same-users",
    "shares_users",
    is_flag=True,
    help="With --login and several clusters: equal user names are the same user.",
)
@slice_option("--host", "hosts", help="Host names that browsers may use.")
@click.option("--base", default="", help="The path of the page on its host, such as /lictor.")
@click.option("--tls-cert", "certificate", type=_FILE, help="The certificate to show, as PEM.")
@click.option("--tls-key", "key", type=_FILE, help="Its key, as PEM.")
@click.option(
    "--client-ca",
    "client_authority",
    type=_FILE,
    help="With --login: take client certificates of these authorities, as the API server does.",
)
@click.option("--boards", type=_FILE, help="File with boards (saved filters).")
@click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the history of totals in this folder.",
)
@click.option(
    "--notifications",
    type=_FILE,
    help="File with the targets of notifications about new violations.",
)
@click.option(
    "--notifications-folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the state of notifications; with --login it is stored in the cluster.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Serve metrics for Prometheus on this port.",
)
@click.option("--namespace", default="lictor", show_default=True, help="Where lictor is installed.")
@click.option(
    "--prefix", default="lictor", show_default=True, help="Prefix of the names of its objects."
)
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    default="text",
    help="Log lines: text or json.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def web(
    *, arguments: tuple[str, ...], namespace: str, prefix: str, log_format: str, verbose: bool,
    **given: Json,
) -> None:  # fmt: skip
    """Serve the web UI: the reports of clusters or files in a browser.

    It is read-only. On your own machine it shows what your kubeconfig can read, to every browser
    with the key in the printed address. With --login each viewer sees the reports that they may
    list.
    """
    import uvloop

    from lictor.addons.web.options import WebOptions
    from lictor.addons.web.service import PageServer
    from lictor.kubernetes.names import Names

    reports = given.pop("reports")
    if arguments and not reports:
        raise click.UsageError(f"{arguments[0]}: give files of reports with --report")
    reports += tuple(map(Path, arguments))
    options = WebOptions(reports=reports, names=Names(prefix, namespace), **given)
    _set_up_logging(options, log_format, verbose=verbose)
    server = PageServer(options)
    click.echo(f"The page is at {server.url} (Ctrl-C ends it)")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.run())


def _set_up_logging(options: "WebOptions", form: str, *, verbose: bool) -> None:
    import logging

    from lictor.cli.logs import set_up_logging
    from lictor.kubernetes.flags import Flags

    set_up_logging(Flags(logging_format=form, v=4 if verbose else 2))
    if not verbose and not options.requires_login:
        # Only warnings and errors on a terminal.
        logging.getLogger().setLevel(logging.WARNING)
