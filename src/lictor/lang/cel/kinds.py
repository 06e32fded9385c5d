"""Types of CEL, written `map<string,dyn>` in our tables and `map(string, dyn)` for readers."""

from functools import lru_cache

import msgspec

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


class Kind(msgspec.Struct, frozen=True):
    """One type: its name and the types it is made of."""

    name: str
    parameters: tuple["Kind", ...] = ()

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


DYN = Kind("dyn")


@lru_cache(maxsize=1024)
def parse_kind(text: str) -> Kind:
    """Read `list<string>` (our tables) or `LIST<STRING>` (the engine's answers)."""
    kind, rest = _read(text.replace(" ", ""), 0)
    if rest != len(text.replace(" ", "")):
        raise ValueError(f"not a type: {text}")
    return kind


def _read(text: str, start: int) -> tuple[Kind, int]:
    end = start
    while end < len(text) and text[end] not in "<>,":
        end += 1
    name = _proper_name(text[start:end])
    if end == len(text) or text[end] != "<":
        return Kind(name), end
    parameters = []
    while text[end] != ">":
        parameter, end = _read(text, end + 1)
        parameters.append(parameter)
        if end == len(text):
            raise ValueError(f"not a type: {text}")
    return Kind(name, tuple(parameters)), end + 1


def _proper_name(name: str) -> str:
    if name in OPAQUE:
        return OPAQUE[name]
    lowered = name.lower()
    return _READ_AS.get(lowered, lowered) if name.isupper() or name == lowered else name
