"""What the background did for a trigger, sent to whoever writes the reports."""

import asyncio
import time

from lictor.cluster.client import Client
from lictor.cluster.ephemeral_reports import EphemeralReports, read_form
from lictor.cluster.flags import Flags
from lictor.cluster.store import PolicyStore
from lictor.model.request import Request
from lictor.model.result import PolicyRef, Result
from lictor.report.resource_report import Subject, build_entry

_DISABLED = "reports.kyverno.io/disabled"


class BackgroundReports:
    """Takes results of generate and mutate-existing rules."""

    def __init__(self, client: Client, flags: Flags, store: PolicyStore) -> None:
        self._reports = EphemeralReports(client, limit=flags.max_background_reports)
        self._form = read_form(flags)
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send what comes in until cancelled."""
        await self._reports.run()

    def add(self, request: Request, results: tuple[Result, ...]) -> None:
        """Take the results about one trigger."""
        stamp = int(time.time())
        entries = [
            build_entry(result, background=self._is_background(result.policy), timestamp=stamp)
            for result in results
            if self._form.wants(result) and _DISABLED not in result.policy.labels
        ]
        subject = Subject.of(request.resource)
        if entries and subject.uid:
            task = asyncio.create_task(self._reports.add(subject, "", entries))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _is_background(self, policy: PolicyRef) -> bool:
        if policy.kind.endswith("GeneratingPolicy"):
            return False
        wanted = (p for p in self._store.policies if p.key == policy.key)
        return any(p.background for p in wanted if p.resource.kind == policy.kind)
