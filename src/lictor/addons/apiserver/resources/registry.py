"""All built-in kinds that are declared: every module of this package that has `RESOURCES`."""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from lictor.addons.apiserver.kind import BuiltinResource


@cache
def builtin_resources() -> Mapping[tuple[str, str], BuiltinResource]:
    """All that are declared, by group and kind."""
    package = import_module(__package__)
    names = sorted(each.name for each in pkgutil.iter_modules(package.__path__))
    modules = (import_module(f"{__package__}.{name}") for name in names)
    declared = (each for module in modules for each in getattr(module, "RESOURCES", ()))
    return {(each.group, each.kind): each for each in declared}


def find_resource(group: str, kind: str) -> BuiltinResource:
    """What is declared of a kind; nothing particular where nothing is declared."""
    return builtin_resources().get((group, kind)) or BuiltinResource(group, kind)
