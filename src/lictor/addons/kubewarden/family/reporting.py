"""What do results and reports say of a policy, and what does an answer of its add up to?"""

from base64 import b64decode
from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from lictor.addons.kubewarden.family.entries import AdmissionStatus, PolicyResponse
from lictor.addons.kubewarden.family.records import WasmRecord, name_uniquely
from lictor.core.errors import EvaluationError
from lictor.core.lang.patch.strict_json_patch import apply_json_patch
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
        # What refuses nobody is for information, whatever its author thinks of its weight.
        annotations = {**annotations, _SEVERITY: "info"}
    return replace(
        ref,
        annotations=annotations,
        annotation_prefix=_PREFIX,
        report_name=name_uniquely(record),
    )


def list_properties(record: WasmRecord) -> dict[str, str]:
    """What an entry of a report says of the policy beside its name."""
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
        """What the policy said of a request; in the background in its own words alone."""
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

    def tell_change(self, response: PolicyResponse, before: JsonObject | None) -> Result:
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
    """The status; without details where these are more than anybody reads."""
    written: JsonObject = msgspec.to_builtins(status)
    if len(msgspec.json.encode(status.details)) > _MOST_DETAILS:
        del written["details"]
    return written


def _choose_annotations(response: PolicyResponse) -> dict[str, str]:
    """As many as an audit log can hold."""
    found = list((response.audit_annotations or {}).items())[:_MOST_ANNOTATIONS]
    return {name: text[:_LONGEST_ANNOTATION] for name, text in found}
