"""Plain JSON with the way to it: walks a document of any shape without ever stumbling."""

from collections.abc import Iterator

import msgspec

from lictor.model.finding import FieldPath
from lictor.raw import Json


class Part(msgspec.Struct, frozen=True):
    """A value and its path. What is null, absent or of another type than asked for is empty."""

    value: Json
    path: FieldPath = ()

    def __getitem__(self, key: str) -> "Part":
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return Part(value, (*self.path, key))

    def __bool__(self) -> bool:
        """Whether there is a value: an empty one counts, null does not."""
        return self.value is not None

    def each(self) -> Iterator["Part"]:
        """The items of a list."""
        if isinstance(self.value, list):
            for index, item in enumerate(self.value):
                yield Part(item, (*self.path, index))

    def entries(self) -> Iterator[tuple[str, "Part"]]:
        """The entries of an object that are not null."""
        if isinstance(self.value, dict):
            for key, item in self.value.items():
                if item is not None:
                    yield key, Part(item, (*self.path, key))

    @property
    def text(self) -> str:
        """A string; empty where it is none."""
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
        """Nothing at all, or an object, list or text without content."""
        return self.value is None or self.value in ("", [], {})

    def present(self, *keys: str) -> list[str]:
        """Which of the keys have content."""
        return [key for key in keys if self[key]]

    def leaves(self) -> Iterator["Part"]:
        """Every string below: values, and keys under the path of their entry."""
        waiting = [self]
        while waiting:
            part = waiting.pop()
            if isinstance(part.value, str):
                yield part
            elif isinstance(part.value, dict):
                for key, item in part.value.items():
                    path = (*part.path, key)
                    waiting.append(Part(item, path))
                    waiting.append(Part(key, path))
            else:
                waiting.extend(part.each())
