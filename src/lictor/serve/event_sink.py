"""Results of admission become events of the cluster."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from lictor.cluster.events import EventSink
from lictor.cluster.settings import Settings
from lictor.model.request import Operation
from lictor.model.result import PolicyRef
from lictor.report.events import EventOptions, build_events
from lictor.serve.aftermath import Outcome


class AdmissionEvents:
    """Tells what happened to requests; what went well only where the settings say so."""

    takes_triggers = False

    def __init__(
        self,
        events: EventSink,
        settings: Callable[[], Settings],
        find_uids: Callable[[], Mapping[tuple[str, str], str]],
        is_scanned: Callable[[PolicyRef], bool] = lambda _: False,
    ) -> None:
        self._events = events
        self._settings = settings
        self._find_uids = find_uids
        self._is_scanned = is_scanned

    @property
    def wants_passes(self) -> bool:
        return self._settings().generate_success_events

    def take(self, outcome: Outcome) -> None:
        """Queue the events of one request."""
        verdict = outcome.now
        if outcome.later is not None:
            verdict = replace(verdict, results=(*verdict.results, *outcome.later.results))
        uids = self._find_uids()

        def find_uid(policy: PolicyRef) -> str:
            return uids.get((policy.kind, policy.key), "")

        options = EventOptions(
            blocked=not outcome.allowed,
            with_success=self.wants_passes,
            find_uid=find_uid,
            is_told_elsewhere=self._is_told_by_scan(outcome),
        )
        self._events.emit(*build_events(verdict, options))

    def _is_told_by_scan(self, outcome: Outcome) -> Callable[[PolicyRef], bool]:
        """A scan sees every object that is stored, and nothing of subresources and deletions."""
        request = outcome.request
        if request.subresource or request.operation is Operation.DELETE:
            return lambda _: False
        return self._is_scanned
