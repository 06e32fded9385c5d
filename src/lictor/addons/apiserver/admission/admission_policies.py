"""ValidatingAdmissionPolicies and MutatingAdmissionPolicies of the embedded API server."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lictor.addons.apiserver.admission.webhooks import is_exempt
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.status_errors import internal_error
from lictor.addons.apiserver.submission import MutationPasses, Submission
from lictor.core.errors import CompileError, RefusedRequestError
from lictor.core.families.admission_policy import VALIDATING_KIND
from lictor.core.ports import Lookups

if TYPE_CHECKING:
    from lictor.addons.apiserver.admission.native_policies import CompiledPolicies, Denial

_GROUP: Final = "admissionregistration.k8s.io"
_PLURALS: Final = (
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
)
_CODES: Final = {
    "Forbidden": HTTPStatus.FORBIDDEN,
    "Unauthorized": HTTPStatus.UNAUTHORIZED,
    "RequestEntityTooLarge": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}


class AdmissionPolicies:
    """The policies of the moment; compiled when one of them, or a kind, has changed."""

    def __init__(self, reader: ObjectReader, catalogue: KindCatalogue, lookups: Lookups) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._lookups = lookups
        self._policies: CompiledPolicies | None = None
        # Known to be without any policy in force: then nothing heavy is ever loaded.
        self._is_idle = False
        for plural in _PLURALS:
            reader.on_change(_GROUP, plural, self._forget)
        catalogue.listen(self._forget)

    def mutate(self, submission: Submission, rounds: MutationPasses) -> None:
        """Let policies change the object; raises RefusedRequestError."""
        policies = self._find_policies(submission)
        if policies is None or not policies.mutating:
            return
        denials = policies.mutate(submission, rounds)
        if denials:
            raise _refuse_mutation(submission, denials)

    def validate(self, submission: Submission, warnings: list[str]) -> None:
        """Let policies check the object; raises RefusedRequestError."""
        policies = self._find_policies(submission)
        if policies is None or not policies.validating:
            return
        denied: Denial | None = None
        for denial in policies.validate(submission):
            if denied is None and "Deny" in denial.actions:
                denied = denial
            if "Warn" in denial.actions:
                warnings.append(
                    f"Validation failed for {VALIDATING_KIND} '{denial.policy}' with "
                    f"binding '{denial.binding}': {denial.message}"
                )
        if denied is not None:
            raise _refuse(submission, denied)

    def _forget(self) -> None:
        self._policies = None
        self._is_idle = False

    def _find_policies(self, submission: Submission) -> "CompiledPolicies | None":
        if self._is_idle or is_exempt(submission.attributes.kind):
            return None
        if self._policies is None:
            documents = {plural: self._reader.list(_GROUP, plural) for plural in _PLURALS}
            if not any(documents[plural] for plural in _PLURALS[1::2]):
                self._is_idle = True
                return None
            # The engine of that language is heavy, and most clusters have no such policies.
            from lictor.addons.apiserver.admission.native_policies import compile_policies

            try:
                self._policies = compile_policies(
                    documents, self._reader, self._catalogue, self._lookups
                )
            except CompileError as error:
                # Policies themselves are exempt, so that their author can still repair them.
                raise internal_error(str(error)) from error
        return self._policies


def _refuse(submission: Submission, denial: "Denial") -> RefusedRequestError:
    bound = f" with binding '{denial.binding}'" if denial.binding else ""
    detail = f"{VALIDATING_KIND} '{denial.policy}'{bound} denied request: {denial.message}"
    error = submission.forbid(detail)
    reason = denial.reason or "Invalid"
    return RefusedRequestError(
        error.message,
        code=_CODES.get(reason, HTTPStatus.UNPROCESSABLE_ENTITY),
        reason=reason,
        details={**(error.details or {}), "causes": [{"message": detail}]},
    )


def _refuse_mutation(submission: Submission, denials: "Sequence[Denial]") -> RefusedRequestError:
    detail = [
        f"policy '{each.policy}' with binding '{each.binding}' denied request: {each.message}"
        if each.binding
        else f'policy "{each.policy}" denied request: {each.message}'
        for each in denials
    ]
    error = submission.forbid("admission request denied by policy")
    return RefusedRequestError(
        detail[0],
        code=HTTPStatus.FORBIDDEN,
        reason=denials[0].reason or "Forbidden",
        details={**(error.details or {}), "causes": [{"message": text} for text in detail]},
    )
