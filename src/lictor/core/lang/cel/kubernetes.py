"""The environment of Kubernetes, by version.

A policy for an older release compiles as that release has it:
`kubernetes_environment(version=(1, 34), binary=(1, 37))`.
"""

from functools import lru_cache

from lictor.core.lang.cel import macros
from lictor.core.lang.cel.functions import Library, build_functions
from lictor.core.lang.cel.library import (
    conversions,
    formats,
    host,
    kubernetes,
    lists,
    net,
    standard,
    structs,
    texts,
)
from lictor.core.lang.cel.parser import Macro, MacroKey
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.cel.types import DYN, CelType, name_types, opaque_type

Version = tuple[int, int]
LATEST: Version = (1, 37)
# The compatibility version of a server is one release behind its own by default: it refuses newer
# functions in new expressions, and runs them in stored ones.
NEW_EXPRESSIONS: Version = (LATEST[0], LATEST[1] - 1)
LANGUAGE = (standard.OPERATORS, conversions.CONVERSIONS, standard.TEXTS, standard.TIMES)
_ALWAYS: Version = (1, 0)
# Since which compatibility version a new expression may use a library, in the order in which
# Kubernetes adds them: overloads are tried in this order.
_KUBERNETES: tuple[tuple[Version, Library], ...] = (
    (_ALWAYS, kubernetes.URLS),
    (_ALWAYS, kubernetes.REGEX),
    ((1, 27), host.AUTHORIZATION),
    ((1, 28), lists.OPTIONALS),
    ((1, 28), kubernetes.QUANTITIES),
    ((1, 29), texts.STRINGS),
    ((1, 29), lists.SETS),
    ((1, 30), net.IPS),
    ((1, 30), net.CIDRS),
    ((1, 31), formats.NAMED_FORMATS),
    ((1, 31), host.SELECTORS),
    ((1, 32), lists.MAP_INSERTION),
    ((1, 33), kubernetes.SEMVERS),
    ((1, 34), lists.EXTENDED_LISTS),
    ((1, 37), lists.INCLUDES),
)
_MACROS: tuple[tuple[Version, dict[MacroKey, Macro]], ...] = (
    (_ALWAYS, macros.STANDARD),
    ((1, 28), macros.OPTIONALS),
    ((1, 32), macros.TWO_VARIABLES),
    ((1, 34), macros.SORTING),
)
# The language comes with the server's binary: this is the release that brought cel-go 0.29.
_NEW_LANGUAGE: Version = (1, 36)
_ADMISSION = dict.fromkeys(("object", "oldObject", "request", "namespaceObject"), DYN)
_AUTHORIZER: dict[str, CelType] = {
    "authorizer": opaque_type("kubernetes.authorization.Authorizer"),
    "authorizer.requestResource": opaque_type("kubernetes.authorization.ResourceCheck"),
}
_OLD = (texts.OLD_INDEXES, lists.OLD_RANGE, kubernetes.CHANGING_QUANTITIES)


@lru_cache(maxsize=32)
def build_kubernetes(
    version: Version = LATEST,
    *,
    has_patches: bool = False,
    binary: Version = LATEST,
    is_kyverno: bool = False,
) -> Environment:
    """Kubernetes' environment for a compatibility version, as a server of release `binary` has it.

    `has_patches`: the types of mutating policies. `is_kyverno`: `orValue` returns a value that is
    no optional, as in Kyverno.
    """
    is_old = binary < _NEW_LANGUAGE
    libraries = [library for since, library in _KUBERNETES if version >= since]
    # Since 1.37 Kubernetes adds its lists last.
    position = len(libraries) if version >= (1, 37) else 2
    libraries.insert(position, lists.KUBERNETES_LISTS)
    if is_old:
        libraries[libraries.index(lists.OPTIONALS)] = lists.LENIENT_OPTIONALS
    if has_patches:
        libraries.append(structs.PATCHES)
    known: dict[MacroKey, Macro] = {}
    if is_kyverno:
        libraries.append(lists.OR_VALUE)
        known.update(macros.OR_VALUE)
    for since, more in _MACROS:
        known.update(more if version >= since else {})
    return Environment(
        "Kubernetes",
        known,
        functions=build_functions((*LANGUAGE, *libraries), _OLD if is_old else ()),
        types=name_types(name for library in libraries for name in library.types),
        structs=structs.PatchStructs() if has_patches else structs.Structs(),
        quoted=not is_old,
        inner_first=not is_old,
        names_variables=True,
    )


@lru_cache(maxsize=64)
def kubernetes_environment(
    *,
    has_params: bool = True,
    has_authorizer: bool = True,
    has_patches: bool = False,
    version: Version = LATEST,
    binary: Version = LATEST,
    is_kyverno: bool = False,
) -> Environment:
    """The environment of Kubernetes' admission policies; parameters as for `build_kubernetes`.

    `is_kyverno`: for expressions in Kyverno's classic policies.
    """
    params = {"params": DYN} if has_params else {}
    base = build_kubernetes(version, has_patches=has_patches, binary=binary, is_kyverno=is_kyverno)
    return base.extend({**_ADMISSION, **params, **(_AUTHORIZER if has_authorizer else {})})


@lru_cache(maxsize=4)
def rule_environment(version: Version = LATEST, binary: Version = LATEST) -> Environment:
    """The environment of rules in a custom resource's schema: `self` and `oldSelf`."""
    return build_kubernetes(version, binary=binary).extend({"self": DYN, "oldSelf": DYN})


@lru_cache(maxsize=1)
def list_newer_functions() -> frozenset[str]:
    """The functions that a server of the newest release refuses in new expressions."""
    known = build_kubernetes(LATEST).functions
    return frozenset(known) - frozenset(build_kubernetes(NEW_EXPRESSIONS).functions)
