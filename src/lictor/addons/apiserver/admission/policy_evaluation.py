"""Native policies, compiled to CEL programs and evaluated in Kubernetes' order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from lictor.addons.apiserver.admission.policy_bindings import (
    BindingContext,
    CompiledBinding,
    Denial,
    bind,
    find_fault,
    make_case,
    make_language,
    name_param,
)
from lictor.addons.apiserver.json_fields import read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.submission import MutationPasses, Submission, describe_request
from lictor.core.errors import CompileError
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.expressions import (
    UNDECIDED,
    Evaluate,
    Holds,
    compile_match_conditions,
)
from lictor.core.evaluate.cel.mutations import Change, compile_mutations
from lictor.core.evaluate.cel.validations import (
    Decide,
    Ruling,
    compile_decisions,
    list_decision_texts,
)
from lictor.core.evaluate.cel.views import View
from lictor.core.facts.resource_names import ResourceNames, ResourceType, builtin_names
from lictor.core.families.admission_policy.records import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from lictor.core.lang.cel.expression import Activation
from lictor.core.model.program import Case
from lictor.core.model.request import Caller, Request
from lictor.core.ports import Lookups
from lictor.core.raw import Json, JsonObject


class CompiledMutatingPolicy(msgspec.Struct, frozen=True):
    """A policy's compiled parts."""

    name: str
    is_ignored: bool
    is_reinvoked: bool
    fault: str
    bounds: tuple[CompiledBinding, ...]
    view: View
    matches: Holds | None
    change_object: Change

    def change(
        self, request: Request, submission: Submission, rounds: MutationPasses
    ) -> list[Denial]:
        """Change the object of a submission; what is against it."""
        denials: list[Denial] = []
        for bound in self.bounds:
            if not bound.concerns(request):
                continue
            if self.fault:
                denials.append(Denial(self.name, "", self.fault))
                break
            try:
                params = bound.list_params(submission.namespace)
            except UNDECIDED as error:
                detail = f"failed to configure binding: {error}"
                denials.append(Denial(self.name, bound.name, detail))
                continue
            for param in params:
                try:
                    self._change_once(bound, param, request, submission, rounds)
                except UNDECIDED as error:
                    denials.append(Denial(self.name, bound.name, str(error), "Invalid"))
        return [] if self.is_ignored else denials

    def _change_once(
        self,
        bound: CompiledBinding,
        param: Json,
        request: Request,
        submission: Submission,
        rounds: MutationPasses,
    ) -> None:
        before = submission.document
        if before is None:
            return
        case = make_case(replace(request, object=before))
        others: JsonObject = {} if param is None else {"params": param}
        activation = self.view.adding(case, **others) if others else self.view(case)
        if self.matches is not None and not self.matches(activation):
            return
        key = (self.name, bound.name, name_param(param))
        if rounds.is_again and not rounds.policies.wants(key):
            return

        def see(changed: JsonObject) -> Activation:
            return self.view.adding(case, **{**others, "object": changed})

        after = self.change_object(activation, before, see)
        if after != before:
            submission.replace(submission.reread(after))
            rounds.policies.note_change()
            rounds.wants_another = True
        if self.is_reinvoked:
            rounds.policies.note_call(key)


def compile_mutating(
    policy: MutatingAdmissionPolicy,
    bindings: Sequence[MutatingAdmissionPolicyBinding],
    facts: BindingContext,
) -> CompiledMutatingPolicy:
    """Compile a policy with its bindings."""
    spec = policy.spec
    language = make_language(policy, facts, has_patches=True)
    return CompiledMutatingPolicy(
        name=policy.metadata.name,
        is_ignored=spec.failure_policy == "Ignore",
        is_reinvoked=spec.reinvocation_policy == "IfNeeded",
        fault=find_fault(policy, facts),
        bounds=tuple(bind(policy, binding, facts) for binding in bindings),
        view=facts.around.native_viewpoint.view(_list_texts(policy)),
        matches=compile_match_conditions(
            spec.match_conditions, language, ignore_errors=spec.failure_policy == "Ignore"
        ),
        change_object=compile_mutations(spec.mutations, language),
    )


def _list_texts(policy: MutatingAdmissionPolicy) -> Iterator[str]:
    spec = policy.spec
    for condition in spec.match_conditions:
        yield condition.expression
    for variable in spec.variables:
        yield variable.expression
    for mutation in spec.mutations:
        for patch in (mutation.apply_configuration, mutation.json_patch):
            if patch is not None:
                yield patch.expression


_ANNOTATIONS = ("string", "null_type")


