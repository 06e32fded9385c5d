"""Results of admission become events of the cluster."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from lictor.cluster.events import EventSink
from lictor.cluster.settings import Settings
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
    ) -> None:
        self._events = events
        self._settings = settings
        self._find_uids = find_uids

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
            blocked=not outcome.allowed, with_success=self.wants_passes, find_uid=find_uid
        )
        self._events.emit(*build_events(verdict, options))
