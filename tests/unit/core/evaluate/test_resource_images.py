"""Which images a resource names."""

import pytest

from lictor.core.errors import EvaluationError
from lictor.core.evaluate.expressions import Expressions
from lictor.core.evaluate.verify_images.resource_images import compile_image_list
from lictor.core.model.policy import ImageExtractor
from lictor.core.ports import NoLookups

EXPRESSIONS = Expressions(NoLookups().now)


def _list(resource: dict, **extractors: list[ImageExtractor]) -> list[tuple[str, str]]:
    found = compile_image_list(extractors, EXPRESSIONS)(resource)
    return [(image.pointer, image.reference) for image in found]


@pytest.mark.parametrize(
    ("image", "expected"),
    [("app:1", [("/spec/containers/0/image", "docker.io/app:1")]), ("", []), (" ", []), (None, [])],
)
def test_images_of_containers(image: str | None, expected: list) -> None:
    spec = {"containers": [{"name": "a", "image": image}], "initContainers": None}
    assert _list({"kind": "Pod", "spec": spec}) == expected


def test_all_containers_count() -> None:
    spec = {
        "initContainers": [{"image": "a"}],
        "containers": [{"image": "b"}, {"image": "c"}],
        "ephemeralContainers": [{"image": "d"}],
    }
    found = _list({"kind": "Deployment", "spec": {"template": {"spec": spec}}})
    names = ["a", "b", "c", "d"]
    assert sorted(name for _, name in found) == [f"docker.io/{name}:latest" for name in names]


def test_extractors_walk_lists_and_maps() -> None:
    extractor = ImageExtractor(path="/spec/steps/*/image")
    resource = {"kind": "Task", "spec": {"steps": {"one": {"image": "a"}, "two": {}}}}
    assert _list(resource, Task=[extractor]) == [("/spec/steps/one/image", "docker.io/a:latest")]
    assert _list({"kind": "Task"}, Task=[extractor]) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": "text"},
        {"containers": ["text"]},
        {"containers": [{"image": 1}]},
        {"containers": [{"image": "Not An Image"}]},
        "text",
    ],
)
def test_what_cannot_be_read_is_an_error(spec: object) -> None:
    with pytest.raises(EvaluationError):
        _list({"kind": "Pod", "spec": spec})
