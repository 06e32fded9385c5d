"""May an update break a rule? Where the old object broke it already, and the rule allows that."""

from msgspec.structs import replace

from lictor.errors import LictorError
from lictor.model.program import Case, Check, Matcher
from lictor.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.model.result import Result, Status

_NOBODY = Caller("kyverno:kyverno-invalid-controller", "kyverno:invaliduid")
_SKIPPED = "skipping the rule evaluation as pre-existing violations are allowed"
# Variables given by hand that speak of the update, and not of the old object.
_OF_THE_UPDATE = ("request.object", "request.oldObject", "request.operation")


def allow_existing(check: Check, matches: Matcher) -> Check:
    """The check, but for updates that break what the old object broke already.

    `matches` is asked about the old object as nobody would create it now, and not through a
    subresource: a rule about callers or subresources only never concerns it, and is not relaxed.
    """

    def relaxed(case: Case) -> tuple[Result, ...]:
        results = check(case)
        request = case.request
        if request.operation is not Operation.UPDATE or request.old_object is None:
            return results
        if not any(result.status is Status.FAIL for result in results):
            return results
        if not matches(_as_stored(request)) or not _was_broken(check, case):
            return results
        return (replace(results[0], status=Status.SKIP, message=_SKIPPED, failure=None),)

    return relaxed


def _was_broken(check: Check, case: Case) -> bool:
    try:
        results = check(Case(_as_created(case.request), case.builder))
    except LictorError:
        # Whether the old object was right cannot be told: the violation stands.
        return False
    return any(result.status is Status.FAIL for result in results)


def _as_stored(request: Request) -> Request:
    """The old object for itself, as if nobody that a rule could know created it."""
    old = request.old_object or {}
    kind = GroupVersionKind.of(str(old.get("apiVersion") or ""), str(old.get("kind") or ""))
    return replace(
        request,
        # What is sent to a subresource (a Scale) is not of its owner's kind.
        kind=kind if kind.kind else request.kind,
        object=old,
        old_object=None,
        operation=Operation.CREATE,
        subresource="",
        caller=_NOBODY,
    )


def _as_created(request: Request) -> Request:
    """The old object as the same caller would create it now."""
    admission = request.admission
    if admission is not None:
        admission = {**admission, "oldObject": None}
    return replace(
        request,
        object=request.old_object,
        old_object=None,
        operation=Operation.CREATE,
        variables={
            name: value
            for name, value in request.variables.items()
            if not name.startswith(_OF_THE_UPDATE)
        },
        admission=admission,
    )
