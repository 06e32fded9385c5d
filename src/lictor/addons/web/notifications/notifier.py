"""Which results are new, and which of several replicas sends them? One listener for all targets."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path

import msgspec

from lictor.addons.web.notifications.delivery import TargetQueue
from lictor.addons.web.notifications.memory import (
    ConfigMapStore,
    FolderStore,
    MemoryStore,
    NotifiedResults,
    identify_result,
)
from lictor.addons.web.notifications.secrets import SecretReader
from lictor.addons.web.notifications.sending import RequestSender, TargetSender, choose_pace
from lictor.addons.web.notifications.settings import (
    NotificationFilter,
    NotificationSettings,
    NotificationTarget,
    read_seconds,
)
from lictor.addons.web.records import (
    SEVERITIES,
    ReportedResult,
    ResultChange,
    ResultFilter,
    Viewer,
)
from lictor.addons.web.sources.page_data import PageData
from lictor.core.errors import ConflictError, LictorError
from lictor.core.lang.wildcard import compile_wildcard
from lictor.kubernetes.client import Client
from lictor.kubernetes.lease import Leadership, choose_identity
from lictor.kubernetes.names import Names

log = logging.getLogger(__name__)

_READY_PAUSE = 0.2
_LOOK_SECONDS = 10.0
# Between two writes of what was sent; longer after a large one.
_SAVE_SECONDS = 1.0
_BYTES_A_SECOND = 50_000
_TROUBLE_SECONDS = 5.0
_END_SECONDS = 3.0

Chooses = Callable[[ReportedResult], bool]


def compile_filter(chosen: NotificationFilter) -> Chooses:
    """Does a target receive a result? All parts must hold, and any value of a part does."""
    statuses = frozenset(chosen.statuses)
    severities = _list_severities(chosen)
    excluded = [compile_wildcard(pattern) for pattern in chosen.exclude_namespaces]
    parts = [
        (name, [compile_wildcard(pattern) for pattern in patterns])
        for name, patterns in (
            ("cluster", chosen.clusters),
            ("namespace", chosen.namespaces),
            ("source", chosen.sources),
            ("policy", chosen.policies),
            ("category", chosen.categories),
            ("kind", chosen.kinds),
        )
        if patterns
    ]

    def chooses(result: ReportedResult) -> bool:
        if result.status not in statuses:
            return False
        if severities is not None and (result.severity or "none") not in severities:
            return False
        if any(matches(result.namespace) for matches in excluded):
            return False
        return all(
            any(matches(getattr(result, name)) for matches in patterns) for name, patterns in parts
        )

    return chooses


def _list_severities(chosen: NotificationFilter) -> frozenset[str] | None:
    """The selected severities; None for all, including those that only other tools use."""
    named = frozenset[str](chosen.severities)
    if chosen.minimum_severity is None or chosen.minimum_severity == "none":
        return named or None
    words = [severity or "none" for severity in SEVERITIES]
    least = frozenset(words[: words.index(chosen.minimum_severity) + 1])
    return named & least if named else least


class Notifier:
    """Listens to all results from the beginning on, and sends while it leads. One event loop."""

    def __init__(
        self,
        state: PageData,
        settings: NotificationSettings,
        store: MemoryStore | None,
        make_queue: Callable[[NotificationTarget, Callable[[], None]], TargetQueue],
    ) -> None:
        self._state = state
        self._store = store
        self._forget_after = read_seconds(settings.repeat_after)
        self._dirty = asyncio.Event()
        self._statuses = tuple(
            dict.fromkeys(status for each in settings.targets for status in each.filter.statuses)
        )
        self._targets = [
            (compile_filter(target.filter), make_queue(target, self._dirty.set))
            for target in settings.targets
        ]
        # How often each result occurs in reports: two groups of reports can contain the same.
        self._present: dict[int, int] = {}
        # Set while we lead.
        self._notified: NotifiedResults | None = None
        for result in self._list_results():
            self._add(result)
        state.results.listen(self._note)

    @property
    def is_leading(self) -> bool:
        """Is it this process that sends what is new?"""
        return self._notified is not None

    # --- what is there

    def _list_results(self) -> Iterable[ReportedResult]:
        viewer = Viewer.of_all("notifications", self._state.list_clusters())
        return self._state.results.export(ResultFilter(statuses=self._statuses), viewer)

    def _note(self, change: ResultChange) -> None:
        for result in change.removed:
            if result.status in self._statuses:
                self._remove(result)
        for result in change.added:
            if result.status in self._statuses:
                self._add(result)

    def _add(self, result: ReportedResult) -> None:
        key = identify_result(result)
        self._present[key] = self._present.get(key, 0) + 1
        if self._notified is None:
            return
        if key not in self._notified:
            self._notify(self._notified, key, result)
            return
        self._notified.note_back(key)
        self._offer_left_over(self._notified, key, result)

    def _remove(self, result: ReportedResult) -> None:
        key = identify_result(result)
        left = self._present.pop(key, 0) - 1
        if left > 0:
            self._present[key] = left
        elif self._notified is not None:
            self._notified.note_gone(key, time.monotonic())

    def _notify(self, notified: NotifiedResults, key: int, result: ReportedResult) -> None:
        notified.add(key)
        self._dirty.set()
        # Of a cluster that is read for the first time ever, what is there is no news.
        if (result.cluster, result.status) not in notified.covered:
            return
        for chooses, queue in self._targets:
            if chooses(result):
                queue.offer(key, result)

    # --- while we lead

    async def lead(self) -> None:
        """Send what is new until cancelled."""
        notified = NotifiedResults(self._store, self._forget_after)
        await notified.load()
        self._catch_up(notified)
        self._notified = notified
        self._dirty.set()
        try:
            async with asyncio.TaskGroup() as group:
                for _, queue in self._targets:
                    group.create_task(queue.run())
                group.create_task(self._keep(notified))
        finally:
            self._notified = None
            await self._save_at_end(notified)
            for _, queue in self._targets:
                queue.clear()

    def _catch_up(self, notified: NotifiedResults) -> None:
        """Results that arrived while no replica sent; at the first start, all are known already.

        A cluster that does not answer is not waited for: its results come when it does.
        """
        if notified.covered:
            self._notify_missed(notified)
        else:
            for key in self._present:
                notified.add(key)
        notified.start_over(self._present, time.monotonic())
        self._look_at_clusters(notified)

    def _notify_missed(self, notified: NotifiedResults) -> None:
        if all(key in notified for key in self._present) and not notified.left_over:
            return
        for result in self._list_results():
            key = identify_result(result)
            if key not in notified:
                self._notify(notified, key, result)
            else:
                self._offer_left_over(notified, key, result)

    def _offer_left_over(self, notified: NotifiedResults, key: int, result: ReportedResult) -> None:
        for _, queue in self._targets if notified.left_over else ():
            if key in notified.left_over.get(queue.name, ()):
                notified.left_over[queue.name].discard(key)
                queue.offer(key, result)

    def _look_at_clusters(self, notified: NotifiedResults) -> bool:
        """Of clusters that are read whole, what comes from now on is news; True where all are."""
        clusters = self._state.list_clusters()
        ready = [cluster for cluster in clusters if self._state.is_cluster_ready(cluster)]
        pairs = set(product(ready, self._statuses))
        if not pairs <= notified.covered:
            notified.covered |= pairs
            self._dirty.set()
        # What a cluster that does not answer has is neither gone nor repaired.
        if len(ready) < len(clusters):
            return False
        if notified.left_over or notified.forget(time.monotonic()):
            self._dirty.set()
        notified.left_over.clear()
        return True

    async def _keep(self, notified: NotifiedResults) -> None:
        """Write what was sent, not too often; ConflictError where someone else does so too."""
        while True:
            is_complete = self._look_at_clusters(notified)
            if self._dirty.is_set():
                self._dirty.clear()
                await asyncio.sleep(await self._save(notified))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if is_complete else _READY_PAUSE):
                    await self._dirty.wait()

    async def _save(self, notified: NotifiedResults) -> float:
        try:
            written = await notified.save(self._list_waiting(notified))
        except ConflictError:
            raise
        except LictorError as error:
            log.warning(
                "the record of sent results is not written", extra={"why": str(error)[:200]}
            )
            self._dirty.set()
            return _TROUBLE_SECONDS
        return _SAVE_SECONDS + written / _BYTES_A_SECOND

    def _list_waiting(self, notified: NotifiedResults) -> dict[str, tuple[int, ...]]:
        return {
            queue.name: (*queue.waiting, *notified.left_over.get(queue.name, ()))
            for _, queue in self._targets
        }

    async def _save_at_end(self, notified: NotifiedResults) -> None:
        with contextlib.suppress(ConflictError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._save(notified)


def build_notifier(
    state: PageData,
    settings: NotificationSettings,
    *,
    store: MemoryStore | None = None,
    client: Client | None = None,
    names: Names | None = None,
) -> Notifier:
    """A notifier with all its targets; without a store it remembers until it ends.

    `client` reads the Secrets of the installation.
    """
    sender, secrets = RequestSender(), SecretReader(client, (names or Names()).namespace)

    def make_queue(target: NotificationTarget, on_change: Callable[[], None]) -> TargetQueue:
        send = TargetSender(target, sender, secrets, settings.page_url)
        return TargetQueue(target.name, target.kinds[0], choose_pace(target), send, on_change)

    return Notifier(state, settings, store, make_queue)


class NotificationTask(msgspec.Struct, frozen=True):
    """Notifications beside a page: what is sent, and where it is remembered."""

    settings: NotificationSettings
    # Where one process remembers what it sent; None: in the cluster, or not at all.
    folder: Path | None = None
    # Is the page one of several replicas in the cluster, which share what they remember?
    is_shared: bool = False

    async def run(self, state: PageData, client: Client | None, names: Names) -> None:
        """Send what is new until cancelled."""
        store: MemoryStore | None = None
        shared = client if self.is_shared and self.folder is None else None
        if shared is not None:
            store = ConfigMapStore(shared, names.namespace, names.web)
        elif self.folder is not None:
            store = FolderStore(self.folder)
        notifier = build_notifier(state, self.settings, store=store, client=client, names=names)
        await run_notifier(notifier, shared, names)


async def run_notifier(
    notifier: Notifier, shared: Client | None = None, names: Names | None = None
) -> None:
    """Send until cancelled; with a client, only while this replica holds the Lease."""
    names = names or Names()
    run: Callable[[], Awaitable[None]] = notifier.lead
    if shared is not None:
        leadership = Leadership(shared, names.web_lease, names.namespace, choose_identity())
        run = partial(leadership.run, notifier.lead)
    while True:
        try:
            await run()
        except Exception as error:  # noqa: BLE001  (the page continues after any error here)
            _log_end(error)
        await asyncio.sleep(_TROUBLE_SECONDS)


def _log_end(error: Exception) -> None:
    causes = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
    for cause in causes:
        if isinstance(cause, ConflictError):
            log.warning("another replica sends notifications too: starting over")
        elif isinstance(cause, LictorError):
            log.warning("notifications start over", extra={"why": str(cause)[:200]})
        else:
            log.error("notifications start over", exc_info=cause)
