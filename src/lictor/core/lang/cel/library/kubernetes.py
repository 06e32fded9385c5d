"""Kubernetes' functions of quantities, versions, URLs and regular expressions."""

import re
from collections.abc import Callable
from typing import ClassVar

from lictor.core.lang.cel.faults import CelError, no_overload
from lictor.core.lang.cel.functions import Implementation, Library, succeeds
from lictor.core.lang.cel.library.standard import read_regex
from lictor.core.lang.cel.values import INT_MAX, INT_MIN, Opaque, StrictOpaque, Value
from lictor.core.lang.quantity import Notation, Quantity, parse_quantity
from lictor.core.lang.regex import Regex, RegexMatch
from lictor.core.lang.semver import SemVer, parse_version
from lictor.core.lang.url import GoUrl, parse_url


class QuantityValue(Opaque):
    """An amount; `is_result` of a computation, which Kubernetes compares on the left side only."""

    quantity: Quantity
    is_result: bool = False
    # Beyond 64 bits in Kubernetes.
    is_big: bool = False
    type_name: ClassVar[str] = "kubernetes.Quantity"

    def equals(self, other: Value) -> bool:
        if type(other) is not QuantityValue or other.is_result:
            raise no_overload()
        return self.quantity == other.quantity


def _parse_quantity(text: str) -> QuantityValue:
    try:
        return QuantityValue(parse_quantity(text), is_big=_is_big(text))
    except ValueError as error:
        raise CelError(str(error)) from None


def _is_big(text: str) -> bool:
    """Whether Kubernetes reads an amount into more than 64 bits."""
    digits = text.lstrip("+-").lstrip("0")
    number = re.match(r"[0-9]*(?:\.[0-9]*)?", digits)
    count = len(number[0].replace(".", "")) if number else 0
    return count > _INT64_DIGITS - (_BINARY_LOSS if text.endswith("i") else 0)


_INT64_DIGITS, _BINARY_LOSS = 18, 4


def _whole(value: QuantityValue) -> int | None:
    """The amount as an integer, where Kubernetes gives one."""
    quantity = value.quantity
    if not quantity.mantissa and quantity.scale <= 0:
        return 0
    if value.is_big or quantity.scale > 0 or quantity.scale < -18:
        return None
    number = quantity.mantissa * int(10**-quantity.scale)
    return number if INT_MIN <= number <= INT_MAX else None


def _as_integer(value: QuantityValue) -> int:
    number = _whole(value)
    if number is None:
        raise CelError("cannot convert value to integer")
    return number


def _sign(value: QuantityValue) -> int:
    return (value.quantity.mantissa > 0) - (value.quantity.mantissa < 0)


def _compare_quantities(left: QuantityValue, right: QuantityValue) -> int:
    return (left.quantity > right.quantity) - (left.quantity < right.quantity)


def _combine(left: QuantityValue, right: QuantityValue | int, sign: int) -> QuantityValue:
    """The sum keeps the decimals of the other operand where one is zero."""
    other = Quantity(right, 0, Notation.EXPONENT) if isinstance(right, int) else right.quantity
    first = left.quantity
    if not other.mantissa:
        made = first
    elif not first.mantissa:
        made = Quantity(sign * other.mantissa, other.scale, other.notation)
    else:
        made = first.add(other) if sign > 0 else first.subtract(other)
    is_big = left.is_big or (isinstance(right, QuantityValue) and right.is_big)
    is_big = is_big or not INT_MIN <= made.mantissa <= INT_MAX
    return QuantityValue(made, is_result=True, is_big=is_big)


def _add(left: QuantityValue, right: QuantityValue | int) -> QuantityValue:
    return _combine(left, right, 1)


def _subtract(left: QuantityValue, right: QuantityValue | int) -> QuantityValue:
    return _combine(left, right, -1)


def _changing(combine: Callable[[QuantityValue, Value], QuantityValue]) -> Implementation:
    """Before Kubernetes 1.37, amounts beyond 64 bits were changed by add() and sub()."""

    def run(left: QuantityValue, right: QuantityValue | int) -> QuantityValue:
        made = combine(left, right)
        if left.is_big:
            left.quantity = made.quantity
            made.is_big = True
        return made

    return run


_Q = "kubernetes.Quantity"
QUANTITIES = Library(
    (f"quantity(string) -> {_Q}", _parse_quantity),
    ("isQuantity(string) -> bool", succeeds(_parse_quantity)),
    (f"sign({_Q}) -> int", _sign),
    (f"{_Q}::isGreaterThan({_Q}) -> bool", lambda a, b: a.quantity > b.quantity),
    (f"{_Q}::isLessThan({_Q}) -> bool", lambda a, b: a.quantity < b.quantity),
    (f"{_Q}::compareTo({_Q}) -> int", _compare_quantities),
    (f"{_Q}::asApproximateFloat() -> double", lambda value: value.quantity.approximate()),
    (f"{_Q}::asInteger() -> int", _as_integer),
    (f"{_Q}::isInteger() -> bool", lambda value: _whole(value) is not None),
    (f"{_Q}::add({_Q}) -> {_Q}", _add),
    (f"{_Q}::add(int) -> {_Q}", _add),
    (f"{_Q}::sub({_Q}) -> {_Q}", _subtract),
    (f"{_Q}::sub(int) -> {_Q}", _subtract),
)

