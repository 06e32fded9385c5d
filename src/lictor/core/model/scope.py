"""Variables of one evaluation: an immutable mapping with entries that load on first use."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from lictor.core.errors import EvaluationError
from lictor.core.raw import Json, JsonObject

# Computes a variable from the scope that reads it; raises KeyError if there is none.
Loader: TypeAlias = "Callable[[Scope], Json]"


class Scope(dict[str, Json]):
    """The variables of `{{ }}`. A dict, so that queries treat it as any JSON object.

    `scope["name"]` loads a lazy entry on first use and caches it; nothing else is ever modified.
    Everything else creates a child: `scope.child(element=...)`.
    """

    __slots__ = ("_loaders",)

    def __init__(
        self, values: Mapping[str, Json], loaders: Mapping[str, Loader] | None = None
    ) -> None:
        super().__init__(values)
        self._loaders: dict[str, Loader] = dict(loaders) if loaders else {}

    def __missing__(self, name: str) -> Json:
        loader = self._loaders.pop(name, None)
        if loader is None:
            raise KeyError(name)
        try:
            # The entry is removed while it loads: it may refer to an outer entry of the same name,
            # and a cycle ends with "unknown variable" instead of endless recursion.
            value = self[name] = loader(self)
        except BaseException:
            self._loaders[name] = loader
            raise
        return value

    def child(self, /, **values: Json) -> "Scope":
        """A scope with more values, which hide the old ones. For arbitrary names: `with_values`."""
        return self.with_values(values)

    def with_values(self, values: Mapping[str, Json]) -> "Scope":
        """The same with values from a mapping."""
        # Bypasses `__init__`: this runs for every element of every `foreach`.
        made = Scope.__new__(Scope)
        made |= self
        made |= values
        loaders = made._loaders = self._loaders.copy()  # noqa: SLF001  (same class)
        for name in self._loaders:
            if name in values:
                del loaders[name]
        return made

    def lazy(self, loaders: Mapping[str, Loader]) -> "Scope":
        """A scope with more lazy entries, which hide existing ones.

        Only from later entries: an existing entry was built on what is hidden, and keeps its
        meaning when it loads later.
        """
        kept = {k: v for k, v in self.items() if k not in loaders}
        added = {k: _or_else(v, self[k]) if k in self else v for k, v in loaders.items()}
        hidden = [k for k in loaders if k in self or k in self._loaders]
        if not hidden:
            return Scope(kept, {**self._loaders, **added})
        bound = {k: _bind(v, self, hidden) for k, v in self._loaders.items() if k not in loaders}
        # An entry that hides another of the same name may be computed from it.
        bound |= {k: _bind(v, self, (k,)) if k in hidden else v for k, v in added.items()}
        return Scope(kept, bound)

    def reveal(self, outer: "Scope", names: Sequence[str]) -> "Scope":
        """The scope, with some names restored to their outer values."""
        kept = {k: v for k, v in self.items() if k not in names}
        loaders = {k: v for k, v in self._loaders.items() if k not in names}
        loaders |= {k: _take(outer, k) for k in names}
        return Scope(kept, loaders)

    def names(self) -> set[str]:
        return set(self) | set(self._loaders)

    def load_all(self) -> JsonObject:
        """All entries, loaded: for an expression that uses `@`, and for tests."""
        for name in list(self._loaders):
            try:
                self[name]
            except (KeyError, EvaluationError):
                # An unused entry may be broken; an expression that names it gets the error.
                continue
        return dict(self)


def _bind(loader: Loader, outer: Scope, names: Sequence[str]) -> Loader:
    return lambda scope: loader(scope.reveal(outer, names))


def _take(outer: Scope, name: str) -> Loader:
    return lambda _: outer[name]


def _or_else(loader: Loader, hidden: Json) -> Loader:
    def load(scope: Scope) -> Json:
        try:
            return loader(scope)
        except KeyError:
            return hidden

    return load
