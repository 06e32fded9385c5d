"""Kyverno's functions of values: JSON, YAML, hashes, time, random texts, gzip, certificates."""

import base64
import math
import struct
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import md5, sha1, sha256

import orjson

from lictor.core.errors import FunctionError
from lictor.core.lang.cel.host import current_host
from lictor.core.lang.cel.types import function
from lictor.core.lang.cel.values import emit
from lictor.core.lang.go_number import dump_go_json
from lictor.core.lang.json_type import name_cel_type
from lictor.core.lang.random_text import make_random_text
from lictor.core.lang.yaml.build import parse_yaml_text
from lictor.core.raw import Json, JsonObject

_ACCOUNT_PREFIX = "system:serviceaccount:"


def _parse_account(username: str) -> dict[str, str]:
    namespace, colon, name = username.removeprefix(_ACCOUNT_PREFIX).partition(":")
    if not colon or not username.startswith(_ACCOUNT_PREFIX):
        namespace = name = ""
    return {"Name": name, "Namespace": namespace}


USER_OVERLOADS = tuple(
    function(f"{prefix}parseServiceAccount", "string -> map<string,string>", _parse_account)
    for prefix in ("", "user.")
)


# Of a certificate, Kyverno tells these; of a request, all.
_TOLD_FIELDS = (
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
        decoded = {name: decoded.get(name) for name in _TOLD_FIELDS}
        decoded["SerialNumber"] = _read_serial(decoded["Raw"])
    doubled: JsonObject = with_doubles(decoded)
    return doubled


def _read_serial(raw: str) -> int:
    """The lower 64 bits, signed: what Go leaves of a long number."""
    from cryptography.x509 import load_der_x509_certificate

    low = load_der_x509_certificate(base64.b64decode(raw)).serial_number & (1 << 64) - 1
    return low - (1 << 64) if low >> 63 else low


CERTIFICATE_OVERLOADS = (function("x509.decode", "string -> dyn", _decode_certificate),)


_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
# A few kilobytes can unpack to gigabytes.
_MOST_UNPACKED = 16 << 20


def _compress(value: Json) -> bytes:
    if not isinstance(value, str):
        raise FunctionError(f"unsupported type conversion from '{name_cel_type(value)}' to string")
    data = value.encode()
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(data) + packer.flush()
    return _GZIP_HEADER + packed + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _decompress(data: bytearray) -> str:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = unpacker.decompress(bytes(data), _MOST_UNPACKED)
    except zlib.error:
        raise FunctionError("gzip: invalid header") from None
    if len(text) == _MOST_UNPACKED:
        raise FunctionError("gzip: the text is too large")
    if not unpacker.eof:
        raise FunctionError("unexpected EOF")
    return text.decode("utf-8", "replace")


GZIP_OVERLOADS = (
    function("gzip.compress", "dyn -> bytes", _compress),
    function("gzip.decompress", "bytes -> string", _decompress),
)


def _to_map(keys: list[Json], values: list[Json], key_field: str, value_field: str) -> JsonObject:
    if len(keys) != len(values):
        raise FunctionError(
            "listObjToMap must take lists of equal length. "
            f"list1: {len(keys)}, list2: {len(values)}"
        )
    return {
        _read_key(key, key_field): _read_fields(value).get(value_field)
        for key, value in zip(keys, values, strict=True)
    }


def _read_key(entry: Json, field: str) -> str:
    key = _read_fields(entry).get(field)
    if not isinstance(key, str):
        raise FunctionError(
            "the passed key name cannot be handled as a string in the key object list"
        )
    return key


def _read_fields(entry: Json) -> JsonObject:
    if not isinstance(entry, dict):
        raise FunctionError("object cannot be handled as a map string to any")
    return entry


TRANSFORM_OVERLOADS = tuple(
    function(name, "list<dyn>, list<dyn>, string, string -> map<dyn,dyn>", _to_map)
    for name in ("listObjToMap", "transform.listObjToMap")
)


_MICROSECOND = timedelta(microseconds=1)
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


def _now() -> datetime:
    return current_host.get().now()


def _to_cron(moment: datetime) -> str:
    weekday = moment.isoweekday() % 7
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} {weekday}"


def _truncate(moment: datetime, step: timedelta) -> datetime:
    if step <= timedelta():
        return moment
    # As Go counts: from the beginning of the first year, not from 1970.
    since = (moment - _BEGINNING) // _MICROSECOND
    return (
        moment - (since % (step // _MICROSECOND)) * _MICROSECOND if step >= _MICROSECOND else moment
    )


TIME_OVERLOADS = (
    function("time.now", "-> timestamp", _now),
    function("time.toCron", "timestamp -> string", _to_cron),
    function("time.truncate", "timestamp, duration -> timestamp", _truncate),
)


def _make_random(pattern: str = "[0-9a-z]{8}") -> str:
    if not pattern:
        return ""
    try:
        return make_random_text(pattern, current_host.get().choose)
    except ValueError as error:
        raise FunctionError(str(error)) from None


RANDOM_OVERLOADS = tuple(
    function(name, signature, _make_random)
    for name in ("random", "random.random")
    for signature in ("-> string", "string -> string")
)


def _round(number: float, digits: int) -> float:
    try:
        shift = 10.0**digits
    except OverflowError:
        shift = math.inf
    shifted = number * shift
    if not math.isfinite(shifted):
        return shifted / shift
    rounded = math.copysign(math.floor(abs(shifted) + 0.5), shifted)
    # Just below a half, adding a half already rounds up.
    if abs(shifted) + 0.5 == abs(rounded) and abs(shifted) - math.floor(abs(shifted)) < 0.5:
        rounded = math.copysign(math.floor(abs(shifted)), shifted)
    return rounded / shift if shift else math.nan


ROUND_OVERLOADS = (function("math.round", "double, int -> double", _round),)


def _hexadecimal(algorithm: Callable[..., Json]) -> Callable[[str], str]:
    return lambda text: algorithm(text.encode(), usedforsecurity=False).hexdigest()


HASH_OVERLOADS = tuple(
    function(f"{prefix}{name}", "string -> string", _hexadecimal(algorithm))
    for prefix in ("", "hash.")
    for name, algorithm in (("sha1", sha1), ("sha256", sha256), ("md5", md5))
)


def _marshal(value: Json) -> str:
    if isinstance(value, timedelta):
        return str(value // timedelta(microseconds=1) * 1000)
    return dump_go_json(
        emit(value) if isinstance(value, dict | list | bytearray | datetime) else value
    )


def _unmarshal(text: Json) -> Json:
    if not isinstance(text, str):
        raise FunctionError(f"unsupported type conversion from '{name_cel_type(text)}' to string")
    try:
        return with_doubles(orjson.loads(text))
    except (ValueError, RecursionError) as error:
        if not text.strip():
            raise FunctionError("unexpected end of JSON input") from None
        raise FunctionError(f"invalid JSON: {error}") from None


def _parse_yaml(text: str) -> Json:
    try:
        return with_doubles(parse_yaml_text(text))
    except ValueError as error:
        raise FunctionError(f"error converting YAML to JSON: {error}") from None


def with_doubles(value: Json) -> Json:
    """The value with all its numbers as doubles, as Go's decoder reads JSON."""
    if isinstance(value, dict):
        return {key: with_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


DOCUMENT_OVERLOADS = (
    # The spelling of policies on web requests.
    function("json.Unmarshal", "dyn -> dyn", _unmarshal),
    function("json.marshal", "dyn -> string", _marshal),
    function("json.unmarshal", "dyn -> dyn", _unmarshal),
    function("yaml.parse", "string -> dyn", _parse_yaml),
)
