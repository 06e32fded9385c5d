"""`control`: run the reconcile loops."""

import click

from lictor.cli.controller_flags import ControllerCommand, with_flags
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names


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
    from lictor.controllers.controllers import choose_loops
    from lictor.controllers.run import open_health_port, run_control_process
    from lictor.kubernetes.kubeconfig import load_config
    from lictor.webhook.capacity import limit_controllers
    from lictor.webhook.slots import ProcessSlot
    from lictor.webhook.supervisor import SupervisedProcess, Supervisor

    set_up_logging(flags)
    # Invalid arguments are reported here, not by the process below.
    choose_loops(arguments)
    load_config(flags.kubeconfig, flags.context)
    port = open_health_port(flags)

    def run(_: ProcessSlot) -> None:
        limit_controllers(flags.memory_limit)
        run_control_process(flags, names, arguments, health_port=port)

    # The parent quarantines the policy whose evaluation ends the process, and starts it again.
    loops = SupervisedProcess("control", run, ProcessSlot(), is_vital=True, survives_signals=True)
    raise SystemExit(Supervisor([loops], ProcessSlot()).run())
