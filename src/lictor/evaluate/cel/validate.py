"""Checks of CEL policies that validate: objects, images, and requests to be authorized."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.errors import CompileError, EvaluationError
from lictor.evaluate.cel.exceptions import (
    Exemption,
    ResultTemplate,
    allow,
    find_exceptions,
    tell_exempted,
)
from lictor.evaluate.cel.expressions import (
    UNDECIDED,
    Annotate,
    Evaluate,
    ExpressionCompiler,
    Holds,
)
from lictor.evaluate.cel.validations import (
    Judge,
    Ruling,
)
from lictor.evaluate.cel.views import View
from lictor.lang.cel.environment import Activation, image_environment, make_activation
from lictor.lang.cel.library.authorization import (
    is_allowed,
    read_answer,
)
from lictor.lang.wildcard import compile_wildcard
from lictor.model.image_validation import ImagesExpression, MatchImageReference
from lictor.model.program import Case, Check
from lictor.model.request import GroupVersionKind
from lictor.model.result import Action, Result, Status
from lictor.raw import JsonObject

# The images by the name of their extractor.
FindImages: TypeAlias = Callable[[GroupVersionKind, Activation], dict[str, list[str]]]

_POD_SPECS = {
    ("", "Pod"): "spec",
    ("batch", "CronJob"): "spec.jobTemplate.spec.template.spec",
    ("batch", "Job"): "spec.template.spec",
    **dict.fromkeys(
        [("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")],
        "spec.template.spec",
    ),
}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_LISTS = ("list(string)", "list(dyn)", "dyn")


def compile_images(
    extractors: Sequence[ImagesExpression],
    references: Sequence[MatchImageReference],
    language: ExpressionCompiler,
) -> FindImages:
    """The images of Pods and their controllers, and what the policy's own expressions find."""
    own = {
        extractor.name: language.evaluator(extractor.expression, _LISTS, f"images[{index}]")
        for index, extractor in enumerate(extractors)
    }
    usual = {path: _compile_usual(path, language) for path in set(_POD_SPECS.values())}
    wants = _compile_references(references, language)

    def find(kind: GroupVersionKind, activation: Activation) -> dict[str, list[str]]:
        path = _POD_SPECS.get((kind.group, kind.kind)) if kind.version == "v1" else None
        chosen = {**usual[path], **own} if path is not None else own
        found = ((name, _read_images(e(activation), name)) for name, e in chosen.items())
        return {name: [image for image in images if wants(image)] for name, images in found}

    return find


def _compile_usual(path: str, language: ExpressionCompiler) -> dict[str, Evaluate]:
    subject = "(object != null ? object : oldObject)"
    return {
        field: language.evaluator(
            f"{subject}.{path}.?{field}.orValue([]).map(e, e.image)", _LISTS, f"images of {path}"
        )
        for field in _CONTAINERS
    }


