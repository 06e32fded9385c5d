"""Types of CEL, written `map<string,dyn>` in our tables, and functions declared with them."""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from lictor.core.raw import Json

# The short names used in our tables, and what Kubernetes and Kyverno call these types.
OPAQUE = {
    "Quantity": "kubernetes.Quantity",
    "Semver": "kubernetes.Semver",
    "URL": "kubernetes.URL",
    "IP": "net.IP",
    "CIDR": "net.CIDR",
    "Format": "kubernetes.NamedFormat",
    "Authorizer": "kubernetes.authorization.Authorizer",
    "PathCheck": "kubernetes.authorization.PathCheck",
    "GroupCheck": "kubernetes.authorization.GroupCheck",
    "ResourceCheck": "kubernetes.authorization.ResourceCheck",
    "Decision": "kubernetes.authorization.Decision",
    "Image": "kyverno.image",
    "Http": "http.Context",
    "EnvoyOk": "envoy.service.auth.v3.OkHttpResponse",
    "EnvoyDenied": "envoy.service.auth.v3.DeniedHttpResponse",
    "EnvoyResponse": "envoy.service.auth.v3.CheckResponse",
    "EnvoyHeader": "envoy.config.core.v3.HeaderValueOption",
    "EnvoyParameter": "envoy.config.core.v3.QueryParameter",
    "HttpOk": "http.CheckResponseOk",
    "HttpDenied": "http.CheckResponseDenied",
    "HttpResponse": "http.CheckResponse",
    "KeySet": "jwk.Set",
    "Object": "Object",
    "JSONPatch": "JSONPatch",
    "Gvr": "schema.GroupVersionResource",
}
_PLAIN = frozenset({
    "bool", "int", "uint", "double", "string", "bytes", "dyn", "list", "map", "timestamp",
    "duration", "type", "error",
})  # fmt: skip
_READ_AS = {"null": "null_type", "optional": "optional_type"}


class CelType(msgspec.Struct, frozen=True):
    """One type: its name and the types it is made of."""

    name: str
    parameters: tuple["CelType", ...] = ()

    @property
    def is_parameter(self) -> bool:
        """Whether it stands for any one type, as `~T` does."""
        return self.name.startswith("~")

    @property
    def is_opaque(self) -> bool:
        return self.name not in _PLAIN and not self.is_parameter

    def needs_yaml(self) -> bool:
        """Whether only a YAML configuration can say it: the engine's own API has no word for it."""
        if self.is_parameter or (self.is_opaque and self.parameters):
            return True
        return any(parameter.needs_yaml() for parameter in self.parameters)

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(map(str, self.parameters))})"


DYN = CelType("dyn")


@lru_cache(maxsize=1024)
def parse_type(text: str) -> CelType:
    """Read `list<string>` (our tables) or `LIST<STRING>` (the engine's answers)."""
    kind, rest = _read(text.replace(" ", ""), 0)
    if rest != len(text.replace(" ", "")):
        raise ValueError(f"not a type: {text}")
    return kind


def _read(text: str, start: int) -> tuple[CelType, int]:
    end = start
    while end < len(text) and text[end] not in "<>,":
        end += 1
    name = _proper_name(text[start:end])
    if end == len(text) or text[end] != "<":
        return CelType(name), end
    parameters = []
    while text[end] != ">":
        parameter, end = _read(text, end + 1)
        parameters.append(parameter)
        if end == len(text):
            raise ValueError(f"not a type: {text}")
    return CelType(name, tuple(parameters)), end + 1


def _proper_name(name: str) -> str:
    if name in OPAQUE:
        return OPAQUE[name]
    lowered = name.lower()
    return _READ_AS.get(lowered, lowered) if name.isupper() or name == lowered else name


Implementation = Callable[..., Json]


class Overload(msgspec.Struct, frozen=True):
    """One signature of a function; the first parameter of a member is before the dot."""

    name: str
    parameters: tuple[CelType, ...]
    result: CelType
    implementation: Implementation
    is_member: bool = False

    @property
    def identity(self) -> str:
        """A name of its own for the checker."""
        form = "member" if self.is_member else "global"
        return f"{form} {self.name} {', '.join(map(str, self.parameters))}"


def function(name: str, signature: str, implementation: Implementation) -> Overload:
    """Declare `name(…)`; the signature reads `string, list<string> -> bool`."""
    parameters, result = _read_signature(signature)
    return Overload(name, parameters, result, implementation)


def member(name: str, signature: str, implementation: Implementation) -> Overload:
    """Declare `x.name(…)`; the first type of the signature is that of `x`."""
    parameters, result = _read_signature(signature)
    return Overload(name, parameters, result, implementation, is_member=True)


def _read_signature(signature: str) -> tuple[tuple[CelType, ...], CelType]:
    given, _, result = signature.partition("->")
    return tuple(parse_type(text) for text in _split_types(given.strip())), parse_type(
        result.strip()
    )


def _split_types(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]] if text else []
