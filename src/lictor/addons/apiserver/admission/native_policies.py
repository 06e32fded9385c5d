"""Native policies, compiled to CEL programs and evaluated in Kubernetes' order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from lictor.addons.apiserver.json_fields import read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.submission import MutationPasses, Submission, describe_request
from lictor.core.errors import CompileError
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.expressions import (
    UNDECIDED,
    Evaluate,
    ExpressionCompiler,
    Holds,
    compile_match_conditions,
)
from lictor.core.evaluate.cel.mutations import Change, compile_mutations
from lictor.core.evaluate.cel.params import FindParams, ParamMessages, compile_params
from lictor.core.evaluate.cel.validations import Decide, Ruling, compile_decisions
from lictor.core.evaluate.cel.views import View
from lictor.core.facts.resource_names import ResourceNames, ResourceType, builtin_names
from lictor.core.families.admission_policy.bindings import compile_language, select_bound
from lictor.core.families.admission_policy.mutating import list_mutation_texts
from lictor.core.families.admission_policy.records import (
    AdmissionPolicy,
    Binding,
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from lictor.core.families.admission_policy.validating import list_validation_texts
from lictor.core.lang.cel.expression import Activation
from lictor.core.model.program import Case, Select
from lictor.core.model.request import Caller, Request
from lictor.core.model.scope import Scope
from lictor.core.ports import Lookups
from lictor.core.raw import Json, JsonObject

_ANNOTATIONS = ("string", "null_type")
_PARAM_MESSAGES = ParamMessages(
    "no params found for policy binding with `Deny` parameterNotFoundAction",
    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
)
T = TypeVar("T")


class Denial(msgspec.Struct, frozen=True):
    """What a policy has against a request."""

    policy: str
    # Empty where the policy itself cannot be used.
    binding: str
    message: str
    reason: str = ""
    actions: tuple[str, ...] = ("Deny",)


class CompiledBinding(msgspec.Struct, frozen=True):
    """One binding of a policy."""

    name: str
    select: Select
    find_params: FindParams | None
    actions: tuple[str, ...]

    def concerns(self, request: Request) -> bool:
        matches = self.select(request.kind, request.subresource, request.operation)
        return matches is not None and matches(request)


class NativePolicy(msgspec.Struct, frozen=True):
    """The parts that both kinds of policies have."""

    name: str
    is_ignored: bool
    # Why the policy cannot be used at all.
    fault: str
    bindings: tuple[CompiledBinding, ...]
    view: View
    matches: Holds | None

    def list_bound(self, request: Request) -> Iterator[tuple[CompiledBinding, Json]]:
        """Each binding that concerns a request, with each parameter; a Denial instead of one
        where that is not known."""
        for bound in self.bindings:
            if not bound.concerns(request):
                continue
            if self.fault:
                yield bound, Denial(self.name, "", self.fault)
                return
            try:
                params = (None,) if bound.find_params is None else bound.find_params(request)
            except UNDECIDED as error:
                detail = f"failed to configure binding: {error}"
                yield bound, Denial(self.name, bound.name, detail)
                continue
            yield from ((bound, param) for param in params)

    def see(self, request: Request, **values: Json) -> Activation:
        """The request as expressions see it, with other values in place of some."""
        case = Case(request, _refuse_scope)
        return self.view.adding(case, **values) if values else self.view(case)


class CompiledMutatingPolicy(NativePolicy, frozen=True):
    """A policy that changes objects."""

    is_reinvoked: bool
    change_object: Change

    def change(
        self, request: Request, submission: Submission, rounds: MutationPasses
    ) -> list[Denial]:
        """Change the object of a submission; what is against it."""
        denials: list[Denial] = []
        for bound, param in self.list_bound(request):
            if isinstance(param, Denial):
                denials.append(param)
                continue
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
        seen = replace(request, object=before)
        others: JsonObject = {} if param is None else {"params": param}
        activation = self.see(seen, **others)
        if self.matches is not None and not self.matches(activation):
            return
        metadata = read_object(param, "metadata")
        place = (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        key = (self.name, bound.name, place)
        if rounds.is_again and not rounds.policies.wants(key):
            return
        after = self.change_object(
            activation, before, lambda changed: self.see(seen, **{**others, "object": changed})
        )
        if after != before:
            submission.replace(submission.reread(after))
            rounds.policies.note_change()
            rounds.wants_another = True
        if self.is_reinvoked:
            rounds.policies.note_call(key)


class CompiledValidatingPolicy(NativePolicy, frozen=True):
    """A policy that checks requests."""

    # Each validation, and the reason that its refusal gives.
    tests: tuple[tuple[Decide, str], ...]
    annotations: tuple[Evaluate, ...]

    def validate(self, request: Request) -> Iterator[Denial]:
        """Everything that is wrong, for each binding and each of its parameters."""
        for bound, param in self.list_bound(request):
            if isinstance(param, Denial):
                if not self.is_ignored:
                    yield param
                continue
            activation = self.see(request, **({} if param is None else {"params": param}))
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


class CompiledPolicies(msgspec.Struct, frozen=True):
    """All policies in force."""

    reader: ObjectReader
    validating: tuple[CompiledValidatingPolicy, ...]
    mutating: tuple[CompiledMutatingPolicy, ...]

    def validate(self, submission: Submission) -> Iterator[Denial]:
        """What policies have against a request."""
        request = self._show(submission)
        for policy in self.validating:
            yield from policy.validate(request)

    def mutate(self, submission: Submission, rounds: MutationPasses) -> list[Denial]:
        """Let policies change the object; what they have against the request."""
        memory = rounds.policies
        memory.begin(submission.document, again=rounds.is_again)
        denials: list[Denial] = []
        for policy in self.mutating:
            denials += policy.change(self._show(submission), submission, rounds)
        memory.end(submission.document)
        return denials

    def _show(self, submission: Submission) -> Request:
        attributes = submission.attributes
        user = attributes.user
        labels: Mapping[str, str] = {}
        if submission.namespace and not attributes.kind.is_namespace:
            namespace = self.reader.get("", "namespaces", "", submission.namespace)
            labels = read_object(read_object(namespace, "metadata"), "labels")
        return Request(
            kind=submission.kind,
            object=submission.document,
            old_object=submission.old,
            operation=submission.operation,
            subresource=attributes.subresource,
            caller=Caller(user.name, user.uid, user.groups, user.extra),
            namespace_labels=labels,
            admission=describe_request(submission, None),
        )


# --- from documents


def compile_policies(
    documents: Mapping[str, Sequence[JsonObject]],
    reader: ObjectReader,
    catalogue: KindCatalogue,
    lookups: Lookups,
) -> CompiledPolicies:
    """Compile all policies that a binding puts into force; documents are by plural."""
    compiler = _Compiler(CelContext(lookups, _name_resources(catalogue)), reader)
    validating = (
        compiler.compile_validating(
            _read(policy, ValidatingAdmissionPolicy),
            [_read(each, ValidatingAdmissionPolicyBinding) for each in bindings],
        )
        for policy, bindings in _pair(documents, "validating")
    )
    mutating = (
        compiler.compile_mutating(
            _read(policy, MutatingAdmissionPolicy),
            [_read(each, MutatingAdmissionPolicyBinding) for each in bindings],
        )
        for policy, bindings in _pair(documents, "mutating")
    )
    return CompiledPolicies(reader, tuple(validating), tuple(mutating))


class _Compiler(msgspec.Struct, frozen=True):
    around: CelContext
    reader: ObjectReader

    def compile_mutating(
        self, policy: MutatingAdmissionPolicy, bindings: Sequence[MutatingAdmissionPolicyBinding]
    ) -> CompiledMutatingPolicy:
        spec = policy.spec
        language = compile_language(policy, self.around, has_patches=True)
        bound = [self._bind(policy, each, ("Deny",)) for each in bindings]
        return CompiledMutatingPolicy(
            **self._compile(policy, bound, language, list_mutation_texts(spec)),
            is_reinvoked=spec.reinvocation_policy == "IfNeeded",
            change_object=compile_mutations(spec.mutations, language),
        )

    def compile_validating(
        self,
        policy: ValidatingAdmissionPolicy,
        bindings: Sequence[ValidatingAdmissionPolicyBinding],
    ) -> CompiledValidatingPolicy:
        spec = policy.spec
        language = compile_language(policy, self.around)
        bound = [self._bind(policy, each, each.spec.validation_actions) for each in bindings]
        return CompiledValidatingPolicy(
            **self._compile(policy, bound, language, list_validation_texts(spec)),
            tests=tuple(
                (compile_decisions((), (each,), language), each.reason) for each in spec.validations
            ),
            annotations=tuple(
                language.evaluator(each.value_expression, _ANNOTATIONS, "auditAnnotations")
                for each in spec.audit_annotations
            ),
        )

    def _compile(
        self,
        policy: AdmissionPolicy,
        bound: Iterable[CompiledBinding],
        language: ExpressionCompiler,
        texts: Iterable[str],
    ) -> JsonObject:
        """The fields of NativePolicy."""
        spec = policy.spec
        ignored = spec.failure_policy == "Ignore"
        conditions = spec.match_conditions
        return {
            "name": policy.metadata.name,
            "is_ignored": ignored,
            "fault": self._find_fault(policy),
            "bindings": tuple(bound),
            "view": self.around.native_viewpoint.view(texts),
            "matches": compile_match_conditions(conditions, language, ignore_errors=ignored),
        }

    def _bind(
        self, policy: AdmissionPolicy, binding: Binding, actions: tuple[str, ...]
    ) -> CompiledBinding:
        """A binding, compiled with the constraints of its policy."""
        spec, ref = policy.spec, binding.spec.param_ref
        select = select_bound(spec.match_constraints, binding, policy.metadata.name, self.around)
        params = None
        if spec.param_kind is not None and ref is not None:
            params = compile_params(spec.param_kind, ref, self.around, messages=_PARAM_MESSAGES)
        return CompiledBinding(binding.metadata.name, select, params, actions)

    def _find_fault(self, policy: AdmissionPolicy) -> str:
        kind = policy.spec.param_kind
        if kind is None or self.reader.catalogue.find_kind(kind.api_version, kind.kind) is not None:
            return ""
        return (
            "failed to configure policy: failed to find resource referenced by paramKind: "
            f"'{kind.api_version}, Kind={kind.kind}'"
        )


def _refuse_scope(_: Request) -> Scope:
    raise AssertionError("native policies have no variables of classic policies")


def _pair(
    documents: Mapping[str, Sequence[JsonObject]], sort: str
) -> list[tuple[JsonObject, list[JsonObject]]]:
    """Policies by name, each with the bindings that put it into force; others do nothing."""
    found: dict[str, list[JsonObject]] = {}
    for binding in documents[f"{sort}admissionpolicybindings"]:
        found.setdefault(read_text(read_object(binding, "spec"), "policyName"), []).append(binding)
    policies = documents[f"{sort}admissionpolicies"]
    named = ((read_text(read_object(each, "metadata"), "name"), each) for each in policies)
    return [(policy, found[name]) for name, policy in named if name in found]


def _read(document: JsonObject, record: type[T]) -> T:
    try:
        return msgspec.convert(document, record, strict=False)
    except msgspec.ValidationError as error:
        raise CompileError(str(error)) from error


def _name_resources(catalogue: KindCatalogue) -> ResourceNames:
    custom = [
        ResourceType(each.group, each.version, each.kind, each.plural, each.namespaced)
        for each in catalogue
        if each.is_custom
    ]
    return builtin_names().with_resources(custom) if custom else builtin_names()
