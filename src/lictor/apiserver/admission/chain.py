"""Admission: what Kubernetes does with a request between its authorization and the store."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from lictor.apiserver.access.authorization import Authorization
from lictor.apiserver.access.escalation import Escalation
from lictor.apiserver.admission.builtin_admission import BuiltinAdmission
from lictor.apiserver.admission.native_policies import NativePolicies
from lictor.apiserver.admission.pod_security_admission import PodSecurityAdmission
from lictor.apiserver.admission.reinvocation import Rounds
from lictor.apiserver.admission.store_lookups import StoreLookups
from lictor.apiserver.admission.submission import Submission
from lictor.apiserver.admission.webhook_admission import WebhookAdmission
from lictor.apiserver.admission.webhooks import MUTATING, VALIDATING, WebhookBook
from lictor.apiserver.attributes import RequestAttributes
from lictor.apiserver.kinds.catalogue import KindCatalogue
from lictor.apiserver.reading import ObjectReader, ObjectSource
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject


class Admitted(msgspec.Struct, frozen=True):
    """The object as it shall be, and what its author should hear."""

    document: JsonObject | None
    warnings: tuple[str, ...] = ()


@contextmanager
def _hand_on(warnings: list[str]) -> Iterator[None]:
    """Whoever is refused hears the warnings as well."""
    try:
        yield
    except RefusedRequestError as error:
        error.warnings = tuple(warnings)
        raise


class Admission:
    """The whole chain: first what changes, then (after the schema) what only checks."""

    def __init__(
        self, objects: ObjectSource, catalogue: KindCatalogue, authorization: Authorization
    ) -> None:
        reader = ObjectReader(objects, catalogue)
        lookups = StoreLookups(reader, authorization)
        self._builtin = BuiltinAdmission(reader)
        self._escalation = Escalation(reader, authorization)
        self._pod_security = PodSecurityAdmission(reader)
        self._policies = NativePolicies(reader, catalogue, lookups)
        self._webhooks = WebhookAdmission(
            reader,
            WebhookBook(reader, catalogue, MUTATING, lookups),
            WebhookBook(reader, catalogue, VALIDATING, lookups),
        )

    async def mutate(
        self, attributes: RequestAttributes, document: JsonObject | None, old: JsonObject | None
    ) -> Admitted:
        """The object after all who may change it; raises RefusedRequestError."""
        submission = Submission(attributes, document, old)
        warnings: list[str] = []
        rounds = Rounds()
        with _hand_on(warnings):
            await self._run(submission, rounds, warnings)
            if rounds.wants_another:
                rounds.is_again = True
                await self._run(submission, rounds, warnings)
        return Admitted(submission.document, tuple(warnings))

    async def validate(
        self, attributes: RequestAttributes, document: JsonObject | None, old: JsonObject | None
    ) -> tuple[str, ...]:
        """Warnings of all who check; raises RefusedRequestError."""
        warnings: list[str] = []
        self._escalation.check(attributes, document, old)
        submission = Submission(attributes, document, old)
        with _hand_on(warnings):
            self._pod_security.validate(submission, warnings)
            self._policies.validate(submission, warnings)
            await self._webhooks.validate(submission, warnings)
        return tuple(warnings)

    async def close(self) -> None:
        """End the connections to webhooks."""
        await self._webhooks.close()

    async def _run(self, submission: Submission, rounds: Rounds, warnings: list[str]) -> None:
        self._builtin.mutate(submission)
        self._policies.mutate(submission, rounds)
        await self._webhooks.mutate(submission, rounds, warnings)
