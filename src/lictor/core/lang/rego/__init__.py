"""OPA's builtins that its Wasm leaves to the host, with OPA's names and values.

Nothing here uses the network: builtins that would (http.send, DNS) are refused at load time.
"""

from collections.abc import Iterable

from lictor.core.errors import ModuleError
from lictor.core.lang.rego.hashes import HASH_BUILTINS
from lictor.core.lang.rego.network import NETWORK_BUILTINS
from lictor.core.lang.rego.numbers import NUMBER_BUILTINS
from lictor.core.lang.rego.operands import BuiltinRun, Function, Functions
from lictor.core.lang.rego.structures import STRUCTURE_BUILTINS
from lictor.core.lang.rego.templates import TEMPLATE_BUILTINS
from lictor.core.lang.rego.texts import TEXT_BUILTINS, YAML_BUILTINS
from lictor.core.lang.rego.times import TIME_BUILTINS
from lictor.core.lang.rego.tokens import TOKEN_BUILTINS

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
# Kubewarden has these too, and denies a request for which one of them fails. In OPA the value would
# be undefined, and the rule that needs it would have no result.
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
    """The names of all supported builtins."""
    return sorted(_OFFERED)


def find_builtins(names: Iterable[str]) -> Functions:
    """The functions of these names; raises ModuleError with all unsupported ones."""
    wanted = sorted(names)
    outside = [name for name in wanted if name in _REACH_OUTSIDE]
    if outside:
        raise ModuleError(
            f"the policy uses the network with {', '.join(outside)}, which Wasm policies must not"
        )
    missing = [name for name in wanted if name not in _OFFERED]
    if missing:
        raise ModuleError(f"the policy needs unsupported builtins: {', '.join(missing)}")
    return {name: _OFFERED[name] for name in wanted}
