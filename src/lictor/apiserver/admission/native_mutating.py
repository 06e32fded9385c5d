"""A MutatingAdmissionPolicy with its bindings: how does it change an object?"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from lictor.apiserver.admission.native_verdict import (
    Bound,
    Denial,
    Facts,
    bind,
    find_fault,
    make_case,
    make_language,
    name_param,
)
from lictor.apiserver.admission.reinvocation import Rounds
from lictor.apiserver.admission.submission import Submission
from lictor.evaluate.cel.expressions import UNDECIDED, Holds, compile_match_conditions
from lictor.evaluate.cel.mutations import Change, compile_mutations
from lictor.evaluate.cel.views import View
from lictor.lang.cel.activation import Activation
from lictor.model.admission import MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding
from lictor.model.request import Request
from lictor.raw import Json, JsonObject


class MutatingJudge(msgspec.Struct, frozen=True):
    """A policy's compiled parts."""

    name: str
    is_ignored: bool
    is_reinvoked: bool
    fault: str
    bounds: tuple[Bound, ...]
    view: View
    matches: Holds | None
    change_object: Change

    def change(self, request: Request, submission: Submission, rounds: Rounds) -> list[Denial]:
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
                told = f"failed to configure binding: {error}"
                denials.append(Denial(self.name, bound.name, told))
                continue
            for param in params:
                try:
                    self._change_once(bound, param, request, submission, rounds)
                except UNDECIDED as error:
                    denials.append(Denial(self.name, bound.name, str(error), "Invalid"))
        return [] if self.is_ignored else denials

    def _change_once(
        self, bound: Bound, param: Json, request: Request, submission: Submission, rounds: Rounds
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

        def see(changed: JsonObject, _: JsonObject) -> Activation:
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
    facts: Facts,
) -> MutatingJudge:
    """A policy, ready to be asked."""
    spec = policy.spec
    language = make_language(policy, facts, has_patches=True)
    return MutatingJudge(
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
