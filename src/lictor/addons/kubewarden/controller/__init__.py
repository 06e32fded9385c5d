"""The controllers of Kubewarden's policies: servers, their objects, webhooks and statuses."""

from lictor.addons.kubewarden.controller.reconcile import PolicyServerReconciler
from lictor.addons.kubewarden.controller.rollout import OwnServer
from lictor.addons.kubewarden.controller.webhooks import release_all_policies
from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.family_controllers import FamilyControllers, WebhookHealth
from lictor.controllers.loop import ReconcileLoop
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names

_INTERVAL = 60.0
# While Pods start and end.
_WAITING_INTERVAL = 2.0


class PolicyServerControllers(FamilyControllers):
    """The loop of policy servers and of the policies that name them."""

    def build_loops(
        self, context: ControllerContext, health: WebhookHealth, emit: EmitEvent
    ) -> tuple[ReconcileLoop, ...]:
        own = OwnServer(context.store, health.find_address, health.is_healthy)
        reconciler = PolicyServerReconciler(context, own, emit)
        loop = ReconcileLoop(
            "policy-server-controller",
            reconciler.reconcile,
            interval=_INTERVAL,
            caches=(reconciler.servers, *reconciler.webhooks.caches),
        )
        context.store.listen(loop.wake)
        reconciler.look_again = lambda: loop.wake_later(_WAITING_INTERVAL)
        return (loop,)

    async def clean_up(self, client: Client, names: Names) -> None:
        await release_all_policies(client, names)
