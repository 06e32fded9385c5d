"""Every function a query may call: what it takes, what it gives, and how it is computed."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module

from lictor.lang.jmespath.functions.spec import FunctionSpec, Surroundings

__all__ = ["FUNCTIONS", "FunctionSpec", "Surroundings"]

# Cheap and common ones first: a room is entered only when a name was in none before it.
_ROOMS = (
    "standard",
    "text",
    "collection",
    "ordering",
    "matching",
    "arithmetic",
    "time",
    "encoding",
)


class _Functions(Mapping[str, FunctionSpec]):
    """All functions by name. Most queries call none, so that their modules load when needed."""

    def __init__(self) -> None:
        self._known: dict[str, FunctionSpec] = {}
        self._unopened = list(_ROOMS)

    def __getitem__(self, name: str) -> FunctionSpec:
        while name not in self._known and self._unopened:
            self._open()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        while self._unopened:
            self._open()
        return iter(self._known)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _open(self) -> None:
        # Policies are compiled on one thread while others are asked on another: both may come here.
        room = next(iter(self._unopened), None)
        if room is None:
            return
        specs: tuple[FunctionSpec, ...] = getattr(import_module(f"{__name__}.{room}"), room.upper())
        self._known.update({spec.name: spec for spec in specs})
        with suppress(ValueError):
            self._unopened.remove(room)


FUNCTIONS: Mapping[str, FunctionSpec] = _Functions()