def _read_images(found: object, name: str) -> Iterable[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise EvaluationError(f"images {name}: expected a list of texts")
    return found


def _compile_references(
    references: Sequence[MatchImageReference], language: ExpressionCompiler
) -> Callable[[str], bool]:
    """Whether one of them means the image; without any, all are meant."""
    tests = [_compile_reference(r, i, language) for i, r in enumerate(references)]
    if not tests:
        return lambda _: True
    return lambda image: any(test(image) for test in tests)


def _compile_reference(
    reference: MatchImageReference, index: int, language: ExpressionCompiler
) -> Callable[[str], bool]:
    where = f"matchImageReferences[{index}]"
    if reference.glob:
        return compile_wildcard(reference.glob)
    if not reference.expression:
        raise CompileError("either glob or expression must be set", where=where)
    holds = ExpressionCompiler(image_environment(), watch=language.watch).condition(
        reference.expression, f"{where}.expression"
    )
    return lambda image: holds(make_activation({"ref": image}))


class ImageValidatingCheck(msgspec.Struct, frozen=True):
    """What a check is made of."""

    view: View
    matches: Holds | None
    exemptions: tuple[Exemption, ...]
    find_images: FindImages
    # Variables that are the same for all requests.
    fixed: JsonObject
    judge: Judge
    template: ResultTemplate

    def check(self, case: Case) -> tuple[Result, ...]:
        try:
            return self._check(case)
        except UNDECIDED as error:
            message = f"failed to evaluate policy: {error}"
            return self.template.make("evaluation", Status.ERROR, message)

    def _check(self, case: Case) -> tuple[Result, ...]:
        activation = self.view(case)
        if self.matches is not None and not self.matches(activation):
            return ()
        found = find_exceptions(self.exemptions, activation)
        if found:
            return tell_exempted(found, self.template)
        images = self.find_images(case.request.kind, activation)
        return self.judge(self.view.adding(case, images=images, **self.fixed))


class AuthorizationCheck(msgspec.Struct, frozen=True):
    """A policy's compiled parts."""

    view: View
    template: ResultTemplate
    matches: Holds | None
    expressions: tuple[Evaluate, ...]
    ignores_errors: bool

    def check(self, case: Case) -> tuple[Result, ...]:
        try:
            answer = self._answer(self.view(case))
        except UNDECIDED as error:
            if not self.ignores_errors:
                return self._say(Status.ERROR, str(error))
            answer = None
        if answer is None:
            return self._say(Status.SKIP, "request does not match")
        if is_allowed(answer):
            return self._say(Status.PASS, "request allowed")
        return self._say(Status.FAIL, f"request denied{_explain(answer)}")

    def _answer(self, activation: Activation) -> JsonObject | None:
        """That of the first expression that has one."""
        if self.matches is not None and not self.matches(activation):
            return None
        for evaluate in self.expressions:
            answer = read_answer(evaluate(activation))
            if answer is not None:
                return answer
        return None

    def _say(self, status: Status, message: str) -> tuple[Result]:
        return self.template.make(self.template.policy.name, status, message)


def _explain(answer: JsonObject) -> str:
    if "status" in answer:
        denied = answer.get("deniedResponse")
        status = denied.get("status") if isinstance(denied, dict) else None
        code = status.get("code") if isinstance(status, dict) else ""
        return f" with status code {code}"
    denied = answer.get("denied")
    return f", reason: {denied.get('reason', '') if isinstance(denied, dict) else ''}"


_ANSWERS = {
    Ruling.UNMATCHED: (Status.SKIP, "match conditions aren't met"),
    Ruling.ADMITTED: (Status.PASS, ""),
    Ruling.DENIED: (Status.FAIL, ""),
    Ruling.UNDECIDED: (Status.ERROR, ""),
}


class DecisionResults(msgspec.Struct, frozen=True):
    """How a decision becomes a result."""

    template: ResultTemplate
    properties: Mapping[str, str]
    annotate: Annotate | None
    ignores_errors: bool

    def tell(self, ruling: Ruling, message: str, case: Case, view: View) -> tuple[Result, ...]:
        status, words = _ANSWERS[ruling]
        template = self.template
        if ruling is Ruling.UNDECIDED and self.ignores_errors:
            template = replace(template, action=Action.AUDIT)
        properties = self.properties
        if self.annotate is not None and ruling in (Ruling.ADMITTED, Ruling.DENIED):
            properties = {**self._annotations(case, view), **properties}
        return template.make(template.policy.name, status, message or words, properties=properties)

    def _annotations(self, case: Case, view: View) -> Mapping[str, str]:
        if self.annotate is None:
            return {}
        try:
            return self.annotate(view(case))
        except UNDECIDED:
            return {}  # a report's extra columns never change a verdict


def check_exempted(
    view: View, exemptions: tuple[Exemption, ...], judge: Judge, template: ResultTemplate
) -> Check:
    """The check of a policy, after the exceptions that name it."""
    if not exemptions:
        return lambda case: judge(view(case))

    def judge_case(case: Case) -> tuple[Result, ...]:
        activation = view(case)
        found = find_exceptions(exemptions, activation)
        if not found:
            return judge(activation)
        allowed = allow(found)
        if any(allowed.values()):
            return judge(view.adding(case, exceptions=allowed))
        return tell_exempted(found, template)

    return judge_case


def report_errors(judge: Check, template: ResultTemplate) -> Check:
    """The same check; what cannot be decided becomes a result."""

    def check(case: Case) -> tuple[Result, ...]:
        try:
            return judge(case)
        except UNDECIDED as error:
            return template.make("evaluation", Status.ERROR, f"failed to load context: {error}")

    return check
