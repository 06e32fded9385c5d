"""`control`: run the reconcile loops."""

import click

from lictor.cli.controller_flags import ControllerCommand, with_flags
from lictor.cluster.flags import Flags
from lictor.cluster.names import Names


@click.command(
    cls=ControllerCommand,
    arity=(0, None),
    short_help="Run the controllers of the cluster.",
    examples=(
        "lictor control --kubeconfig ~/.kube/config --namespace lictor\n"
        "lictor control admission --webhookTimeout=15\n"
        "lictor control certificates heartbeat"
    ),
)
@with_flags
def control(arguments: tuple[str, ...], flags: Flags, names: Names) -> None:
    """Run the controllers: all of them, or those that are named, with all or some of their loops.

    Any number of replicas may run: one of them leads, and another takes over when it ends. Flags
    are Kyverno's where they mean the same.
    """
    from lictor.cli.logs import set_up_logging
    from lictor.control.run import run_control_process
    from lictor.serve.capacity import limit_controllers

    set_up_logging(flags)
    limit_controllers(flags.memory_limit)
    run_control_process(flags, names, arguments, health=True)
