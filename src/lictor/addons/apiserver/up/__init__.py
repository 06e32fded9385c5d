"""`up`: runs a cluster for people without one. Its parts are in the modules beside this one."""

import time
from pathlib import Path

import click

from lictor.cli.flag_command import FlagCommand, spread_values

_EXAMPLES = """\
# A Kubernetes API with lictor in it
lictor up

# With policies, and what else is in the folder
lictor up --policies policies/ more/

# Objects that are there again tomorrow
lictor up --data ~/.lictor

# With Kyverno's names, and exceptions heeded
lictor up --prefix kyverno --flag enablePolicyException=true --flag exceptionNamespace='*'

# Only the API server, for your tests
lictor up --bare --port 6443"""


class UpCommand(FlagCommand):
    """A command whose `--policies` takes several paths."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread, is_bare = spread_values(args, "--policies", lambda _: True)
        return super().parse_args(ctx, [*spread, "--policies"] if is_bare else spread)


@click.command(cls=UpCommand, short_help="Run a local cluster.", examples=_EXAMPLES)
@click.option(
    "--policies",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="Apply the policies, and what else is in these files and folders.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Where the API server listens; 6443 by default, or a free one where that is taken.",
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; clients always need credentials.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep objects and keys in this folder; without it they are gone at the end.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the kubeconfig is written: ~/.kube/lictor.yaml, or into the folder of --data.",
)
@click.option(
    "--prefix",
    default="lictor",
    show_default=True,
    help="How the names of lictor's objects begin, and its namespace: kyverno for Kyverno's.",
)
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="NAME=VALUE",
    help="A flag for webhook and controllers, under Kyverno's name; as often as needed.",
)
@click.option(
    "--grant-all", is_flag=True, help="Let policies of this cluster read and write every object."
)
@click.option("--bare", is_flag=True, help="Only the API server: no policies, no webhook.")
@click.option("--no-web", is_flag=True, help="Do not serve the web UI.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log of everything that runs.")
def up(  # noqa: PLR0913  (one for each option)
    *,
    policies: tuple[Path, ...],
    port: int | None,
    address: str,
    data: Path | None,
    kubeconfig: Path | None,
    prefix: str,
    flags: tuple[str, ...],
    grant_all: bool,
    bare: bool,
    no_web: bool,
    verbose: bool,
) -> None:
    """Run a Kubernetes API server, lictor's webhook and its controllers, in one program.

    For trying policies before they go anywhere, and for tests. Pods are stored and evaluated, but
    not run. The kubeconfig grants all rights.
    """
    began = time.monotonic()
    from lictor.addons.apiserver.up.plan import UpOptions, open_plan, read_own_flags
    from lictor.addons.apiserver.up.policy_files import read_objects
    from lictor.addons.apiserver.up.processes import run_cluster

    objects = read_objects(policies, _print_note if verbose else lambda _: None)
    options = UpOptions(
        data=data,
        kubeconfig=kubeconfig,
        is_bare=bare,
        grants_all=grant_all,
        is_verbose=verbose,
        has_page=not no_web,
        prefix=prefix,
        flags=read_own_flags(flags),
        policies=policies,
    )
    with open_plan(address, port, options) as plan:
        raise SystemExit(run_cluster(plan, objects, began))


def _print_note(note: str) -> None:
    click.echo(f"note: {note}", err=True)
