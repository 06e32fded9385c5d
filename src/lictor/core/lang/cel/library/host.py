"""Functions that need the outside: methods of the variables `resource`, `http` and so on.

They call `host.current_host`.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, ParamSpec, TypeAlias, TypeVar

from msgspec.structs import replace

from lictor.core.errors import FunctionError, LookupFailedError
from lictor.core.lang.cel.faults import CelError, no_overload
from lictor.core.lang.cel.functions import Implementation, Library, outside
from lictor.core.lang.cel.host import AuthorizerCheck, AuthorizerDecision, current_host
from lictor.core.lang.cel.library.formats import FORMATS
from lictor.core.lang.cel.library.kyverno import Namespace, with_doubles
from lictor.core.lang.cel.library.plain import emit, take_in
from lictor.core.lang.cel.values import NANOSECONDS, Opaque, Timestamp, Value
from lictor.core.lang.random_text import make_random_text
from lictor.core.raw import Json, JsonObject

Rows: TypeAlias = list[tuple[str, Implementation]]
P = ParamSpec("P")
Returned = TypeVar("Returned")


def spell(receiver: str, name: str, signature: str, call: Implementation) -> Rows:
    """`receiver.name(…)` in both spellings, `get` and the older `Get`."""
    arguments, _, result = signature.partition(" -> ")
    return [
        (f"{receiver}::{spelling}({arguments}) -> {result}", outside(call))
        for spelling in (name, name[0].upper() + name[1:])
    ]


def method(receiver: str, name: str, signature: str, call: Callable[..., Json]) -> Rows:
    """A method in both spellings that takes and returns JSON."""

    def run(_: Namespace, *args: Value) -> Value:
        return take_in(call(*map(emit_argument, args)))

    return spell(receiver, name, signature, run)


def emit_argument(value: Value) -> Any:
    """A text or JSON as it is; values of a library stay themselves."""
    return value if type(value) is str or hasattr(value, "is_host_value") else emit(value)


def _function(signature: str, call: Callable[..., Json]) -> tuple[str, Implementation]:
    return signature, outside(lambda *args: take_in(call(*map(emit_argument, args))))


def prefix_errors(
    words: str, call: Callable[P, Returned], /, *args: P.args, **kwargs: P.kwargs
) -> Returned:
    """The result of a host function; a failure names the operation."""
    try:
        return call(*args, **kwargs)
    except LookupFailedError as error:
        raise type(error)(f"{words}: {error}") from error


# -- time, random texts and certificates


def _now() -> Timestamp:
    moment = current_host.get().now()
    return Timestamp(int(moment.timestamp()) * NANOSECONDS + moment.microsecond * 1000)


def _make_random(pattern: str = "[0-9a-z]{8}") -> str:
    if not pattern:
        return ""
    try:
        return make_random_text(pattern, current_host.get().choose)
    except ValueError as error:
        raise FunctionError(str(error)) from None


CLOCK = Library(
    ("time.now() -> timestamp", _now),
    *[
        (f"{name}({arguments}) -> string", outside(_make_random))
        for name in ("random", "random.random")
        for arguments in ("", "string")
    ],
)
# The fields that Kyverno shows of a certificate; of a request for one it shows all.
_SHOWN = (
    "Raw", "RawTBSCertificate", "RawSubjectPublicKeyInfo", "RawSubject", "RawIssuer", "Signature",
    "PublicKeyAlgorithm", "PublicKey", "SerialNumber", "Issuer", "NotBefore", "NotAfter",
    "KeyUsage",
    "Extensions", "ExtraExtensions", "ExtKeyUsage", "BasicConstraintsValid", "IsCA", "MaxPathLen",
    "MaxPathLenZero", "AuthorityKeyId", "OCSPServer", "IssuingCertificateURL", "DNSNames",
    "EmailAddresses", "IPAddresses", "PermittedDNSDomainsCritical", "PermittedDNSDomains",
    "ExcludedDNSDomains", "PermittedIPRanges", "ExcludedIPRanges", "PermittedEmailAddresses",
    "ExcludedEmailAddresses", "PermittedURIDomains", "ExcludedURIDomains", "CRLDistributionPoints",
    "PolicyIdentifiers",
)  # fmt: skip


def _decode_certificate(text: str) -> JsonObject:
    from lictor.core.crypto.certificate import decode_certificate  # cryptography is slow to load

    try:
        decoded = decode_certificate(text)
    except ValueError as error:
        raise FunctionError(str(error)) from None
    if "NotBefore" in decoded:
        decoded = {name: decoded.get(name) for name in _SHOWN}
        decoded["SerialNumber"] = _read_serial(decoded["Raw"])
    doubled: JsonObject = with_doubles(decoded)
    return doubled


def _read_serial(raw: str) -> int:
    """The lower 64 bits, signed: what Go leaves of a long number."""
    from cryptography.x509 import load_der_x509_certificate

    low = load_der_x509_certificate(base64.b64decode(raw)).serial_number & (1 << 64) - 1
    return low - (1 << 64) if low >> 63 else low


CERTIFICATES = Library(("x509.decode(string) -> dyn", outside(_decode_certificate)))


# -- images


def _get_metadata(reference: str) -> JsonObject:
    return prefix_errors("failed to get image data", current_host.get().image_data, reference)


IMAGE_DATA = Library(*method("imagedata.Context", "getMetadata", "string -> dyn", _get_metadata))
VERIFICATION = Library(
    _function(
        "verifyImageSignatures(string, list(dyn)) -> int",
        lambda *args: current_host.get().verify_signatures(*args),
    ),
    _function(
        "verifyAttestationSignatures(string, string, list(dyn)) -> int",
        lambda *args: current_host.get().verify_attestations(*args),
    ),
    _function(
        "extractPayload(string, string) -> dyn",
        lambda *args: current_host.get().attestation_payload(*args),
    ),
    _function(
        "getImageData(string) -> dyn",
        lambda image: prefix_errors(
            "failed to get imagedata", current_host.get().image_data, image
        ),
    ),
)


class _Stage(Opaque):
    check: AuthorizerCheck

    def equals(self, _: Value) -> bool:
        raise no_overload()


class CelAuthorizer(_Stage):
    """The value of `authorizer`."""

    type_name: ClassVar[str] = "kubernetes.authorization.Authorizer"


class _PathCheck(_Stage):
    type_name: ClassVar[str] = "kubernetes.authorization.PathCheck"


class _GroupCheck(_Stage):
    type_name: ClassVar[str] = "kubernetes.authorization.GroupCheck"


class ResourceCheck(_Stage):
    """The value of `authorizer.requestResource`, and of checks of resources."""

    type_name: ClassVar[str] = "kubernetes.authorization.ResourceCheck"


class _DecisionValue(Opaque):
    decision: AuthorizerDecision
    type_name: ClassVar[str] = "kubernetes.authorization.Decision"


def make_authorizer(user: str = "", groups: Sequence[str] = ()) -> CelAuthorizer:
    """The value of `authorizer`; the caller may be unknown."""
    return CelAuthorizer(AuthorizerCheck("", user=user, groups=tuple(groups)))


def request_resource(caller: CelAuthorizer, /, **fields: str) -> ResourceCheck:
    """The value of `authorizer.requestResource`: a check of what the request itself is about.

    `fields` has group, resource, subresource, namespace and name.
    """
    return ResourceCheck(replace(caller.check, **fields))


def _require(text: str, name: str) -> str:
    if not text.strip():
        raise CelError(f"{name} must not be empty")
    return text


def _as_service_account(stage: CelAuthorizer, namespace: str, name: str) -> CelAuthorizer:
    if FORMATS["dns1123Subdomain"](name):
        raise CelError("Invalid service account name")
    if FORMATS["dns1123Label"](namespace):
        raise CelError("Invalid service account namespace")
    return CelAuthorizer(replace(stage.check, service_account=(namespace, name)))


def _decide(stage: _Stage, verb: str) -> _DecisionValue:
    return _DecisionValue(current_host.get().authorize(replace(stage.check, verb=verb)))


def _set(field: str) -> Implementation:
    def run(stage: ResourceCheck, text: str) -> ResourceCheck:
        return ResourceCheck(replace(stage.check, **{field: text}))

    return run


def _path(stage: CelAuthorizer, path: str) -> _PathCheck:
    return _PathCheck(replace(stage.check, path=_require(path, "path")))


def _group(stage: CelAuthorizer, group: str) -> _GroupCheck:
    return _GroupCheck(replace(stage.check, group=group))


def _resource(stage: _GroupCheck, resource: str) -> ResourceCheck:
    check = replace(stage.check, resource=_require(resource, "resource"))
    return ResourceCheck(check)


_A = "kubernetes.authorization."
AUTHORIZATION = Library(
    (f"{_A}Authorizer::path(string) -> {_A}PathCheck", _path),
    (f"{_A}Authorizer::group(string) -> {_A}GroupCheck", _group),
    (f"{_A}Authorizer::serviceAccount(string, string) -> {_A}Authorizer", _as_service_account),
    (f"{_A}GroupCheck::resource(string) -> {_A}ResourceCheck", _resource),
    (f"{_A}ResourceCheck::subresource(string) -> {_A}ResourceCheck", _set("subresource")),
    (f"{_A}ResourceCheck::namespace(string) -> {_A}ResourceCheck", _set("namespace")),
    (f"{_A}ResourceCheck::name(string) -> {_A}ResourceCheck", _set("name")),
    (f"{_A}PathCheck::check(string) -> {_A}Decision", outside(_decide)),
    (f"{_A}ResourceCheck::check(string) -> {_A}Decision", outside(_decide)),
    (f"{_A}Decision::errored() -> bool", lambda value: bool(value.decision.error)),
    (f"{_A}Decision::error() -> string", lambda value: value.decision.error),
    (f"{_A}Decision::allowed() -> bool", lambda value: value.decision.allowed),
    (f"{_A}Decision::reason() -> string", lambda value: value.decision.reason),
)
SELECTORS = Library(
    (f"{_A}ResourceCheck::fieldSelector(string) -> {_A}ResourceCheck", _set("field_selector")),
    (f"{_A}ResourceCheck::labelSelector(string) -> {_A}ResourceCheck", _set("label_selector")),
)
