"""Which variables and functions an expression may use, and the values of one request for them."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from lictor.core.lang.cel import native
from lictor.core.lang.cel.library import (
    authorization_overloads,
    kubernetes_overloads,
    kyverno_overloads,
    runtime_overloads,
)
from lictor.core.lang.cel.rewriting import Rewrite, replace_literals
from lictor.core.lang.cel.types import DYN, CelType, Overload, parse_type
from lictor.core.lang.cel.values import MANY, weigh
from lictor.core.raw import Json


class Activation(msgspec.Struct, frozen=True):
    """Values by variable name, in the engine's own form (each converted when first used)."""

    native: Json
    values: Mapping[str, Json]
    # Whether a value may hold a list so long that loops over it must be cut into pieces.
    is_large: bool = False
    # Elements and bytes of the largest value, roughly.
    count: int = 0
    size: int = 0


def make_activation(values: Mapping[str, Json]) -> Activation:
    """Hand `object`, `request`, `params` and so on to the engine."""
    weighed = {name: weigh(value) for name, value in values.items()}
    admitted = {name: each[0] for name, each in weighed.items()}
    count, size = 0, 0
    for _, found, length in weighed.values():
        size = max(size, length)
        count = max(count, found)
    return Activation(runtime().Activation(admitted), admitted, count > MANY, count, size)


# A number after the colon is a library's version. Variables become bindings: all need those.
_KUBERNETES = ("bindings", "lists", "optional", "sets", "strings:2", "two-var-comprehensions")
_KYVERNO = (
    "bindings",
    "lists",
    "optional",
    "sets",
    "strings",
    "two-var-comprehensions",
    "encoders",
    "math",
)
_SLOTS_OF_A_KIND = 16
_COMMON_KINDS = tuple(
    parse_type(text)
    for text in (
        "dyn", "bool", "string", "int", "list<dyn>", "list<string>", "map<string,dyn>",
        "map<string,string>", "list<map<string,dyn>>",
    )
)  # fmt: skip

Slot = tuple[CelType, int]


class Environment(msgspec.Struct, frozen=True, eq=False):
    """A name, the engine's own libraries, ours, and the variables with their types.

    `forbidden` are names that we need ourselves and that authors may not use; `rewrites` change the
    text before the checker sees it; with `names_variables`, errors tell which variable failed.
    """

    name: str
    extensions: tuple[str, ...]
    variables: Mapping[str, CelType]
    overloads: tuple[Overload, ...]
    forbidden: frozenset[str] = frozenset()
    rewrites: tuple[Rewrite, ...] = ()
    names_variables: bool = False

    def names(self) -> Iterable[str]:
        """What a misspelt name may have meant."""
        return {*self.variables, *(overload.name for overload in self.overloads)}


@lru_cache(maxsize=64)
def kubernetes_environment(
    *, has_params: bool = True, has_authorizer: bool = True, has_patches: bool = False
) -> Environment:
    """That of Kubernetes' admission policies; `has_patches`: of those that mutate."""
    variables = _admission_variables()
    if has_params:
        variables["params"] = DYN
    if has_authorizer:
        variables["authorizer"] = parse_type("Authorizer")
        variables["authorizer.requestResource"] = parse_type("ResourceCheck")
    overloads = kubernetes_overloads(has_patches=has_patches)
    rewrites = (replace_literals,) if has_patches else ()
    return Environment(
        "Kubernetes",
        _KUBERNETES,
        variables,
        overloads,
        forbidden=frozenset({"cel"}),
        rewrites=rewrites,
        names_variables=True,
    )


@lru_cache(maxsize=64)
def kyverno_environment(profile: str, *, is_namespaced: bool = False) -> Environment:
    """That of Kyverno's policies that are validating, mutating, generating, deleting or image."""
    variables = _admission_variables()
    variables["exceptions"] = DYN
    if profile == "image":
        variables["images"] = parse_type("map<string,list<string>>")
        variables["attestors"] = parse_type("map<string,dyn>")
        variables["attestations"] = parse_type("map<string,string>")
    overloads = kyverno_overloads(profile, is_namespaced=is_namespaced)
    rewrites = (replace_literals,) if profile == "mutating" else ()
    return Environment(profile, _KYVERNO, variables, overloads, rewrites=rewrites)


@lru_cache(maxsize=1)
def image_environment() -> Environment:
    """That of `matchImageReferences`: only `ref`, the image's text."""
    overloads = kyverno_overloads("image reference")
    return Environment("image reference", _KYVERNO, {"ref": parse_type("string")}, overloads)


@lru_cache(maxsize=2)
def authorization_environment(mode: str) -> Environment:
    """That of policies on requests to a service: mode `Envoy` or `HTTP`; they see only `object`."""
    return Environment(mode, _KYVERNO, {"object": DYN}, authorization_overloads(mode))


# Asked for each variable at each expression of a policy.
@lru_cache(maxsize=1024)
def slot_name(slot: Slot) -> str:
    """The identifier that stands for a policy's variable of this type."""
    kind, index = slot
    letters = "".join(letter if letter.isalnum() else "_" for letter in str(kind))
    return f"variable_{letters}_{index}"


@lru_cache(maxsize=256)
def checker_for(environment: Environment, slots: frozenset[Slot]) -> native.Checker:
    """The checker of an environment, with room for variables of these types."""
    extra = {slot_name(slot): slot[0] for slot in slots}
    common = {slot_name(slot): slot[0] for slot in _common_slots()}
    variables = {**environment.variables, **common, **extra}
    return native.build_checker(environment.extensions, variables, environment.overloads)


@lru_cache(maxsize=1)
def _common_slots() -> frozenset[Slot]:
    return frozenset((kind, index) for kind in _COMMON_KINDS for index in range(_SLOTS_OF_A_KIND))


def uncommon_slots(slots: Iterable[Slot]) -> frozenset[Slot]:
    """Those that a checker does not have anyway, up to a power of two of each type.

    To make a checker takes 20 ms: policies with many variables must not need one for each.
    """
    most: dict[CelType, int] = {}
    for kind, index in frozenset(slots) - _common_slots():
        most[kind] = max(most.get(kind, 0), index)
    rounded = ((kind, at) for kind, last in most.items() for at in range(1 << last.bit_length()))
    return frozenset(rounded) - _common_slots()


@lru_cache(maxsize=1)
def runtime() -> native.Runtime:
    """The one runtime, for the expressions of all environments."""
    return native.build_runtime(_KYVERNO, runtime_overloads())


def _admission_variables() -> dict[str, CelType]:
    return dict.fromkeys(("object", "oldObject", "request", "namespaceObject"), DYN)
