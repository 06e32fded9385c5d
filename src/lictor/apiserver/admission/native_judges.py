"""Native policies, compiled by our own engine of CEL, and asked in Kubernetes' order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from lictor.apiserver.admission.admission_reviews import describe_request
from lictor.apiserver.admission.native_mutating import MutatingJudge, compile_mutating
from lictor.apiserver.admission.native_validating import ValidatingJudge, compile_validating
from lictor.apiserver.admission.native_verdict import Denial, Facts
from lictor.apiserver.admission.reinvocation import Rounds
from lictor.apiserver.admission.submission import Submission, is_namespace
from lictor.apiserver.kinds.catalogue import KindCatalogue
from lictor.apiserver.reading import ObjectReader, read_object, read_text
from lictor.errors import CompileError
from lictor.evaluate.cel.context import CelContext
from lictor.lang.resource_names import Resource, ResourceNames, builtin_names
from lictor.model.admission import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from lictor.model.request import Caller, Request
from lictor.ports import Lookups
from lictor.raw import JsonObject

T = TypeVar("T")


class Judges:
    """All policies in force."""

    def __init__(
        self,
        reader: ObjectReader,
        validating: Sequence[ValidatingJudge],
        mutating: Sequence[MutatingJudge],
    ) -> None:
        self._reader = reader
        self.validating = tuple(validating)
        self.mutating = tuple(mutating)

    def validate(self, submission: Submission) -> Iterator[Denial]:
        """What policies have against a request."""
        request = self._show(submission)
        for judge in self.validating:
            yield from judge.judge(request, submission)

    def mutate(self, submission: Submission, rounds: Rounds) -> list[Denial]:
        """Let policies change the object; what they have against the request."""
        memory = rounds.policies
        memory.begin(submission.document, again=rounds.is_again)
        denials: list[Denial] = []
        for judge in self.mutating:
            request = self._show(submission)
            denials += judge.change(request, submission, rounds)
        memory.end(submission.document)
        return denials

    def _show(self, submission: Submission) -> Request:
        attributes = submission.attributes
        user = attributes.user
        return Request(
            kind=submission.kind,
            object=submission.document,
            old_object=submission.old,
            operation=submission.operation,
            subresource=attributes.subresource,
            caller=Caller(user.name, user.uid, user.groups, user.extra),
            namespace_labels=self._labels(submission),
            admission=describe_request(submission, None),
        )

    def _labels(self, submission: Submission) -> Mapping[str, str]:
        if not submission.namespace or is_namespace(submission.attributes.kind):
            return {}
        namespace = self._reader.get("", "namespaces", "", submission.namespace)
        return read_object(read_object(namespace, "metadata"), "labels")


def build_judges(
    documents: Mapping[str, Sequence[JsonObject]],
    reader: ObjectReader,
    catalogue: KindCatalogue,
    lookups: Lookups,
) -> Judges:
    """Compile all policies that a binding puts into force; documents are by plural."""
    facts = Facts(CelContext(lookups, _name_resources(catalogue)), reader)
    validating = [
        compile_validating(
            _read(policy, ValidatingAdmissionPolicy),
            _read_all(bindings, ValidatingAdmissionPolicyBinding),
            facts,
        )
        for policy, bindings in _pair(
            documents["validatingadmissionpolicies"],
            documents["validatingadmissionpolicybindings"],
        )
    ]
    mutating = [
        compile_mutating(
            _read(policy, MutatingAdmissionPolicy),
            _read_all(bindings, MutatingAdmissionPolicyBinding),
            facts,
        )
        for policy, bindings in _pair(
            documents["mutatingadmissionpolicies"],
            documents["mutatingadmissionpolicybindings"],
        )
    ]
    return Judges(reader, validating, mutating)


def _pair(
    policies: Iterable[JsonObject], bindings: Sequence[JsonObject]
) -> list[tuple[JsonObject, list[JsonObject]]]:
    """Policies by name, each with the bindings that put it into force; others do nothing."""
    found: dict[str, list[JsonObject]] = {}
    for binding in bindings:
        found.setdefault(read_text(read_object(binding, "spec"), "policyName"), []).append(binding)
    named = ((read_text(read_object(each, "metadata"), "name"), each) for each in policies)
    return [(policy, found[name]) for name, policy in named if name in found]


def _read(document: JsonObject, record: type[T]) -> T:
    try:
        return msgspec.convert(document, record, strict=False)
    except msgspec.ValidationError as error:
        raise CompileError(str(error)) from error


def _read_all(documents: Iterable[JsonObject], record: type[T]) -> list[T]:
    return [_read(document, record) for document in documents]


def _name_resources(catalogue: KindCatalogue) -> ResourceNames:
    custom = [
        Resource(each.group, each.version, each.kind, each.plural, each.namespaced)
        for each in catalogue
        if each.is_custom
    ]
    return builtin_names().with_resources(custom) if custom else builtin_names()
