"""Which images of a resource does an ImageValidatingPolicy look at?"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from lictor.compile.cel.conditions import Evaluate, Language
from lictor.errors import CompileError, EvaluationError
from lictor.lang.cel.activation import Activation, make_activation
from lictor.lang.cel.environment import image_environment
from lictor.lang.wildcard import compile_wildcard
from lictor.model.image_validation import ImagesExpression, MatchImageReference
from lictor.model.request import GroupVersionKind

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
    language: Language,
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


def _compile_usual(path: str, language: Language) -> dict[str, Evaluate]:
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
    references: Sequence[MatchImageReference], language: Language
) -> Callable[[str], bool]:
    """Whether one of them means the image; without any, all are meant."""
    tests = [_compile_reference(r, i, language) for i, r in enumerate(references)]
    if not tests:
        return lambda _: True
    return lambda image: any(test(image) for test in tests)


def _compile_reference(
    reference: MatchImageReference, index: int, language: Language
) -> Callable[[str], bool]:
    where = f"matchImageReferences[{index}]"
    if reference.glob:
        return compile_wildcard(reference.glob)
    if not reference.expression:
        raise CompileError("either glob or expression must be set", where=where)
    holds = Language(image_environment(), watch=language.watch).condition(
        reference.expression, f"{where}.expression"
    )
    return lambda image: holds(make_activation({"ref": image}))
