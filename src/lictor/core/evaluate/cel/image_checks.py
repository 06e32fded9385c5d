"""Finds the images of an object for an ImageValidatingPolicy, and checks them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.cel.exceptions import (
    Exemption,
    ResultTemplate,
    allow,
    build_exempted,
    find_exceptions,
)
from lictor.core.evaluate.cel.expressions import UNDECIDED, ExpressionCompiler, Holds
from lictor.core.evaluate.cel.image_verification import (
    VerificationRules,
    VerificationSession,
    current_verification,
    read_image,
)
from lictor.core.evaluate.cel.validations import NO_MESSAGE, EvaluateActivation
from lictor.core.evaluate.cel.views import View
from lictor.core.lang.cel.expression import Activation, make_activation
from lictor.core.lang.cel.kyverno import image_environment
from lictor.core.lang.image_reference import list_aliases
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.model.image_validation import (
    ImagesExpression,
    MatchImageReference,
    ValidationConfiguration,
)
from lictor.core.model.program import Case
from lictor.core.model.request import Operation, Request
from lictor.core.model.result import Result, Status
from lictor.core.raw import Json, JsonObject

# The images by the name of their extractor; the activation is built only if needed.
FindImages: TypeAlias = Callable[[Request, Callable[[], Activation]], dict[str, list[str]]]
_FindUsual: TypeAlias = Callable[[JsonObject, tuple[str, ...]], list[str]]

_POD_SPECS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): ("spec",),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template", "spec"),
    ("batch", "Job"): ("spec", "template", "spec"),
    **dict.fromkeys(
        [("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")],
        ("spec", "template", "spec"),
    ),
}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_LISTS = ("list(string)", "list(dyn)", "dyn")


def compile_images(
    extractors: Sequence[ImagesExpression],
    references: Sequence[MatchImageReference],
    language: ExpressionCompiler,
) -> FindImages:
    """The images of Pods and their controllers, and those of the policy's expressions."""
    own = {
        extractor.name: language.evaluator(
            extractor.expression, _LISTS, f"images[{index}].expression"
        )
        for index, extractor in enumerate(extractors)
    }
    wants = _compile_references(references, language)
    usual = {field: _watch_usual(field, wants, language) for field in _CONTAINERS}

    def find(request: Request, activate: Callable[[], Activation]) -> dict[str, list[str]]:
        kind = request.kind
        path = _POD_SPECS.get((kind.group, kind.kind)) if kind.version == "v1" else None
        found = {}
        if path is not None:
            found = {name: each(request.resource, path) for name, each in usual.items()}
        if own:
            activation = activate()
            listed = {name: _read_images(e(activation), name) for name, e in own.items()}
            found |= {name: list(filter(wants, images)) for name, images in listed.items()}
        return found

    return find


def _watch_usual(
    field: str, wants: Callable[[str], bool], language: ExpressionCompiler
) -> _FindUsual:
    """The images of the containers in a field, without an expression: every Pod has them."""

    def find(resource: JsonObject, path: tuple[str, ...]) -> list[str]:
        node: Json = resource
        for key in path:
            node = _enter(node, key)
        listed = node.get(field, []) if isinstance(node, dict) else []
        images = [_enter(each, "image") for each in _expect_list(listed, field)]
        return list(filter(wants, _read_images(images, field)))

    return language.watch(f"images.{field}", find)


def _enter(node: Json, key: str) -> Json:
    if not isinstance(node, dict) or key not in node:
        raise EvaluationError(f"no such key: {key}")
    return node[key]


def _expect_list(value: Json, field: str) -> list[Json]:
    if not isinstance(value, list):
        raise EvaluationError(f"images {field}: expected a list of containers")
    return value


