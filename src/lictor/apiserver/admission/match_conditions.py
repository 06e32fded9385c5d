"""Conditions in CEL on a request under admission, as webhooks have them."""

from collections.abc import Sequence

from lictor.apiserver.admission.submission import Submission, convert, describe_request
from lictor.apiserver.admission.webhooks import MatchConditionTest
from lictor.apiserver.json_fields import read_text
from lictor.apiserver.kind import ServedKind
from lictor.evaluate.cel.context import bind_host_functions
from lictor.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
from lictor.kubernetes.resource_names import builtin_names
from lictor.lang.cel.environment import kubernetes_environment, make_activation
from lictor.lang.cel.library.authorizer import authorizer, request_resource
from lictor.model.policy import MatchCondition
from lictor.ports import Lookups
from lictor.raw import Json, JsonObject


def compile_cel_conditions(
    conditions: Sequence[Json], lookups: Lookups, *, ignore_errors: bool
) -> MatchConditionTest:
    """Whether all hold."""
    records = [
        MatchCondition(read_text(each, "name"), read_text(each, "expression"))
        for each in conditions
    ]
    language = ExpressionCompiler(
        kubernetes_environment(has_params=False),
        bind_host_functions(lookups, builtin_names()),
        lenient=True,
    )
    holds = compile_match_conditions(records, language, ignore_errors=ignore_errors)
    asks_access = any("authorizer" in record.expression for record in records)

    def decide(submission: Submission, place: ServedKind | None) -> bool:
        values = _show(submission, place)
        if asks_access:
            values |= _show_access(submission)
        return holds is None or holds(make_activation(values))

    return decide


def _show(submission: Submission, place: ServedKind | None) -> JsonObject:
    shown = "" if place is None else place.api_version
    document = convert(submission.document, shown)
    old = convert(submission.old, shown)
    request = describe_request(submission, place, with_objects=False)
    return {"object": document, "oldObject": old, "request": request, "namespaceObject": None}


def _show_access(submission: Submission) -> JsonObject:
    attributes = submission.attributes
    asked = {
        "group": attributes.kind.group,
        "resource": attributes.kind.plural,
        "subresource": attributes.subresource,
        "namespace": attributes.namespace,
        "name": submission.name,
    }
    caller = {"user": attributes.user.name, "groups": list(attributes.user.groups)}
    return {
        "authorizer": authorizer(caller),
        "authorizer.requestResource": request_resource(asked, caller),
    }