CHANGING_QUANTITIES = Library(
    *[(f"{_Q}::add({kind}) -> {_Q}", _changing(_add)) for kind in (_Q, "int")],
    *[(f"{_Q}::sub({kind}) -> {_Q}", _changing(_subtract)) for kind in (_Q, "int")],
)


# -- versions


class SemverValue(StrictOpaque):
    """A semantic version."""

    version: SemVer
    type_name: ClassVar[str] = "kubernetes.Semver"


def _parse_semver(text: str, normalizes: bool = False) -> SemverValue:  # noqa: FBT001, FBT002 - CEL has no keywords
    try:
        return SemverValue(parse_version(_normalize(text) if normalizes else text))
    except ValueError as error:
        raise CelError(str(error)) from None


def _normalize(text: str) -> str:
    parts = [_trim_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(mark in parts[-1] for mark in "+-"):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _trim_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    trimmed = part.lstrip("0")
    return trimmed if trimmed and trimmed[0] in "0123456789" else f"0{trimmed}"


def _compare_versions(left: SemverValue, right: SemverValue) -> int:
    return (left.version > right.version) - (left.version < right.version)


def _number(value: SemverValue, index: int) -> int:
    number: int = value.version[index]  # type: ignore[assignment]  # the first three are numbers
    # Go turns an unsigned into a signed number without a check.
    return number if number <= INT_MAX else number - (1 << 64)


_S = "kubernetes.Semver"
SEMVERS = Library(
    (f"semver(string) -> {_S}", _parse_semver),
    ("isSemver(string) -> bool", succeeds(_parse_semver)),
    (f"{_S}::isGreaterThan({_S}) -> bool", lambda a, b: a.version > b.version),
    (f"{_S}::isLessThan({_S}) -> bool", lambda a, b: a.version < b.version),
    (f"{_S}::compareTo({_S}) -> int", _compare_versions),
    (f"{_S}::major() -> int", lambda value: _number(value, 0)),
    (f"{_S}::minor() -> int", lambda value: _number(value, 1)),
    (f"{_S}::patch() -> int", lambda value: _number(value, 2)),
    (f"semver(string, bool) -> {_S}", _parse_semver),
    ("isSemver(string, bool) -> bool", succeeds(_parse_semver)),
)


# -- URLs


class UrlValue(Opaque):
    """A URL in its parts."""

    url: GoUrl
    type_name: ClassVar[str] = "kubernetes.URL"

    def equals(self, other: Value) -> bool:
        if type(other) is not UrlValue:
            raise no_overload()
        return str(self.url) == str(other.url)


def _parse_url(text: str) -> UrlValue:
    try:
        return UrlValue(parse_url(text))
    except ValueError as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from None


_U = "kubernetes.URL"
URLS = Library(
    (f"url(string) -> {_U}", _parse_url),
    (f"{_U}::getScheme() -> string", lambda value: value.url.scheme),
    (f"{_U}::getHost() -> string", lambda value: value.url.host),
    (f"{_U}::getHostname() -> string", lambda value: value.url.hostname),
    (f"{_U}::getPort() -> string", lambda value: value.url.port),
    (f"{_U}::getEscapedPath() -> string", lambda value: value.url.path),
    (f"{_U}::getQuery() -> map(string, list(string))", lambda value: value.url.parse_query()),
    ("isURL(string) -> bool", succeeds(_parse_url)),
)


# -- regular expressions


def _find(text: str, pattern: str) -> str:
    found = _compile(pattern).search(text)
    return (found.group() or "") if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = list_matches(_compile(pattern), text)
    return [match.group() or "" for match in (found if limit < 0 else found[:limit])]


def list_matches(regex: Regex, text: str) -> list[RegexMatch]:
    """As Go finds them: an empty match that touches the one before does not count."""
    made: list[RegexMatch] = []
    end = -1
    for found in regex.finditer(text):
        if found.end() > found.start() or found.start() != end:
            made.append(found)
        end = found.end()
    return made


def _compile(pattern: str) -> Regex:
    try:
        return read_regex(pattern)
    except CelError as error:
        raise CelError(f"Illegal regex: {error}") from None


REGEX = Library(
    ("string::find(string) -> string", _find),
    ("string::findAll(string) -> list(string)", _find_all),
    ("string::findAll(string, int) -> list(string)", _find_all),
)