class CompiledValidatingPolicy(msgspec.Struct, frozen=True):
    """A policy's compiled parts."""

    name: str
    is_ignored: bool
    fault: str
    bounds: tuple[CompiledBinding, ...]
    view: View
    matches: Holds | None
    # Each validation, and the reason that its refusal gives.
    tests: tuple[tuple[Decide, str], ...]
    annotations: tuple[Evaluate, ...]

    def validate(self, request: Request, submission: Submission) -> Iterator[Denial]:
        """Everything that is wrong, for each binding and each of its parameters."""
        case = make_case(request)
        for bound in self.bounds:
            if not bound.concerns(request):
                continue
            if self.fault:
                if not self.is_ignored:
                    yield Denial(self.name, "", self.fault)
                return
            yield from self._validate_binding(case, bound, submission.namespace)

    def _validate_binding(
        self, case: Case, bound: CompiledBinding, namespace: str
    ) -> Iterator[Denial]:
        try:
            params = bound.list_params(namespace)
        except UNDECIDED as error:
            if not self.is_ignored:
                yield Denial(self.name, bound.name, f"failed to configure binding: {error}")
            return
        for param in params:
            activation = self.view(case)
            if param is not None:
                activation = self.view.adding(case, params=param)
            for message, reason in self._list_faults(activation):
                yield Denial(self.name, bound.name, message, reason, bound.actions)

    def _list_faults(self, activation: Activation) -> Iterator[tuple[str, str]]:
        try:
            if self.matches is not None and not self.matches(activation):
                return
        except UNDECIDED as error:
            if not self.is_ignored:
                yield str(error), ""
            return
        for decide, reason in self.tests:
            decision = decide(activation)
            if decision.ruling is Ruling.DENIED:
                yield decision.message, reason
            elif decision.ruling is Ruling.UNDECIDED and not self.is_ignored:
                yield decision.message, ""
        for annotation in () if self.is_ignored else self.annotations:
            # There is no audit log here; that an annotation cannot be made refuses all the same.
            try:
                annotation(activation)
            except UNDECIDED as error:
                yield str(error), ""


def compile_validating(
    policy: ValidatingAdmissionPolicy,
    bindings: Sequence[ValidatingAdmissionPolicyBinding],
    facts: BindingContext,
) -> CompiledValidatingPolicy:
    """Compile a policy with its bindings."""
    spec = policy.spec
    language = make_language(policy, facts)
    texts = [*list_decision_texts(spec.match_conditions, spec.variables, spec.validations)]
    texts += [annotation.value_expression for annotation in spec.audit_annotations]
    return CompiledValidatingPolicy(
        name=policy.metadata.name,
        is_ignored=spec.failure_policy == "Ignore",
        fault=find_fault(policy, facts),
        bounds=tuple(
            bind(policy, binding, facts, binding.spec.validation_actions) for binding in bindings
        ),
        view=facts.around.native_viewpoint.view(texts),
        matches=compile_match_conditions(
            spec.match_conditions, language, ignore_errors=spec.failure_policy == "Ignore"
        ),
        tests=tuple(
            (compile_decisions((), (validation,), language), validation.reason)
            for validation in spec.validations
        ),
        annotations=tuple(
            language.evaluator(each.value_expression, _ANNOTATIONS, "auditAnnotations")
            for each in spec.audit_annotations
        ),
    )


T = TypeVar("T")


class CompiledPolicies:
    """All policies in force."""

    def __init__(
        self,
        reader: ObjectReader,
        validating: Sequence[CompiledValidatingPolicy],
        mutating: Sequence[CompiledMutatingPolicy],
    ) -> None:
        self._reader = reader
        self.validating = tuple(validating)
        self.mutating = tuple(mutating)

    def validate(self, submission: Submission) -> Iterator[Denial]:
        """What policies have against a request."""
        request = self._show(submission)
        for policy in self.validating:
            yield from policy.validate(request, submission)

    def mutate(self, submission: Submission, rounds: MutationPasses) -> list[Denial]:
        """Let policies change the object; what they have against the request."""
        memory = rounds.policies
        memory.begin(submission.document, again=rounds.is_again)
        denials: list[Denial] = []
        for policy in self.mutating:
            request = self._show(submission)
            denials += policy.change(request, submission, rounds)
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
        if not submission.namespace or submission.attributes.kind.is_namespace:
            return {}
        namespace = self._reader.get("", "namespaces", "", submission.namespace)
        return read_object(read_object(namespace, "metadata"), "labels")


def compile_policies(
    documents: Mapping[str, Sequence[JsonObject]],
    reader: ObjectReader,
    catalogue: KindCatalogue,
    lookups: Lookups,
) -> CompiledPolicies:
    """Compile all policies that a binding puts into force; documents are by plural."""
    facts = BindingContext(CelContext(lookups, _name_resources(catalogue)), reader)
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
    return CompiledPolicies(reader, validating, mutating)


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
        ResourceType(each.group, each.version, each.kind, each.plural, each.namespaced)
        for each in catalogue
        if each.is_custom
    ]
    return builtin_names().with_resources(custom) if custom else builtin_names()
