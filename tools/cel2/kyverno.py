"""The environment of Kyverno's policies, by version."""

from collections.abc import Mapping, Sequence

from cel2 import macros
from cel2.environments import LANGUAGE, Version
from cel2.functions import Library, build_functions
from cel2.library import (
    authorizer,
    conversions,
    formats,
    host,
    images,
    kubernetes,
    kyverno,
    lists,
    math,
    net,
    optionals,
    regex,
    texts,
)
from cel2.library.host import HostFunction
from cel2.program import Environment
from cel2.types import Type, name_types, opaque_type

LATEST: Version = (1, 19)
_LIBRARIES = (
    kubernetes.URLS, kubernetes.REGEX, lists.KUBERNETES_LISTS, authorizer.AUTHORIZATION,
    optionals.OPTIONALS, kubernetes.QUANTITIES, texts.STRINGS, lists.SETS, net.IPS, net.CIDRS,
    formats.NAMED_FORMATS, authorizer.SELECTORS, lists.MAP_INSERTION, kubernetes.SEMVERS,
    lists.EXTENDED_LISTS, math.ENCODERS, math.MATH, images.IMAGES, math.ROUND, kyverno.HASHES,
    kyverno.DOCUMENTS, kyverno.COLLECTIONS,
)  # fmt: skip
# New in 1.19.
_NEW = (kyverno.ENCODING, regex.REGEX_FUNCTIONS, optionals.OR_VALUE, images.SEPARATOR)
_ALWAYS_OTHER = (kubernetes.CHANGING_QUANTITIES,)
_NEW_OTHER = (conversions.STRICT_TIMES,)
_OLD_OTHER = (texts.OLD_INDEXES, lists.OLD_RANGE, images.OLD_IMAGES, kyverno.OLD_MARSHAL)
_MACROS = {
    **macros.STANDARD, **macros.OPTIONALS, **macros.TWO_VARIABLES, **macros.SORTING,
    **macros.BINDINGS, **macros.MATH,
}  # fmt: skip
_VARIABLES: dict[str, Type] = {
    "json": opaque_type("json.Json"),
    "yaml": opaque_type("yaml.Yaml"),
}


def kyverno_environment(
    version: Version = LATEST,
    *,
    host_functions: Mapping[str, HostFunction] | None = None,
    more: Sequence[Library] = (),
) -> Environment:
    """The environment of a ValidatingPolicy; `more` adds libraries of other kinds of policies."""
    is_old = version < (1, 19)
    libraries = [*_LIBRARIES, host.build_host_library(host_functions or {}), *more]
    if is_old:
        position = libraries.index(optionals.OPTIONALS)
        libraries[position] = optionals.LENIENT_OPTIONALS
    else:
        libraries += _NEW
    overrides = (*_ALWAYS_OTHER, *(_OLD_OTHER if is_old else _NEW_OTHER))
    return Environment(
        _MACROS if is_old else {**_MACROS, **macros.OR_VALUE},
        build_functions((*LANGUAGE, *libraries), overrides),
        _VARIABLES,
        types=name_types(name for library in libraries for name in library.types),
        structs=kyverno.AccountStructs(),
        globals={name: kyverno.Namespace(of.name) for name, of in _VARIABLES.items()},
        quoted=not is_old,
        has_nan_order=not is_old,
        confuses_dots=not is_old,
    )
