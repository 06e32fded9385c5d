"""A policy in results and reports, and how its answer becomes a result."""

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from lictor.addons.kubewarden.family.entries import AdmissionStatus, PolicyResponse
from lictor.addons.kubewarden.family.records import WasmRecord, name_uniquely
from lictor.core.errors import EvaluationError
from lictor.core.families.explanation import (
    MatchClause,
    RuleExplanation,
    dig,
    is_expression,
    list_expressions,
)
from lictor.core.lang.patch.json_patch import apply_json_patch
from lictor.core.lang.watch import ClosureAnswer
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.result import Action, CallerAnswer, PolicyRef, Result, RuleType, Status
from lictor.core.raw import Json, JsonObject

_PREFIX = "io.kubewarden.policy."
_SEVERITY = f"{_PREFIX}severity"
_INTERNAL = 500
_YES = "true"
_MOST_DETAILS = 64 * 1024
_MOST_ANNOTATIONS = 64
_LONGEST_ANNOTATION = 10 * 1024


def refer_to_policy(record: WasmRecord, ref: PolicyRef) -> PolicyRef:
    """The policy as reports name it: by its unique name, with Kubewarden's annotations."""
    annotations = ref.annotations
    if record.spec.mode == "monitor":
        # A policy that denies nothing is informational, despite its declared severity.
        annotations = {**annotations, _SEVERITY: "info"}
    return replace(
        ref,
        annotations=annotations,
        annotation_prefix=_PREFIX,
        report_name=name_uniquely(record),
    )


def list_properties(record: WasmRecord) -> dict[str, str]:
    """The properties of a policy in an entry of a report."""
    metadata = record.metadata
    told = {
        "policy-uid": metadata.uid,
        "policy-resource-version": metadata.resource_version,
        "policy-name": metadata.name,
        "policy-namespace": metadata.namespace,
        "mutating" if getattr(record.spec, "mutating", False) else "validating": _YES,
        "context-aware": _YES if _is_context_aware(record) else "",
    }
    return {name: text for name, text in told.items() if text}


def _is_context_aware(record: WasmRecord) -> bool:
    members = getattr(record.spec, "policies", {"": record.spec}).values()
    return any(getattr(member, "context_aware_resources", ()) for member in members)


class ResultMaker(msgspec.Struct, frozen=True):
    """Makes results of one policy of its answers."""

    policy: PolicyRef
    action: Action
    properties: Mapping[str, str]

    def tell(self, response: PolicyResponse, *, is_background: bool) -> Result:
        """The result for a request; in the background with the policy's message alone."""
        status = response.status or AdmissionStatus()
        message = status.message or ""
        if not is_background:
            message = "; ".join(filter(None, (message, *_list_causes(status))))
        return Result(
            policy=self.policy,
            rule="",
            type=RuleType.VALIDATION,
            status=_read_status(response, status),
            message=message,
            action=self.action,
            properties=self.properties,
            caller_answer=CallerAnswer(
                _write_status(status),
                response.warnings or (),
                _choose_annotations(response),
            ),
        )

    def build_change_result(self, response: PolicyResponse, before: JsonObject | None) -> Result:
        """The same of a policy that may change the object."""
        told = replace(self.tell(response, is_background=False), type=RuleType.MUTATION)
        if told.status is not Status.PASS or self.action is Action.AUDIT:
            return told
        return told if response.patch is msgspec.UNSET else _patch(told, response.patch, before)


def _read_status(response: PolicyResponse, status: AdmissionStatus) -> Status:
    if response.allowed:
        return Status.PASS
    return Status.ERROR if status.code == _INTERNAL else Status.FAIL


def _list_causes(status: AdmissionStatus) -> Iterator[str]:
    causes: Json = (status.details or {}).get("causes") or ()
    for cause in causes:
        field = str(cause["field"] or "").rpartition(".")[2]
        yield ": ".join(filter(None, (field, cause["message"])))


def _patch(told: Result, patch: str, before: JsonObject | None) -> Result:
    try:
        operations = msgspec.json.decode(b64decode(patch, validate=True))
        after = apply_json_patch(before or {}, operations, must_pass_tests=True)
    except (ValueError, EvaluationError) as error:
        return _fail(told, f"the patch of the policy cannot be applied: {error}")
    if not isinstance(after, dict):
        return _fail(told, "the policy would leave something that is no object")
    return replace(told, patched=after)


def _fail(told: Result, message: str) -> Result:
    return replace(told, status=Status.ERROR, message=message, caller_answer=None)


def _write_status(status: AdmissionStatus) -> JsonObject:
    """The status, without details if they are too long."""
    written: JsonObject = msgspec.to_builtins(status)
    if len(msgspec.json.encode(status.details)) > _MOST_DETAILS:
        del written["details"]
    return written


def _choose_annotations(response: PolicyResponse) -> dict[str, str]:
    """As many as an audit log can hold."""
    found = list((response.audit_annotations or {}).items())[:_MOST_ANNOTATIONS]
    return {name: text[:_LONGEST_ANNOTATION] for name, text in found}


# The name of the closure that matches the whole policy.
_ROOT = "spec"


def explain_policy(
    policy: PolicyRecord,
    recorded: Sequence[ClosureAnswer],
    results: Sequence[Result],
) -> tuple[RuleExplanation, ...]:
    """Explain the rules, selectors and conditions of a policy, and the answer of its module."""
    # Several rules of a mutating policy evaluate the same closures.
    matches = {each.what: bool(each.answer) for each in recorded if not is_expression(each.what)}
    # Requests in other namespaces evaluate no closure.
    matched = matches.pop(_ROOT, False)
    paths = {what: what[len(_ROOT) + 1 :].replace("resourceRules", "rules") for what in matches}
    return (
        RuleExplanation(
            rule="",
            title="policy",
            matched=matched,
            clauses=tuple(
                MatchClause(paths[what], fits, dig(policy.spec, paths[what]))
                for what, fits in matches.items()
            ),
            expressions=tuple(list_expressions(recorded, lambda path: dig(policy.spec, path))),
            results=tuple(results),
        ),
    )
