"""Functions that need the outside: each is a method of an object that the host passes in.

The variables `resource`, `http`, `globalContext`, `image` and `generator` are such objects; the
functions without a receiver take the callables that `build_host_library` is given.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

from cel2.faults import CelError
from cel2.functions import Implementation, Library
from cel2.types import Type, opaque_type
from cel2.values import Opaque, Timestamp, Value

HostFunction: TypeAlias = Callable[..., Value]


class HostObject(Opaque):
    """A value whose methods are the host's callables, by name; `http.Context` and the like."""

    type_name: str  # type: ignore[misc]  # each has a type of its own
    functions: Mapping[str, HostFunction]


class GroupVersionResource(Opaque):
    """The value of resource.toGVR()."""

    group: str
    version: str
    resource: str
    type_name: ClassVar[str] = "schema.GroupVersionResource"


def _method(name: str) -> Implementation:
    def run(target: HostObject, *args: Value) -> Value:
        found = target.functions.get(name)
        if found is None:
            raise CelError(f"{target.type_name}: {name} is not available")
        return found(*args)

    return run


_MAP, _LABELS, _GVR = "map(string, dyn)", "map(string, string)", "schema.GroupVersionResource"
_RESOURCE = "resource.Context"
_CLUSTER_SIGNATURES = {
    "list": (
        f"string, string, string -> {_MAP}", f"string, string, string, {_LABELS} -> {_MAP}",
        f"{_GVR}, string -> {_MAP}", f"{_GVR}, string, {_LABELS} -> {_MAP}",
    ),
    "get": (f"string, string, string, string -> {_MAP}", f"{_GVR}, string, string -> {_MAP}"),
    "post": (f"string, string, string, {_MAP} -> {_MAP}", f"string, string, {_MAP} -> {_MAP}"),
    "toGVR": (f"string, string -> {_GVR}",),
}  # fmt: skip
# In a namespaced policy the namespace is not an argument.
_NAMESPACED_SIGNATURES = {
    "list": (
        f"string, string -> {_MAP}", f"string, string, {_LABELS} -> {_MAP}",
        f"{_GVR} -> {_MAP}", f"{_GVR}, {_LABELS} -> {_MAP}",
    ),
    "get": (f"string, string, string -> {_MAP}", f"{_GVR}, string -> {_MAP}"),
    "post": (f"string, string, {_MAP} -> {_MAP}",),
    "toGVR": (f"string, string -> {_GVR}",),
}  # fmt: skip
_HTTP_SIGNATURES = {
    "get": ("string -> dyn", f"string, {_LABELS} -> dyn"),
    "post": ("string, dyn -> dyn", f"string, dyn, {_LABELS} -> dyn"),
    "client": ("string -> http.Context",),
}


def _rows(
    receiver: str, signatures: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, Implementation]]:
    """Each function in both spellings: `get` and the older `Get`."""
    rows = []
    for name, lines in signatures.items():
        for spelling in (name[0].upper() + name[1:], name):
            for line in lines:
                arguments, _, result = line.partition(" -> ")
                rows.append((f"{receiver}::{spelling}({arguments}) -> {result}", _method(name)))
    return rows


_HTTP = Library(*_rows("http.Context", _HTTP_SIGNATURES))
_CONTEXT = Library(
    *_rows("globalcontext.Context", {"get": ("string -> dyn", "string, string -> dyn")})
)
_IMAGE_DATA = Library(*_rows("imagedata.Context", {"getMetadata": ("string -> dyn",)}))


def list_host_libraries(*, is_namespaced: bool) -> list[Library]:
    """The functions of `resource`, `http`, `globalContext`, `image` and `generator`."""
    signatures = _NAMESPACED_SIGNATURES if is_namespaced else _CLUSTER_SIGNATURES
    namespace = "" if is_namespaced else "string, "
    generator = _rows("generator.Context", {"apply": (f"{namespace}list({_MAP}) -> bool",)})
    resources = _rows(_RESOURCE, signatures)
    return [Library(*resources), _HTTP, _CONTEXT, _IMAGE_DATA, Library(*generator)]


# The variables through which expressions reach these functions.
HOST_VARIABLES: dict[str, Type] = {
    "resource": opaque_type(_RESOURCE),
    "http": opaque_type("http.Context"),
    "globalContext": opaque_type("globalcontext.Context"),
    "image": opaque_type("imagedata.Context"),
    "generator": opaque_type("generator.Context"),
}


def build_host_library(functions: Mapping[str, HostFunction]) -> Library:
    """Functions without a receiver: time.now, random, x509.decode, verification of images."""

    def run(name: str) -> Implementation:
        def call(*args: Value) -> Value:
            if name not in functions:
                raise CelError(f"{name} is not available")
            return functions[name](*args)

        return call

    now = run("time.now")
    return Library(
        ("time.now() -> timestamp", lambda: Timestamp(now())),
        *[
            (f"{name}({arguments}) -> string", run("random"))
            for name in ("random", "random.random")
            for arguments in ("", "string")
        ],
        ("x509.decode(string) -> dyn", run("x509.decode")),
    )


def build_verification_library(functions: Mapping[str, HostFunction]) -> Library:
    """The functions of image validating policies, by their names."""
    return Library(*[(signature, functions[signature.partition("(")[0]]) for signature in _VERIFY])


_VERIFY = (
    "verifyImageSignatures(string, list(dyn)) -> int",
    "verifyAttestationSignatures(string, string, list(dyn)) -> int",
    "getImageData(string) -> dyn",
    "extractPayload(string, string) -> dyn",
)
