"""Triggers of generate and mutate-existing rules become UpdateRequests."""

import logging
from collections.abc import Callable, Iterable

from lictor.cluster.store import StoredPolicy
from lictor.cluster.update_requests import Trigger, Update, UpdateRequests, UpdateType
from lictor.model.policy import Policy
from lictor.model.request import Caller, Operation, Request
from lictor.model.result import PolicyRef, Result, RuleType, Status
from lictor.raw import JsonObject
from lictor.serve.aftermath import Outcome

log = logging.getLogger(__name__)

_CEL_GROUP = "policies.kyverno.io"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class AdmissionUpdates:
    """Asks for work in the background; what that itself does sets off nothing."""

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

    def take(self, outcome: Outcome) -> None:
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
                log.error("no room for an update request", extra={"policy": update.policy})

    def _is_chained(self, result: Result) -> bool:
        """Does the background's own work set this rule off?"""
        policies = self._list_policies()
        if policies is not self._known:
            self._known, self._chained = policies, find_chained(policies)
        return _is_cel(result.policy) or (result.policy.key, result.rule) in self._chained


def find_chained(policies: Iterable[StoredPolicy]) -> frozenset[tuple[str, str]]:
    """The classic rules that want to hear of the background's own requests too."""
    return frozenset(
        (policy.key, rule.name)
        for policy in policies
        if isinstance(policy.record, Policy)
        for rule in policy.record.spec.rules
        if not rule.skip_background_requests
    )


def list_updates(request: Request, results: Iterable[Result]) -> list[Update]:
    """The work that rules ask for, one update for each policy and kind of work."""
    chosen: dict[tuple[UpdateType, str], list[str]] = {}
    for result in results:
        if result.status in (Status.PASS, Status.ERROR):
            # An error may well be none a moment later: the background tries again, and tells.
            key = (_type_of(result), result.policy.key)
            rules = chosen.setdefault(key, [])
            if result.rule not in rules:
                rules.append(result.rule)
    trigger = Trigger.of(request.resource)
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
    return policy.api_version.startswith(_CEL_GROUP)


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
    """The AdmissionRequest without what the background reads from the cluster by itself."""
    admission = request.admission
    if admission is None:
        return None
    kept = dict(admission)
    if request.operation is not Operation.DELETE and not request.subresource:
        # It may be a Secret, and need not lie there in clear a second time.
        kept["object"] = None
    if request.kind.kind == "Secret":
        # What goes away or was there before cannot be read again; what it held is nobody's affair.
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
