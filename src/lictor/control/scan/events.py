"""What a scan finds wrong becomes events, within reason."""

import time
from collections.abc import Callable, Iterable

from lictor.cluster.settings import Settings
from lictor.cluster.store import PolicyStore
from lictor.model.request import Request
from lictor.model.result import PolicyRef, Result, Verdict
from lictor.report.events import Event, EventOptions, Source, build_events

# A first scan finds thousands of objects at once, of which the reports tell all: nobody reads so
# many events, and they would crowd out those of other controllers.
_PERIOD = 10.0
_OBJECTS = 20


class ScanEvents:
    """Tells what is newly wrong with objects that are there."""

    def __init__(
        self,
        tell: Callable[[Event], None],
        store: PolicyStore,
        settings: Callable[[], Settings],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._store = store
        self._settings = settings
        self._clock = clock
        self._until = 0.0
        self._left = 0
        self._uids: dict[tuple[str, str], str] = {}

    def take(self, request: Request, results: Iterable[Result]) -> None:
        """Tell of one object; of too many at once only the first."""
        if not self._has_room():
            return
        options = EventOptions(
            source=Source.SCAN,
            with_success=self._settings().generate_success_events,
            find_uid=self._find_uid,
        )
        for event in build_events(Verdict(request, tuple(results)), options):
            self._tell(event)

    def _has_room(self) -> bool:
        now = self._clock()
        if now >= self._until:
            self._until, self._left = now + _PERIOD, _OBJECTS
            self._uids = {(p.resource.kind, p.key): p.uid for p in self._store.policies}
        self._left -= 1
        return self._left >= 0

    def _find_uid(self, policy: PolicyRef) -> str:
        return self._uids.get((policy.kind, policy.key), "")
