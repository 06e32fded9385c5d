"""What stands under a webhook process: a cluster to keep in step with, or nothing."""

import asyncio
from collections.abc import Sequence

from lictor.serve.aftermath import Sink
from lictor.serve.asking import GuardedLookups
from lictor.serve.metrics_settings import MetricsSettings
from lictor.serve.policy_reviewer import PolicyReviewer
from lictor.serve.world import World


class Base:
    """No cluster: nothing to keep in step."""

    has_certificate = False
    sinks: Sequence[Sink] = ()
    guard: GuardedLookups | None = None
    # What of the metrics is shown.
    metrics = MetricsSettings()

    def __init__(self, world: World, reviewer: PolicyReviewer) -> None:
        self.world = world
        self.reviewer = reviewer

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.Event().wait()

    async def drain(self, seconds: float) -> None:
        """Nothing is ever waiting."""

    async def close(self) -> None:
        """Nothing is open."""
