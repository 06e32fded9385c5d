"""The environments of Kyverno's policies, by version and by what a policy does."""

from collections.abc import Iterable
from functools import lru_cache

from lictor.core.lang.cel import macros
from lictor.core.lang.cel.functions import Library, build_functions
from lictor.core.lang.cel.kubernetes import LANGUAGE, Version
from lictor.core.lang.cel.library import (
    answers,
    conversions,
    formats,
    host,
    kubernetes,
    kyverno,
    lists,
    math,
    net,
    resources,
    structs,
    texts,
)
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.cel.types import DYN, STRING, CelType, name_types, opaque_type, parse_type
from lictor.core.lang.cel.values import Opaque

LATEST: Version = (1, 19)
_KUBERNETES = (
    kubernetes.URLS, kubernetes.REGEX, lists.KUBERNETES_LISTS, host.AUTHORIZATION,
    lists.OPTIONALS, kubernetes.QUANTITIES, texts.STRINGS, lists.SETS, net.IPS, net.CIDRS,
    formats.NAMED_FORMATS, host.SELECTORS, lists.MAP_INSERTION, kubernetes.SEMVERS,
    lists.EXTENDED_LISTS, math.ENCODERS, math.MATH, net.IMAGES,
)  # fmt: skip
_KYVERNO = (
    math.ROUND, kyverno.HASHES, kyverno.DOCUMENTS, kyverno.COLLECTIONS, host.CLOCK,
    host.IMAGE_DATA, resources.HTTP, resources.GLOBAL_CONTEXT,
)  # fmt: skip
# New in 1.19.
_NEW = (kyverno.ENCODING, texts.REGEX_FUNCTIONS, lists.OR_VALUE, net.SEPARATOR)
_ALWAYS_OTHER = (kubernetes.CHANGING_QUANTITIES,)
_NEW_OTHER = (conversions.STRICT_TIMES,)
_OLD_OTHER = (texts.OLD_INDEXES, lists.OLD_RANGE, net.OLD_IMAGES, kyverno.OLD_MARSHAL)
_MACROS = {
    **macros.STANDARD, **macros.OPTIONALS, **macros.TWO_VARIABLES, **macros.SORTING,
    **macros.BINDINGS, **macros.MATH,
}  # fmt: skip
# Variables that are there for their methods.
_NAMESPACES: dict[str, Opaque] = {
    "json": kyverno.Namespace("json.Json"),
    "yaml": kyverno.Namespace("yaml.Yaml"),
    "resource": kyverno.Namespace("resource.Context"),
    "globalContext": kyverno.Namespace("globalcontext.Context"),
    "image": kyverno.Namespace("imagedata.Context"),
    "http": resources.CelHttpClient(),
}
_GENERATOR: dict[str, Opaque] = {"generator": kyverno.Namespace("generator.Context")}
_ADMISSION = dict.fromkeys(("object", "oldObject", "request", "namespaceObject", "exceptions"), DYN)
_IMAGE: dict[str, CelType] = {
    "images": parse_type("map(string, list(string))"),
    "attestors": parse_type("map(string, dyn)"),
    "attestations": parse_type("map(string, string)"),
}
_MORE: dict[str, tuple[Library, ...]] = {
    "validating": (kyverno.ACCOUNTS, host.CERTIFICATES),
    "mutating": (kyverno.ACCOUNTS, host.CERTIFICATES, structs.PATCHES),
    "generating": (host.CERTIFICATES,),
    "deleting": (host.CERTIFICATES,),
    "image": (kyverno.ACCOUNTS, host.VERIFICATION),
}


@lru_cache(maxsize=32)
def kyverno_environment(
    profile: str = "validating", *, is_namespaced: bool = False, version: Version = LATEST
) -> Environment:
    """The environment of policies that are validating, mutating, generating, deleting or image."""
    is_old = version < (1, 19)
    cluster = resources.NAMESPACED_RESOURCES if is_namespaced else resources.CLUSTER_RESOURCES
    libraries = [*_KUBERNETES, *_KYVERNO, cluster, *_MORE[profile]]
    namespaces = _NAMESPACES
    # Policies for 1.18 work on: Kyverno 1.19 has no generator in mutating policies, and in those of
    # a namespace no argument for the namespace, which is checked when it is used.
    if profile in ("generating", "mutating"):
        libraries.append(resources.GENERATOR)
        namespaces = {**_NAMESPACES, **_GENERATOR}
        if is_namespaced and not is_old:
            libraries.append(resources.OWN_GENERATOR)
    variables = {**_ADMISSION, **(_IMAGE if profile == "image" else {})}
    known = structs.PatchStructs() if profile == "mutating" else structs.Structs()
    return _build(profile, libraries, namespaces, variables, known, is_old=is_old)


@lru_cache(maxsize=4)
def image_environment(version: Version = LATEST) -> Environment:
    """The environment of `matchImageReferences`: only `ref`, the reference of the image."""
    known = structs.Structs()
    is_old = version < (1, 19)
    return _build("image reference", _KUBERNETES, {}, {"ref": STRING}, known, is_old=is_old)


@lru_cache(maxsize=4)
def authorization_environment(mode: str, version: Version = LATEST) -> Environment:
    """The environment of policies on requests to a service: mode `Envoy` or `HTTP`."""
    more = answers.ENVOY_ANSWERS if mode == "Envoy" else answers.WEB_ANSWERS
    libraries = (
        *_KUBERNETES, kyverno.DOCUMENTS, kyverno.OTHER_SPELLING, host.IMAGE_DATA, resources.HTTP,
        resources.TOKENS, resources.CLUSTER_RESOURCES, more,
    )  # fmt: skip
    is_old = version < (1, 19)
    return _build(mode, libraries, _NAMESPACES, {"object": DYN}, structs.Structs(), is_old=is_old)


def _build(
    name: str,
    libraries: Iterable[Library],
    namespaces: dict[str, Opaque],
    variables: dict[str, CelType],
    known: structs.Structs,
    *,
    is_old: bool,
) -> Environment:
    chosen = [*libraries]
    if is_old:
        chosen[chosen.index(lists.OPTIONALS)] = lists.LENIENT_OPTIONALS
    else:
        chosen += _NEW
    overrides = (*_ALWAYS_OTHER, *(_OLD_OTHER if is_old else _NEW_OTHER))
    declared = {each: opaque_type(value.type_name) for each, value in namespaces.items()}
    return Environment(
        name,
        _MACROS if is_old else {**_MACROS, **macros.OR_VALUE},
        functions=build_functions((*LANGUAGE, *chosen), overrides),
        variables={**declared, **variables},
        types=name_types(each for library in chosen for each in library.types),
        structs=known,
        globals=namespaces,
        quoted=not is_old,
        has_nan_order=not is_old,
        confuses_dots=not is_old,
    )
