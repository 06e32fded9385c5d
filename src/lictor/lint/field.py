"""A value of a document with its path; reads documents of any shape without failing."""

from collections.abc import Iterator

import msgspec

from lictor.core.model.finding import FieldPath
from lictor.core.raw import Json


class Field(msgspec.Struct, frozen=True):
    """A value and its path. Null, absent and mistyped values are empty."""

    value: Json
    path: FieldPath = ()

    def __getitem__(self, key: str) -> "Field":
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return Field(value, (*self.path, key))

    def __bool__(self) -> bool:
        """Whether there is a value: an empty one counts, null does not."""
        return self.value is not None

    def each(self) -> Iterator["Field"]:
        """The items of a list."""
        if isinstance(self.value, list):
            for index, item in enumerate(self.value):
                yield Field(item, (*self.path, index))

    def walk(self, path: FieldPath) -> Iterator["Field"]:
        """This field, and each field on the path below it."""
        part = self
        yield part
        for step in path:
            if isinstance(step, int):
                part = next((each for each in part.each() if each.path[-1] == step), Field(None))
            else:
                part = part[step]
            yield part

    def entries(self) -> Iterator[tuple[str, "Field"]]:
        """The entries of an object that are not null."""
        if isinstance(self.value, dict):
            for key, item in self.value.items():
                if item is not None:
                    yield key, Field(item, (*self.path, key))

    @property
    def text(self) -> str:
        """A string; empty for other values."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The strings of a list."""
        return tuple(item.value for item in self.each() if isinstance(item.value, str))

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_true(self) -> bool:
        return self.value is True

    @property
    def is_empty(self) -> bool:
        """No value, or an object, list or text without content."""
        return self.value is None or self.value in ("", [], {})

    def present(self, *keys: str) -> list[str]:
        """Which of the keys have content."""
        return [key for key in keys if self[key]]

    def leaves(self) -> Iterator["Field"]:
        """Every string below: values, and keys with the path of their entry."""
        waiting = [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part.value, str):
                yield part
            elif isinstance(part.value, dict):
                for key, item in part.value.items():
                    path = (*part.path, key)
                    waiting.append(Field(item, path))
                    waiting.append(Field(key, path))
            else:
                waiting.extend(part.each())


def list_loops(body: Field) -> Iterator[Field]:
    """Every foreach of a validate, mutate or generate, including nested ones."""
    for loop in body["foreach"].each():
        yield loop
        yield from list_loops(loop)
