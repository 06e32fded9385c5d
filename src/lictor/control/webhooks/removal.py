"""Takes our webhook configurations away, so that nothing waits for a server that is gone."""

from lictor.cluster.client import Client
from lictor.cluster.names import Names
from lictor.cluster.resource import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from lictor.control.webhooks.fixed import ADMISSION_CONFIGURATIONS, CLEANUP_CONFIGURATIONS


async def remove_webhooks(client: Client, names: Names, *, cleanup: bool = True) -> list[str]:
    """Delete all configurations of an installation; gives the names of those that were there."""
    removed = []
    for name, mutating in (*ADMISSION_CONFIGURATIONS, *(CLEANUP_CONFIGURATIONS if cleanup else ())):
        resource = MUTATING_WEBHOOK if mutating else VALIDATING_WEBHOOK
        if await client.delete(resource, names.webhook(name)):
            removed.append(names.webhook(name))
    return removed
