"""Where results of admission go: events, reports, and UpdateRequests for the background."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from lictor.core.families.registry import registry
from lictor.core.model.request import Caller, Operation, Request
from lictor.core.model.result import PolicyRef, Result, RuleType, Status
from lictor.core.raw import JsonObject
from lictor.core.report.events import EventOptions, build_events
from lictor.core.report.resource_report import ReportForm, ReportSubject, build_entry
from lictor.kubernetes.ephemeral_reports import EphemeralReports
from lictor.kubernetes.events import EventSink
from lictor.kubernetes.settings import Settings
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.kubernetes.update_requests import Update, UpdateRequests, UpdateTrigger, UpdateType
from lictor.webhook.post_admission import AdmissionOutcome

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class AdmissionUpdates:
    """Requests work in the background; what that does triggers nothing."""

    takes_triggers = True
    wants_passes = False

    def __init__(
        self,
        requests: UpdateRequests,
        background_user: str,
        list_policies: Callable[[], tuple[StoredPolicy, ...]],
    ) -> None:
        self._requests = requests
        self._background_user = background_user
        self._list_policies = list_policies
        self._known: tuple[StoredPolicy, ...] = ()
        self._chained: frozenset[tuple[str, str]] = frozenset()

    def take(self, outcome: AdmissionOutcome) -> None:
        """Queue what one request has set off."""
        if outcome.triggered is None or not outcome.allowed:
            return
        request = outcome.request
        caller = request.caller or Caller()
        results: Iterable[Result] = outcome.triggered.results
        if self._background_user and caller.username == self._background_user:
            results = [result for result in results if self._is_chained(result)]
        for update in list_updates(request, results):
            if not self._requests.offer(update):
                log.error("update request dropped", extra={"policy": update.policy})

    def _is_chained(self, result: Result) -> bool:
        """Does the background's own work set this rule off?"""
        policies = self._list_policies()
        if policies is not self._known:
            self._known, self._chained = policies, find_chained(policies)
        return (result.policy.key, result.rule) in self._chained


def find_chained(policies: Iterable[StoredPolicy]) -> frozenset[tuple[str, str]]:
    """The rules with names that want to hear of the background's own requests too."""
    return frozenset(
        (policy.key, name)
        for policy in policies
        if policy.record is not None
        for name in policy.kind.family.list_chained_rules(policy.record)
    )


def list_updates(request: Request, results: Iterable[Result]) -> list[Update]:
    """The work that rules request, one update for each policy and kind of work."""
    chosen: dict[tuple[UpdateType, str], list[str]] = {}
    for result in results:
        if result.status in (Status.PASS, Status.ERROR):
            # An error may well be none a moment later: the background retries and reports.
            key = (_type_of(result), result.policy.key)
            rules = chosen.setdefault(key, [])
            if result.rule not in rules:
                rules.append(result.rule)
    trigger = UpdateTrigger.of(request.resource)
    caller = _describe_caller(request.caller)
    admission = _slim(request)
    updates = []
    for (kind, policy), rules in chosen.items():
        # A mutation is done rule by rule, as Kyverno's are; what is generated belongs together.
        groups = [(rule,) for rule in rules] if "mutate" in kind else [tuple(rules)]
        updates += [
            Update(kind, policy, group, trigger, admission=admission, caller=caller)
            for group in groups
        ]
    return updates


def _is_cel(policy: PolicyRef) -> bool:
    return not registry().of(policy).has_named_rules


def _type_of(result: Result) -> UpdateType:
    generates = result.type is RuleType.GENERATION
    if _is_cel(result.policy):
        return UpdateType.CEL_GENERATE if generates else UpdateType.CEL_MUTATE
    return UpdateType.GENERATE if generates else UpdateType.MUTATE


def _describe_caller(caller: Caller | None) -> JsonObject | None:
    if caller is None:
        return None
    return {"roles": list(caller.roles), "clusterRoles": list(caller.cluster_roles)}


def _slim(request: Request) -> JsonObject | None:
    """The AdmissionRequest without what the background reads from the cluster."""
    admission = request.admission
    if admission is None:
        return None
    kept = dict(admission)
    if request.operation is not Operation.DELETE and not request.subresource:
        # It may be a Secret, and must not be stored in clear a second time.
        kept["object"] = None
    if request.kind.kind == "Secret":
        # What goes away or was there before cannot be read again; its content is not needed.
        kept.update((name, _hide(kept[name])) for name in ("object", "oldObject") if kept.get(name))
    return kept


def _hide(secret: JsonObject) -> JsonObject:
    """A Secret without its contents; kubectl keeps a copy of them in an annotation."""
    kept = {name: value for name, value in secret.items() if name not in ("data", "stringData")}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        notes = metadata.get("annotations")
        if isinstance(notes, dict) and _LAST_APPLIED in notes:
            notes = {name: text for name, text in notes.items() if name != _LAST_APPLIED}
            kept["metadata"] = {**metadata, "annotations": notes}
    return kept


class AdmissionEvents:
    """Events about requests; about passes only if the settings enable them."""

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

    def take(self, outcome: AdmissionOutcome) -> None:
        """Queue the events of one request."""
        verdict = outcome.verdict
        if outcome.audit is not None:
            verdict = replace(verdict, results=(*verdict.results, *outcome.audit.results))
        uids = self._find_uids()

        def find_uid(policy: PolicyRef) -> str:
            return uids.get((policy.kind, policy.key), "")

        options = EventOptions(
            blocked=not outcome.allowed,
            with_success=self.wants_passes,
            find_uid=find_uid,
            is_reported_elsewhere=self._is_told_by_scan(outcome),
        )
        self._events.emit(*build_events(verdict, options))

    def _is_told_by_scan(self, outcome: AdmissionOutcome) -> Callable[[PolicyRef], bool]:
        """A scan sees every object that is stored, and nothing of subresources and deletions."""
        request = outcome.request
        if request.subresource or request.operation is Operation.DELETE:
            return lambda _: False
        return self._is_scanned


log = logging.getLogger(__name__)

_DISABLED = "reports.kyverno.io/disabled"
_CHECKS = (RuleType.VALIDATION, RuleType.IMAGE_VERIFY)


class AdmissionReports:
    """Reports what a scan cannot: policies that are evaluated at admission only, and mutations."""

    takes_triggers = False
    wants_passes = True

    def __init__(
        self,
        reports: EphemeralReports,
        form: ReportForm,
        is_scanned: Callable[[PolicyRef], bool],
    ) -> None:
        self._reports = reports
        self._form = form
        self._is_scanned = is_scanned
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, outcome: AdmissionOutcome) -> None:
        """Queue the entries of one request."""
        request = outcome.request
        if not outcome.allowed or request.operation is Operation.DELETE or request.subresource:
            return
        results = (*outcome.verdict.results, *(outcome.audit.results if outcome.audit else ()))
        entries = self._build(results)
        if not entries:
            return
        subject = ReportSubject.of(request.resource)
        if not subject.name:
            return  # named by the API server later: it cannot be found by what is known now
        resource = (request.admission or {}).get("resource") or {}
        adding = self._reports.add(subject, str(resource.get("resource") or ""), entries)
        task = asyncio.get_running_loop().create_task(adding)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _build(self, results: tuple[Result, ...]) -> list[JsonObject]:
        stamp = int(time.time())
        return [
            build_entry(result, background=self._is_scanned(result.policy), timestamp=stamp)
            for result in results
            if self._form.wants(result)
            and _DISABLED not in result.policy.labels
            and not (result.type in _CHECKS and self._is_scanned(result.policy))
        ]
