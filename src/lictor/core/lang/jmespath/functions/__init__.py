"""Every function of queries: arguments, result and implementation."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module

from lictor.core.lang.jmespath.functions.spec import FunctionSpec, JmesPathHost

__all__ = ["FUNCTIONS", "FunctionSpec", "JmesPathHost"]

# Cheap and common ones first: a module is imported only if a name is in none before it.
_MODULES = ("standard", "matching", "arithmetic", "time", "encoding")


class _Functions(Mapping[str, FunctionSpec]):
    """All functions by name. Most queries call none, so their modules are imported on demand."""

    def __init__(self) -> None:
        self._known: dict[str, FunctionSpec] = {}
        self._unread = list(_MODULES)

    def __getitem__(self, name: str) -> FunctionSpec:
        while name not in self._known and self._unread:
            self._read()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        while self._unread:
            self._read()
        return iter(self._known)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read(self) -> None:
        # Policies are compiled on one thread while requests run on another: both may come here.
        module = next(iter(self._unread), None)
        if module is None:
            return
        specs: tuple[FunctionSpec, ...] = getattr(
            import_module(f"{__name__}.{module}"), module.upper()
        )
        self._known.update({spec.name: spec for spec in specs})
        with suppress(ValueError):
            self._unread.remove(module)


FUNCTIONS: Mapping[str, FunctionSpec] = _Functions()
