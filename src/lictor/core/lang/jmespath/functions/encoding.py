"""Functions that decode, encode, hash, parse and generate text.

Few policies call these, and their dependencies are slow to import: the functions import them.
"""

import re
from base64 import b64decode, b64encode

from lictor.core.lang.go_number import decode_json, settle_number
from lictor.core.lang.image_reference import parse_image
from lictor.core.lang.jmespath.functions.spec import FunctionSpec, Handler, JmesPathHost, define
from lictor.core.raw import Json, JsonObject

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_BROKEN_BYTE = re.compile("[\udc80-\udcff]")


def _base64_decode(text: str) -> str:
    plain = text.replace("\r", "").replace("\n", "")
    if not _BASE64.fullmatch(plain):
        raise ValueError("illegal base64 data")
    # Go prints one replacement character for each invalid byte.
    decoded = b64decode(plain).decode("utf-8", "surrogateescape")
    return _BROKEN_BYTE.sub("\ufffd", decoded)


def _is_external_url(host: JmesPathHost, url: str) -> bool:
    from lictor.core.lang.url import is_external_url

    return is_external_url(url, host.resolve)


def _random(host: JmesPathHost, pattern: str) -> str:
    from lictor.core.lang.random_text import make_random_text

    return make_random_text(pattern, host.choose)


def _parse_yaml(text: str) -> Json:
    from lictor.core.lang.yaml.build import parse_yaml_text

    return parse_yaml_text(text)


def _decode_certificate(text: str) -> JsonObject:
    from lictor.core.crypto.certificate import decode_certificate

    decoded = decode_certificate(text)
    if "SerialNumber" in decoded:
        decoded["SerialNumber"] = settle_number(decoded["SerialNumber"])
    return decoded


def _digest(algorithm: str) -> Handler:
    def digest(text: str) -> Json:

        import hashlib

        return hashlib.new(algorithm, text.encode(), usedforsecurity=False).hexdigest()

    return digest


ENCODING: tuple[FunctionSpec, ...] = (
    define("base64_decode(string) string", _base64_decode, "decodes base64"),
    define(
        "base64_encode(string) string",
        lambda text: b64encode(text.encode()).decode(),
        "encodes a text in base64",
    ),
    define(
        "image_normalize(string) string",
        lambda text: parse_image(text).reference,
        "completes an image's name with registry and tag",
    ),
    define(
        "is_external_url(string) bool",
        _is_external_url,
        "returns whether the host of a URL is outside of private and loopback networks",
        pure=False,
    ),
    define("md5(string) string", _digest("md5"), "returns the MD5 digest in hexadecimal digits"),
    define("parse_json(string) any", decode_json, "parses JSON"),
    define("parse_yaml(string) any", _parse_yaml, "parses YAML"),
    define(
        "random(string) string",
        _random,
        "generates a text that matches a regular expression",
        pure=False,
    ),
    define(
        "sha1(string) string", _digest("sha1"), "returns the SHA-1 digest in hexadecimal digits"
    ),
    define(
        "sha256(string) string",
        _digest("sha256"),
        "returns the SHA-256 digest in hexadecimal digits",
    ),
    define(
        "x509_decode(string) object",
        _decode_certificate,
        "parses a certificate or a certificate request in PEM, with an RSA key",
    ),
)
