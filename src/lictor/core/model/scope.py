"""Variables of one evaluation: an immutable mapping whose entries load when first used."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from lictor.core.errors import EvaluationError
from lictor.core.raw import Json, JsonObject

# Computes a variable from the scope in which it is asked for; KeyError where there is none.
Loader: TypeAlias = "Callable[[Scope], Json]"


class Scope(dict[str, Json]):
    """What `{{ }}` sees. A dict, so that queries run on it as on any JSON object.

    `scope["name"]` loads a lazy entry on its first use and remembers it; that memory is the only
    thing that ever changes. Everything else makes a child: `scope.child(element=...)`.
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
            # The entry is out of the table while it loads: it may refer to an outer one of its own
            # name, and a circle ends in "unknown variable" instead of without end.
            value = self[name] = loader(self)
        except BaseException:
            self._loaders[name] = loader
            raise
        return value

    def child(self, /, **values: Json) -> "Scope":
        """A scope with more values; the new ones hide the old. Foreign names: `with_values`."""
        return self.with_values(values)

    def with_values(self, values: Mapping[str, Json]) -> "Scope":
        """The same for values that are at hand as a mapping."""
        # Not by way of `__init__`: this happens for every element of every `foreach`.
        made = Scope.__new__(Scope)
        made |= self
        made |= values
        loaders = made._loaders = self._loaders.copy()  # noqa: SLF001  (of its own class)
        for name in self._loaders:
            if name in values:
                del loaders[name]
        return made

    def lazy(self, loaders: Mapping[str, Loader]) -> "Scope":
        """A scope with more entries that load when first used; they hide what was there.

        Only from those who come after: an entry that is there already was made from what is hidden,
        and means the same when it loads later.
        """
        kept = {k: v for k, v in self.items() if k not in loaders}
        added = {k: _or_else(v, self[k]) if k in self else v for k, v in loaders.items()}
        hidden = [k for k in loaders if k in self or k in self._loaders]
        if not hidden:
            return Scope(kept, {**self._loaders, **added})
        bound = {k: _bind(v, self, hidden) for k, v in self._loaders.items() if k not in loaders}
        # One that hides another of its name may be made from it.
        bound |= {k: _bind(v, self, (k,)) if k in hidden else v for k, v in added.items()}
        return Scope(kept, bound)

    def reveal(self, outer: "Scope", names: Sequence[str]) -> "Scope":
        """The scope, but for some names that are what they were outside."""
        kept = {k: v for k, v in self.items() if k not in names}
        loaders = {k: v for k, v in self._loaders.items() if k not in names}
        loaders |= {k: _take(outer, k) for k in names}
        return Scope(kept, loaders)

    def names(self) -> set[str]:
        return set(self) | set(self._loaders)

    def load_all(self) -> JsonObject:
        """Everything, loaded: for an expression that asks for `@`, and for tests."""
        for name in list(self._loaders):
            try:
                self[name]
            except (KeyError, EvaluationError):
                # An entry that nobody named may be broken; whoever names it gets the error.
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
