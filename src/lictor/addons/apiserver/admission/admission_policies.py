"""ValidatingAdmissionPolicies and MutatingAdmissionPolicies of the embedded API server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lictor.addons.apiserver.admission.webhooks import is_exempt
from lictor.addons.apiserver.json_fields import read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.service_account_tokens import name_controller
from lictor.addons.apiserver.status_errors import internal_error
from lictor.addons.apiserver.submission import MutationPasses, Submission
from lictor.core.errors import CompileError, RefusedRequestError
from lictor.core.families.admission_policy import VALIDATING_KIND
from lictor.core.ports import Lookups
from lictor.core.raw import JsonObject

if TYPE_CHECKING:
    from lictor.addons.apiserver.admission.native_policies import CompiledPolicies, Denial


log = logging.getLogger(__name__)
STATUS_KEEPER = name_controller("validatingadmissionpolicy-status-controller")
_PASSING = (404, 409)
# Replaces the status of a policy, as STATUS_KEEPER.
WriteStatus = Callable[[JsonObject], Awaitable[object]]


class PolicyStatusController:
    """Keeps `observedGeneration`; types of expressions are checked when they are written."""

    def __init__(self, reader: ObjectReader, write: WriteStatus) -> None:
        self._reader = reader
        self._write = write
        self._wake = asyncio.Event()
        self._wake.set()
        reader.on_change(GROUP, VALIDATING, self._wake.set)

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Write what is not up to date."""
        for policy in self._reader.list(GROUP, VALIDATING):
            generation = read_object(policy, "metadata").get("generation")
            status = read_object(policy, "status")
            if status.get("observedGeneration") == generation:
                continue
            detail = {**status, "observedGeneration": generation, "typeChecking": {}}
            try:
                await self._write({**policy, "status": detail})
            except RefusedRequestError as error:
                # Gone, or changed meanwhile: that wakes us up again.
                if error.code not in _PASSING:
                    name = read_text(read_object(policy, "metadata"), "name")
                    log.warning("status not written", extra={"policy": name, "why": error.message})


GROUP: Final = "admissionregistration.k8s.io"
VALIDATING: Final = "validatingadmissionpolicies"
_PLURALS: Final = (
    VALIDATING,
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
            reader.on_change(GROUP, plural, self._forget)
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
            documents = {plural: self._reader.list(GROUP, plural) for plural in _PLURALS}
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
