"""Admission: what Kubernetes does with a request between its authorization and the store."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec

from lictor.addons.apiserver.access.authorization import Authorization, read_question
from lictor.addons.apiserver.access.escalation import Escalation
from lictor.addons.apiserver.admission.admission_policies import AdmissionPolicies
from lictor.addons.apiserver.admission.plugins import BuiltinPlugins, PodSecurityAdmission
from lictor.addons.apiserver.admission.webhook_admission import WebhookAdmission
from lictor.addons.apiserver.admission.webhooks import MUTATING, VALIDATING, WebhookIndex
from lictor.addons.apiserver.json_fields import read_object
from lictor.addons.apiserver.kind import ObjectReader, ObjectSource
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.request import RequestAttributes
from lictor.addons.apiserver.submission import MutationPasses, Submission, convert
from lictor.core.errors import NotProvidedError, RefusedRequestError
from lictor.core.ports import ApiCall, NoLookups
from lictor.core.raw import Json, JsonObject

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class StoreLookups(NoLookups):
    """Objects of the store and answers of its authorizer; nothing of the outside."""

    def __init__(self, reader: ObjectReader, authorization: Authorization) -> None:
        self._reader = reader
        self._authorization = authorization

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        found = self._reader.catalogue.find_kind(api_version, kind)
        document = None if found is None else self._reader.objects.get(found, namespace, name)
        # Objects are stored in one version and shown in the requested one.
        return convert(document, api_version)

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        found = self._reader.catalogue.find_kind(api_version, kind)
        documents = [] if found is None else self._reader.objects.list(found, namespace)
        return [{**each, "apiVersion": api_version} for each in documents]

    def call_api(self, call: ApiCall) -> Json:
        if call.url_path != _REVIEWS or call.method != "POST":
            raise NotProvidedError(f"no call of {call.url_path or call.service_url} from here")
        allowed, reason = self._authorization.decide(read_question(read_object(call.data, "spec")))
        return {"status": {"allowed": allowed, "reason": reason}}

    def now(self) -> datetime:
        return datetime.now(UTC)


class Admitted(msgspec.Struct, frozen=True):
    """The object as it shall be, and what its author should hear."""

    document: JsonObject | None
    warnings: tuple[str, ...] = ()


@contextmanager
def _attach_warnings(warnings: list[str]) -> Iterator[None]:
    """A refusal carries the warnings collected before it."""
    try:
        yield
    except RefusedRequestError as error:
        error.warnings = tuple(warnings)
        raise


class AdmissionChain:
    """The whole chain: first what changes, then (after the schema) what only checks."""

    def __init__(
        self, objects: ObjectSource, catalogue: KindCatalogue, authorization: Authorization
    ) -> None:
        reader = ObjectReader(objects, catalogue)
        lookups = StoreLookups(reader, authorization)
        self._builtin = BuiltinPlugins(reader)
        self._escalation = Escalation(reader, authorization)
        self._pod_security = PodSecurityAdmission(reader)
        self._policies = AdmissionPolicies(reader, catalogue, lookups)
        self._webhooks = WebhookAdmission(
            reader,
            WebhookIndex(reader, catalogue, MUTATING, lookups),
            WebhookIndex(reader, catalogue, VALIDATING, lookups),
        )

    async def mutate(
        self, attributes: RequestAttributes, document: JsonObject | None, old: JsonObject | None
    ) -> Admitted:
        """The object after all who may change it; raises RefusedRequestError."""
        submission = Submission(attributes, document, old)
        warnings: list[str] = []
        rounds = MutationPasses()
        with _attach_warnings(warnings):
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
        with _attach_warnings(warnings):
            self._pod_security.validate(submission, warnings)
            self._policies.validate(submission, warnings)
            await self._webhooks.validate(submission, warnings)
        return tuple(warnings)

    async def close(self) -> None:
        """End the connections to webhooks."""
        await self._webhooks.close()

    async def _run(
        self, submission: Submission, rounds: MutationPasses, warnings: list[str]
    ) -> None:
        self._builtin.mutate(submission)
        self._policies.mutate(submission, rounds)
        await self._webhooks.mutate(submission, rounds, warnings)
