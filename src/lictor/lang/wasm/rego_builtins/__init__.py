"""OPA's builtins that its Wasm leaves to the host, with OPA's names and values.

Nothing here reaches outside: what would (http.send, DNS) is refused when a module is loaded.
"""

from collections.abc import Iterable

from lictor.errors import ModuleError
from lictor.lang.wasm.rego_builtins.hashes import HASH_BUILTINS
from lictor.lang.wasm.rego_builtins.network import NETWORK_BUILTINS
from lictor.lang.wasm.rego_builtins.numbers import NUMBER_BUILTINS
from lictor.lang.wasm.rego_builtins.operands import BuiltinRun, Function, Functions
from lictor.lang.wasm.rego_builtins.structures import STRUCTURE_BUILTINS
from lictor.lang.wasm.rego_builtins.templates import TEMPLATE_BUILTINS
from lictor.lang.wasm.rego_builtins.texts import TEXT_BUILTINS, YAML_BUILTINS
from lictor.lang.wasm.rego_builtins.times import TIME_BUILTINS
from lictor.lang.wasm.rego_builtins.tokens import TOKEN_BUILTINS

__all__ = ["STRICT", "BuiltinRun", "Function", "find_builtins", "list_builtins"]

_OFFERED: Functions = {
    **TEXT_BUILTINS,
    **TEMPLATE_BUILTINS,
    **STRUCTURE_BUILTINS,
    **NUMBER_BUILTINS,
    **TIME_BUILTINS,
    **NETWORK_BUILTINS,
    **HASH_BUILTINS,
    **TOKEN_BUILTINS,
    **YAML_BUILTINS,
}
_REACH_OUTSIDE = frozenset(("http.send", "net.lookup_ip_addr"))
# Kubewarden has these too, and a request for which one of them fails is refused there. OPA would
# call the value undefined, and the rule that needs it would say nothing.
STRICT = frozenset(
    (
        "base64url.encode_no_pad", "glob.quote_meta", "hex.decode", "hex.encode", "json.is_valid",
        "json.patch", "regex.find_n", "regex.split", "regex.template_match", "semver.compare",
        "semver.is_valid", "sprintf", "time.now_ns", "trace", "urlquery.decode",
        "urlquery.decode_object", "urlquery.encode", "urlquery.encode_object", "yaml.is_valid",
        "yaml.marshal", "yaml.unmarshal",
    )
)  # fmt: skip


def list_builtins() -> list[str]:
    """The names of all that are offered."""
    return sorted(_OFFERED)


def find_builtins(names: Iterable[str]) -> Functions:
    """The functions of these names; ModuleError that tells all that are not offered."""
    wanted = sorted(names)
    outside = [name for name in wanted if name in _REACH_OUTSIDE]
    if outside:
        raise ModuleError(
            f"the policy wants to reach outside of the cluster with {', '.join(outside)}, "
            "which no policy in Wasm may"
        )
    missing = [name for name in wanted if name not in _OFFERED]
    if missing:
        raise ModuleError(f"the policy needs builtins that are not offered: {', '.join(missing)}")
    return {name: _OFFERED[name] for name in wanted}
