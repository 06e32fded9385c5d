"""Controllers that policy families bring."""

from collections.abc import Callable

import msgspec

from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.webhook_configuration.draft import WebhookEndpoint
from lictor.core.families.registry import registry
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names


class WebhookHealth(msgspec.Struct, frozen=True):
    """The state of the admission webhook, for controllers that rely on it."""

    # Raises LookupFailedError while the address or its certificates are missing.
    find_address: Callable[[], WebhookEndpoint]
    is_healthy: Callable[[], bool]


class FamilyControllers:
    """The controllers of a policy family; a family overrides what it needs."""

    def build_loops(
        self,
        context: ControllerContext,  # noqa: ARG002
        health: WebhookHealth,  # noqa: ARG002
        emit: EmitEvent,  # noqa: ARG002
    ) -> tuple[ReconcileLoop, ...]:
        """The loops; each is woken when the health of the webhook changes."""
        return ()

    async def clean_up(self, client: Client, names: Names) -> None:
        """Remove what would stay in the cluster after an uninstall."""


def list_family_controllers() -> tuple[FamilyControllers, ...]:
    """The controllers of all families that have any."""
    found = (family.find_controllers() for family in registry().families)
    return tuple(each for each in found if isinstance(each, FamilyControllers))
