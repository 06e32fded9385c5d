"""Generates Kubernetes admission policies from ValidatingPolicies and MutatingPolicies."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from lictor.controllers.native_policies.objects import (
    AdmissionPolicyPair,
    NativeRequest,
    PolicyOwner,
    make_pair,
    name_conditions,
    quote,
    write,
)
from lictor.core.errors import CompileError
from lictor.core.families.admission_policy import VALIDATING_KIND
from lictor.core.families.family import expect_record
from lictor.core.families.kyverno_cel.autogen import find_custom_workloads, list_template_paths
from lictor.core.families.kyverno_cel.records import MutatingPolicy, ValidatingPolicy
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.model.cel_policy import CelException
from lictor.core.model.matching import MatchCondition
from lictor.core.model.metadata import PolicyRecord
from lictor.core.raw import Json, JsonObject

# What exceptions allow, and the variable that replaces it in a native policy.
_ALLOWANCES = (("allowedImages", "images"), ("allowedValues", "allowed_values"))

_ATOMIC = (
    "useServerSideApply is enabled, which mutates atomic fields that a native "
    "MutatingAdmissionPolicy rejects."
)
_NO_API = (
    "skip generating MutatingAdmissionPolicy: requested but no MutatingAdmissionPolicy API is "
    "available."
)


def build_validating(
    policy: ValidatingPolicy, owner: PolicyOwner, exceptions: Iterable[CelException]
) -> AdmissionPolicyPair:
    """Both objects; raises CompileError if the policy cannot be made native."""
    spec = policy.spec
    kind = VALIDATING_KIND
    if not spec.autogen.validating_admission_policy.enabled:
        raise _skip(kind, "not enabled.")
    _check_common(policy, kind)
    concerned = _list_concerned(exceptions, owner)
    conditions = [*_keep(spec.match_conditions), *_negate(concerned)]
    made: JsonObject = write(spec)
    body = {"validations": made.get("validations", [])}
    if made.get("auditAnnotations"):
        body["auditAnnotations"] = made["auditAnnotations"]
    native = _write_native(made, owner, body, concerned, conditions)
    _check_language(kind, native, has_patches=False)
    actions = list(spec.validation_actions) or ["Deny"]
    return make_pair("vpol", "Validating", owner, native, {"validationActions": actions}, "v1")


def build_mutating(
    policy: MutatingPolicy, owner: PolicyOwner, exceptions: Iterable[CelException], version: str
) -> AdmissionPolicyPair:
    """The same for a policy that mutates, in the version that the API server serves."""
    spec = policy.spec
    kind = "MutatingAdmissionPolicy"
    if not spec.autogen.mutating_admission_policy.enabled:
        raise _skip(kind, "not enabled.")
    _check_common(policy, kind)
    if spec.evaluation.use_server_side_apply:
        raise _skip(kind, _ATOMIC)
    targets = spec.target_match_constraints
    if targets is not None and (targets.resource_rules or targets.expression):
        raise _skip(kind, "targets that exist already are not applicable.")
    concerned = _list_concerned(exceptions, owner)
    conditions = [*_negate(concerned), *_keep(spec.match_conditions)]
    made: JsonObject = write(spec)
    body = {
        "mutations": made.get("mutations", []),
        "reinvocationPolicy": spec.reinvocation_policy,
    }
    native = _write_native(made, owner, body, concerned, conditions)
    _check_language(kind, native, has_patches=True)
    return make_pair("mpol", "Mutating", owner, native, {}, version)


def _write_native(
    made: JsonObject,
    owner: PolicyOwner,
    body: JsonObject,
    exceptions: Sequence[CelException],
    conditions: Sequence[tuple[str, str]],
) -> JsonObject:
    """The spec: what both kinds have in common, around what each checks or changes."""
    native: JsonObject = {
        "failurePolicy": owner.failure_policy,
        "matchConstraints": made["matchConstraints"],
        **body,
    }
    variables = [*made.get("variables", ()), *_declare_allowances(made, exceptions)]
    if variables:
        native["variables"] = variables
    if conditions:
        native["matchConditions"] = name_conditions(conditions)
    replaced: JsonObject = _replace_allowances(native)
    return replaced


def build_native_cel(policy: PolicyRecord, request: NativeRequest) -> AdmissionPolicyPair:
    """Both objects of a policy that validates or mutates."""
    if isinstance(policy, MutatingPolicy):
        return _build_mutating_pair(policy, request)
    return _build_validating_pair(expect_record(policy, ValidatingPolicy), request)


def _build_validating_pair(policy: ValidatingPolicy, request: NativeRequest) -> AdmissionPolicyPair:
    """Both objects, with the exceptions that may concern the policy."""
    return build_validating(policy, request.owner, _list_exceptions(request))


def _build_mutating_pair(policy: MutatingPolicy, request: NativeRequest) -> AdmissionPolicyPair:
    """The same for a policy that changes objects."""
    version = request.mutating_version
    if not version and policy.spec.autogen.mutating_admission_policy.enabled:
        raise CompileError(_NO_API)
    return build_mutating(policy, request.owner, _list_exceptions(request), version)


def _list_exceptions(request: NativeRequest) -> list[CelException]:
    now = datetime.now(UTC)
    return [
        each
        for each in request.exceptions
        if isinstance(each, CelException) and not each.spec.is_expired(now)
    ]


def _skip(kind: str, reason: str) -> CompileError:
    return CompileError(f"skip generating {kind}: {reason}")


def _check_common(policy: ValidatingPolicy | MutatingPolicy, kind: str) -> None:
    constraints, evaluation = policy.spec.match_constraints, policy.spec.evaluation
    if policy.kind.startswith("Namespaced"):
        raise _skip(kind, "namespaced policies are not applicable.")
    if constraints is None:
        raise _skip(kind, "no matchConstraints found.")
    wanted = policy.spec.autogen.pod_controllers
    is_covered = find_custom_workloads(constraints, wanted) is None
    if not is_covered or any(True for _ in list_template_paths(constraints, wanted)):
        raise _skip(kind, "pod controllers autogen is enabled.")
    if evaluation.mode != "Kubernetes":
        raise _skip(kind, f"evaluation mode {evaluation.mode} is not applicable.")
    if not evaluation.admission.enabled:
        raise _skip(kind, "admission is not enabled.")


def _list_concerned(exceptions: Iterable[CelException], owner: PolicyOwner) -> list[CelException]:
    return [
        each
        for each in exceptions
        if any((ref.kind, ref.name) == (owner.kind, owner.name) for ref in each.spec.policy_refs)
    ]


def _keep(conditions: Sequence[MatchCondition]) -> Iterable[tuple[str, str]]:
    return ((each.name, each.expression) for each in conditions)


def _negate(exceptions: Iterable[CelException]) -> Iterable[tuple[str, str]]:
    """An exception holds where all of its conditions do; the policy, where no exception does."""
    for each in exceptions:
        if each.spec.images or each.spec.allowed_values:
            continue  # It allows some values, and leaves the policy in force.
        held = _join(each)
        first = each.spec.match_conditions[0].name if each.spec.match_conditions else ""
        yield first or each.metadata.name, f"!({held})" if held else "false"


def _join(exception: CelException) -> str:
    texts = [each.expression for each in exception.spec.match_conditions]
    return texts[0] if len(texts) == 1 else " && ".join(f"({text})" for text in texts)


def _declare_allowances(
    made: JsonObject, exceptions: Sequence[CelException]
) -> Iterable[JsonObject]:
    text = msgspec.json.encode(made).decode()
    for name, field in _ALLOWANCES:
        if f"exceptions.{name}" in text:
            lists = [_allow(each, getattr(each.spec, field)) for each in exceptions]
            lists = [each for each in lists if each] or ["[]"]
            yield {"name": name, "expression": " + ".join(lists)}


def _allow(exception: CelException, values: Sequence[str]) -> str:
    if not values:
        return ""
    held = _join(exception)
    return f"(({held}) ? {quote(values)} : [])" if held else quote(values)


def _replace_allowances(value: Json) -> Json:
    if isinstance(value, str):
        for name, _ in _ALLOWANCES:
            value = value.replace(f"exceptions.{name}", f"variables.{name}")
        return value
    if isinstance(value, dict):
        return {key: _replace_allowances(item) for key, item in value.items()}
    return [_replace_allowances(item) for item in value] if isinstance(value, list) else value


def _check_language(kind: str, native: JsonObject, *, has_patches: bool) -> None:
    """Check that the API server supports all of it: it has none of Kyverno's functions."""
    from lictor.lint.cel_expressions import ExpressionContext
    from lictor.lint.cel_policies import check_cel_fields, list_cel_fields, list_condition_fields
    from lictor.lint.field import Field

    spec = Field(native)
    plain = ExpressionContext(kubernetes_environment(has_params=False, has_patches=has_patches))
    grammar, faults = plain.declare(spec["variables"])
    faults += check_cel_fields(list_cel_fields(spec), grammar)
    faults += check_cel_fields(list_condition_fields(spec), plain)
    for fault in faults:
        if fault.check == "bad-expression":
            raise _skip(kind, f"{fault.message} (the API server's own CEL does not know it).")
