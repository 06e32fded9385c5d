"""`validate.assert`: an assertion tree over the request."""

from collections.abc import Mapping

from msgspec.structs import replace

from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.lang.assertion import compile_assertion
from lictor.core.model.program import Case, Check
from lictor.core.model.request import Request
from lictor.core.model.result import Failure, Result, Status
from lictor.core.raw import Json, JsonObject


def compile_assert(tree: Json, names: tuple[str, ...], setting: RuleContext) -> Check:
    """The check of an assertion tree, with the context entries `names` as bindings."""
    test = compile_assertion(tree, now=setting.lookups.now)
    text = f"Validation rule '{setting.rule}' passed."

    def check(case: Case) -> tuple[Result, ...]:
        mismatches = test(_payload(case.request), _bindings(case, names))
        if not mismatches:
            return (setting.result(case, RuleOutcome(Status.PASS, text)),)
        base = setting.result(case, RuleOutcome(Status.FAIL))
        return tuple(
            replace(base, message=str(m), failure=Failure(m.path, found=m.found, reason=m.detail))
            for m in mismatches
        )

    return check


def _bindings(case: Case, names: tuple[str, ...]) -> Mapping[str, Json]:
    bindings = {}
    for name in names:
        try:
            bindings[name] = case.scope[name]
        except KeyError:
            continue  # unavailable; a tree that uses it gets the error
    return bindings


def _payload(request: Request) -> JsonObject:
    caller = request.caller
    return {
        "object": request.object,
        "oldObject": request.old_object,
        "admissionInfo": {}
        if caller is None
        else {
            "roles": list(caller.roles),
            "clusterRoles": list(caller.cluster_roles),
            "userInfo": {
                "username": caller.username,
                "uid": caller.uid,
                "groups": list(caller.groups),
                "extra": dict(caller.extra),
            },
        },
        "operation": str(request.operation),
        "namespaceLabels": dict(request.namespace_labels),
        "admissionOperation": request.admission is not None,
        "resourceKind": {
            "group": request.kind.group,
            "version": request.kind.version,
            "kind": request.kind.kind,
            "subResource": request.subresource,
        },
    }
