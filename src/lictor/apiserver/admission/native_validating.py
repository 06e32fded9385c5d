"""A ValidatingAdmissionPolicy with its bindings: what does it have against a request?"""

from collections.abc import Iterator, Sequence

import msgspec

from lictor.apiserver.admission.native_verdict import (
    Bound,
    Denial,
    Facts,
    bind,
    find_fault,
    make_case,
    make_language,
)
from lictor.apiserver.admission.submission import Submission
from lictor.evaluate.cel.expressions import (
    UNDECIDED,
    Evaluate,
    Holds,
    compile_match_conditions,
)
from lictor.evaluate.cel.validations import Decide, Ruling, compile_decisions, list_decision_texts
from lictor.evaluate.cel.views import View
from lictor.lang.cel.activation import Activation
from lictor.model.admission import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from lictor.model.program import Case
from lictor.model.request import Request

_ANNOTATIONS = ("string", "null_type")


class ValidatingJudge(msgspec.Struct, frozen=True):
    """A policy's compiled parts."""

    name: str
    is_ignored: bool
    fault: str
    bounds: tuple[Bound, ...]
    view: View
    matches: Holds | None
    # Each validation, and the reason that its refusal gives.
    tests: tuple[tuple[Decide, str], ...]
    annotations: tuple[Evaluate, ...]

    def judge(self, request: Request, submission: Submission) -> Iterator[Denial]:
        """Everything that is wrong, for each binding and each of its parameters."""
        case = make_case(request)
        for bound in self.bounds:
            if not bound.concerns(request):
                continue
            if self.fault:
                if not self.is_ignored:
                    yield Denial(self.name, "", self.fault)
                return
            yield from self._judge_bound(case, bound, submission.namespace)

    def _judge_bound(self, case: Case, bound: Bound, namespace: str) -> Iterator[Denial]:
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
    facts: Facts,
) -> ValidatingJudge:
    """A policy, ready to be asked."""
    spec = policy.spec
    language = make_language(policy, facts)
    texts = [*list_decision_texts(spec.match_conditions, spec.variables, spec.validations)]
    texts += [annotation.value_expression for annotation in spec.audit_annotations]
    return ValidatingJudge(
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
