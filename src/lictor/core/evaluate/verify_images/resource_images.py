"""Finds the images of a resource: fields of Pods, or those of custom extractors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from lictor.core.errors import EvaluationError
from lictor.core.evaluate.expressions import Expressions
from lictor.core.evaluate.images import CONTAINER_FIELDS, POD_SPECS, describe_image
from lictor.core.lang.image_reference import ImageReference, parse_image
from lictor.core.lang.patch.pointer import escape_key
from lictor.core.lang.template import Fill
from lictor.core.model.policy import ImageExtractor
from lictor.core.raw import Json, JsonObject

_Step: TypeAlias = str | int


class ResourceImage(msgspec.Struct, frozen=True):
    """An image in a resource, at a path."""

    path: tuple[_Step, ...]
    # The original text.
    text: str
    parts: ImageReference

    @property
    def reference(self) -> str:
        """The full name: with the digest if there is one, otherwise with the tag."""
        return self.parts.reference

    @property
    def names(self) -> tuple[str, ...]:
        """The names for patterns: a digest does not make it another image than its tag."""
        if self.parts.digest and self.parts.tag:
            return (self.reference, self.parts.reference_with_tag)
        return (self.reference,)

    @property
    def pointer(self) -> str:
        return "".join(f"/{escape_key(str(step))}" for step in self.path)

    def describe(self) -> JsonObject:
        """The variable `image` of conditions."""
        return describe_image(self.parts, self.pointer)

    def is_in(self, resource: JsonObject | None) -> bool:
        """Whether that resource has the same image at the same path."""
        found: Json = resource
        for step in self.path:
            if isinstance(found, dict) and isinstance(step, str):
                found = found.get(step)
            elif isinstance(found, list) and isinstance(step, int) and step < len(found):
                found = found[step]
            else:
                return False
        return isinstance(found, str) and found == self.text


ListImages: TypeAlias = Callable[[JsonObject], list[ResourceImage]]


class _Extractor(msgspec.Struct, frozen=True):
    """A path with `*` for every element, the field of the image, and how to transform it."""

    fields: tuple[str, ...]
    value: str
    query: Fill | None = None

    def extract(self, resource: JsonObject) -> Iterator[ResourceImage]:
        return self._walk(resource, (), self.fields)

    def _walk(
        self, found: Json, path: tuple[_Step, ...], fields: tuple[str, ...]
    ) -> Iterator[ResourceImage]:
        for position, field in enumerate(fields):
            if found is None:
                return
            if field == "*":
                here = (*path, *fields[:position])
                for step, element in _elements(found, here):
                    yield from self._walk(element, (*here, step), fields[position + 1 :])
                return
            if not isinstance(found, dict):
                raise _no_object((*path, *fields[:position]))
            found = found.get(field)
        if found is None:
            return
        if not isinstance(found, dict):
            raise _no_object((*path, *fields))
        image = self._read(found, (*path, *fields, self.value))
        if image is not None:
            yield image

    def _read(self, holder: JsonObject, path: tuple[_Step, ...]) -> ResourceImage | None:
        text: Json = holder.get(self.value)
        # As in Kyverno: blank names are placeholders that another controller fills in later.
        if text is None or (isinstance(text, str) and not text.strip()):
            return None
        if not isinstance(text, str):
            # A value that is not a string cannot run, but it was not verified either.
            raise EvaluationError(f"expected the name of an image at {_write(path)}")
        named: Json = text
        if self.query is not None:
            named = self.query(named)
        if not isinstance(named, str):
            raise EvaluationError(f"jmesPath finds no name of an image at {_write(path)}")
        try:
            return ResourceImage(path, text, _parse_image(named))
        except EvaluationError as error:
            raise EvaluationError(f"bad image at {_write(path)}: {error}") from error


def _no_object(path: tuple[_Step, ...]) -> EvaluationError:
    return EvaluationError(f"expected an object with an image at {_write(path)}")


# The same names come again and again.
_parse_image = lru_cache(4096)(parse_image)


def _elements(found: Json, path: tuple[_Step, ...]) -> Iterator[tuple[_Step, Json]]:
    if isinstance(found, list):
        return iter(enumerate(found))
    if isinstance(found, dict):
        return iter(found.items())
    raise EvaluationError(f"expected a list or a map at {_write(path)}")


def _write(path: tuple[_Step, ...]) -> str:
    return "/" + "/".join(map(str, path))


_POD_EXTRACTORS: dict[str, tuple[_Extractor, ...]] = {
    kind: tuple(_Extractor((*path, field, "*"), "image") for field in CONTAINER_FIELDS)
    for kind, path in POD_SPECS.items()
}


def compile_image_list(
    extractors: Mapping[str, Sequence[ImageExtractor]], expressions: Expressions
) -> ListImages:
    """A rule's extractors for a kind replace the built-in ones."""
    by_kind = dict(_POD_EXTRACTORS)
    for kind, own in extractors.items():
        by_kind[kind] = tuple(_compile_extractor(each, expressions) for each in own)

    def list_images(resource: JsonObject) -> list[ResourceImage]:
        chosen = by_kind.get(str(resource.get("kind", "")), ())
        return [image for extractor in chosen for image in extractor.extract(resource)]

    return list_images


def _compile_extractor(extractor: ImageExtractor, expressions: Expressions) -> _Extractor:
    fields = tuple(field for field in extractor.path.split("/") if field)
    value = extractor.value
    if not value and fields:
        fields, value = fields[:-1], fields[-1]
    query = expressions.query(extractor.jmes_path) if extractor.jmes_path else None
    return _Extractor(fields, value, query)