def _read_images(found: object, name: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise EvaluationError(f"images {name}: expected a list of texts")
    return found


def _compile_references(
    references: Sequence[MatchImageReference], language: ExpressionCompiler
) -> Callable[[str], bool]:
    """Whether one of them matches the image; without any, all match."""
    tests = [_compile_reference(r, i, language) for i, r in enumerate(references)]
    if not tests:
        return lambda _: True

    def wants(image: str) -> bool:
        if any(test(image) for test in tests):
            return True
        # With a digest it is still the same image: adding one must not bypass `*:v1`.
        tagged, separator, _ = image.partition("@")
        return bool(separator) and any(test(tagged) for test in tests)

    return wants


def _compile_reference(
    reference: MatchImageReference, index: int, language: ExpressionCompiler
) -> Callable[[str], bool]:
    where = f"matchImageReferences[{index}]"
    if reference.glob:
        fits = compile_wildcard(reference.glob)
        return language.watch(
            where, lambda image: fits(image) or any(map(fits, list_aliases(image)))
        )
    if not reference.expression:
        raise CompileError("either glob or expression must be set", where=where)
    holds = ExpressionCompiler(image_environment()).condition(
        reference.expression, f"{where}.expression"
    )

    def includes(image: str) -> bool:
        # The canonical name only: an expression may exclude images.
        names = dict.fromkeys((image, list_aliases(image)[0]))
        return any(holds(make_activation({"ref": name})) for name in names)

    return language.watch(where, includes)


class ImagePolicyParts(msgspec.Struct, frozen=True):
    """What both checks of a policy are built from."""

    view: View
    matches: Holds | None
    exemptions: tuple[Exemption, ...]
    find_images: FindImages
    # Variables that are the same for all requests.
    fixed: JsonObject
    rules: VerificationRules
    configuration: ValidationConfiguration
    template: ResultTemplate

    def select(self, case: Case) -> "_Selection | tuple[Result, ...]":
        """The images that the policy matches; results if there is nothing to verify."""
        matches = self.matches
        if matches is not None and not matches(self.view(case)):
            return ()
        found = find_exceptions(self.exemptions, self.view(case)) if self.exemptions else ()
        allowed = allow(found)
        if found and not any(allowed.values()):
            return build_exempted(found, self.template)
        images = self.find_images(case.request, lambda: self.view(case))
        spared = [compile_wildcard(text) for text in allowed["allowedImages"]]
        named = dict.fromkeys(image for each in images.values() for image in each)
        kept = tuple(image for image in named if not any(test(image) for test in spared))
        return _Selection({"images": images, **({"exceptions": allowed} if found else {})}, kept)

    def activate(self, case: Case, selection: "_Selection") -> Activation:
        """The variables of expressions."""
        return self.view.adding(case, **selection.values, **self.fixed)


class _Selection(msgspec.Struct, frozen=True):
    # Variables that depend on the request.
    values: JsonObject
    # Images that no exception allows, in the order of the object.
    images: tuple[str, ...]


class ImageValidatingCheck(msgspec.Struct, frozen=True):
    """Whether the expressions hold, and every image was verified."""

    parts: ImagePolicyParts
    evaluate: EvaluateActivation

    def check(self, case: Case) -> tuple[Result, ...]:
        verification = VerificationSession(self.parts.rules)
        token = current_verification.set(verification)
        try:
            return self._check(case, verification)
        except UNDECIDED as error:
            message = f"failed to evaluate policy: {error}"
            return self.parts.template.make("evaluation", Status.ERROR, message)
        finally:
            current_verification.reset(token)

    def _check(self, case: Case, verification: VerificationSession) -> tuple[Result, ...]:
        selected = self.parts.select(case)
        if not isinstance(selected, _Selection):
            return selected
        if (problem := self._find_missing_digest(selected.images, case.request)) is not None:
            name = self.parts.template.policy.name
            return self.parts.template.make(name, Status.FAIL, problem)
        activation = verification.activation = self.parts.activate(case, selected)
        results = self.evaluate(activation)
        if results[0].status is Status.FAIL:
            return tuple(_explain(result, verification.refusals) for result in results)
        problem = self._find_unverified(selected.images, verification)
        if problem is None:
            return results
        # The author's message is about the expressions.
        failed = replace(results[0], status=Status.FAIL, message=problem)
        return (_explain(failed, verification.refusals),)

    def _find_missing_digest(self, images: Iterable[str], request: Request) -> str | None:
        wanted = self.parts.configuration
        if not wanted.verify_digest:
            return None
        pinned = _list_running(request) if wanted.mutate_digest else frozenset()
        missing = (each for each in images if each not in pinned and not read_image(each).digest)
        return next((f"image {image} does not have a digest" for image in missing), None)

    def _find_unverified(
        self, images: Iterable[str], verification: VerificationSession
    ) -> str | None:
        """The first image without an accepted attestor; checks of other policies do not count."""
        if not self.parts.configuration.required:
            return None
        for image in images:
            if verification.has_verified(image):
                continue
            if verification.has_checked(image):
                return f"image {image} failed signature or attestation verification"
            return (
                f"image {image} is not verified: no policy performed a signature or attestation "
                "check on it; where that is meant, set validationConfigurations.required to false"
            )
        return None


def _list_running(request: Request) -> frozenset[str]:
    """The images that a Pod already runs: changing their names would restart its containers."""
    if request.operation is not Operation.UPDATE or request.kind.kind != "Pod":
        return frozenset()
    spec = (request.old_object or {}).get("spec")
    fields = [spec.get(field) for field in _CONTAINERS] if isinstance(spec, dict) else []
    containers = [each for field in fields if isinstance(field, list) for each in field]
    images = (each.get("image") for each in containers if isinstance(each, dict))
    return frozenset(image for image in images if isinstance(image, str))


_MOST_REFUSALS = 20


def _explain(result: Result, refusals: Mapping[str, str]) -> Result:
    """The same result with the reasons why signatures were refused."""
    if not refusals:
        return result
    chosen = dict(list(refusals.items())[:_MOST_REFUSALS])
    properties = {**result.properties, **{f"verify {key}": why for key, why in chosen.items()}}
    message = result.message
    if message.startswith(NO_MESSAGE):
        # There is no message of the author: these reasons are more useful than an index.
        message = f"{message}: {'; '.join(f'{key}: {why}' for key, why in chosen.items())}"
    return replace(result, message=message, properties=properties)


class DigestPatch(msgspec.Struct, frozen=True):
    """Adds the digest of each image to its tag, so that the verified image is the one that runs."""

    parts: ImagePolicyParts

    def check(self, case: Case) -> tuple[Result, ...]:
        subject = case.request.object
        if subject is None:
            return ()
        try:
            selected = self.parts.select(case)
            if not isinstance(selected, _Selection):
                return ()
            running = _list_running(case.request)
            pinned = self._find_digests(name for name in selected.images if name not in running)
        except UNDECIDED:
            # Validation will fail for the same reason, and report it.
            return ()
        changed = _pin(subject, pinned) if pinned else subject
        if changed is subject:
            return ()
        (result,) = self.parts.template.make(self.parts.template.policy.name, Status.PASS, "")
        return (replace(result, patched=changed, is_silent=True),)

    def _find_digests(self, images: Iterable[str]) -> dict[str, str]:
        """The names without a digest, and the same names with one."""
        verification = VerificationSession(self.parts.rules)
        return {
            image: f"{image}@{verification.find_digest(image)}"
            for image in images
            if not read_image(image).digest
        }


def _pin(subject: JsonObject, pinned: Mapping[str, str]) -> JsonObject:
    """The object with changed image names, in fields that contain images."""
    changed = {
        key: value if key in ("metadata", "status") else _pin_field(key, value, pinned)
        for key, value in subject.items()
    }
    return changed if any(changed[key] is not subject[key] for key in subject) else subject


def _pin_field(name: str, value: Json, pinned: Mapping[str, str]) -> Json:
    if isinstance(value, str):
        holds_image = name.lower().endswith(("image", "images"))
        return pinned.get(value, value) if holds_image else value
    if isinstance(value, dict):
        fields = {key: _pin_field(key, each, pinned) for key, each in value.items()}
        return fields if any(fields[key] is not value[key] for key in value) else value
    if isinstance(value, list):
        items = [_pin_field(name, each, pinned) for each in value]
        return (
            items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        )
    return value
