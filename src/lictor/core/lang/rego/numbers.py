"""Number builtins: ranges, versions, units, UUIDs, random numbers."""

import random
import re
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from lictor.core.errors import FunctionError
from lictor.core.lang.rego.operands import BuiltinRun, Functions, take_text, take_whole
from lictor.core.lang.rego.values import RegoFloat, RegoValue, write_value

_MOST_NUMBERS = 1_000_000


def _range_step(run: BuiltinRun, arguments: list[RegoValue]) -> list[RegoValue]:
    first, last, step = (_take_integer(each) for each in arguments)
    if step <= 0:
        raise FunctionError("step must be a positive integer")
    made = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if len(made) > _MOST_NUMBERS:
        raise ValueError("there would be too many numbers")
    run.check_time()
    return list(made)


def _take_integer(value: RegoValue) -> int:
    if isinstance(value, RegoFloat) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise FunctionError("expected an integer")


def _random(run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    """A random number below another one, the same for the same text during one evaluation."""
    limit = abs(take_whole(arguments[1]))
    key = ("random", take_text(arguments[0]), limit)
    if limit == 0:
        return 0
    return run.kept.setdefault(key, random.SystemRandom().randrange(limit))


def _make_uuid(run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    return run.kept.setdefault(("uuid", write_value(arguments[0])), str(uuid.uuid4()))


_UUID = re.compile(r"(?:urn:uuid:|URN:UUID:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_UUID_IN_BRACES = re.compile(r".[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}.", re.I)
_UUID_DIGITS = re.compile(r"[0-9a-f]{32}", re.I)
# From the start of the Gregorian calendar to 1970, in units of 100 ns.
_GREGORIAN = 0x01B21DD213814000
_VARIANTS = {
    uuid.RFC_4122: "RFC4122",
    uuid.RESERVED_MICROSOFT: "Microsoft",
    uuid.RESERVED_FUTURE: "Future",
    uuid.RESERVED_NCS: "Reserved",
}


def _parse_uuid(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    text = take_text(arguments[0])
    if not any(each.fullmatch(text) for each in (_UUID, _UUID_IN_BRACES, _UUID_DIGITS)):
        raise FunctionError("not a UUID")
    found = uuid.UUID(re.sub(r"[^0-9a-fA-F]", "", text.lower().removeprefix("urn:uuid:")))
    number = (found.time_hi_version >> 12) & 0xF
    made: dict[str, RegoValue] = {"version": number, "variant": _VARIANTS[found.variant]}
    if number in (1, 2):
        node = found.bytes[10:]
        made["time"] = (found.time - _GREGORIAN) * 100
        made["nodeid"] = "-".join([f"{each:02x}" for each in node])
        flags = node[0] & 3
        names = ("global:unicast", "global:multicast", "local:unicast", "local:multicast")
        made["macvariables"] = names[flags]
        made["clocksequence"] = found.clock_seq
    if number == 2:
        made["id"] = found.time_low
        domains = {0: "Person", 1: "Group", 2: "Org"}
        made["domain"] = domains.get(found.bytes[9], f"Domain{found.bytes[9]}")
    return made


_VERSION_WORDS = re.compile(r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*")
_INTEGER = re.compile(r"[+-]?[0-9]+")
Version: TypeAlias = tuple[tuple[int, int, int], str]


def parse_semver(text: str) -> Version:
    """Numbers and pre-release of a version as OPA parses it; raises FunctionError if invalid."""
    rest, _, metadata = text.removeprefix("v").partition("+")
    rest, _, release = rest.partition("-")
    for words in (metadata, release):
        if words and not _VERSION_WORDS.fullmatch(words):
            raise FunctionError(f"{text!r} is not a valid SemVer")
    numbers = rest.split(".")
    if len(numbers) != 3 or not all(_is_int64(each) for each in numbers):
        raise FunctionError(f"{text!r} is not a valid SemVer")
    major, minor, patch = (int(each) for each in numbers)
    return (major, minor, patch), release


def _is_int64(text: str) -> bool:
    digits = len(text) <= 400 and _INTEGER.fullmatch(text)
    return bool(digits) and -(1 << 63) <= int(text) < 1 << 63


def _compare_semver(_run: BuiltinRun, arguments: list[RegoValue]) -> int:
    (left, before), (right, after) = (parse_semver(take_text(each)) for each in arguments)
    if left != right:
        return -1 if left < right else 1
    if before == after:
        return 0
    if not before or not after:
        return 1 if not before else -1
    left_key, right_key = _release_key(before), _release_key(after)
    return -1 if left_key < right_key else int(left_key > right_key)


def _release_key(release: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(word), "") if word.isdecimal() and len(word) < 19 else (1, 0, word)
        for word in release.split(".")
    ]


def _is_semver(_run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    try:
        parse_semver(take_text(arguments[0]))
    except FunctionError:
        return False
    return True


_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_AMOUNT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def _split_unit(text: str) -> tuple[str, str]:
    """The leading number and the unit after it."""
    at = 0
    while at < len(text):
        each = text[at]
        if each in "eE":
            following = text[at + 1 : at + 2]
            if not following or following not in "0123456789+-":
                break
            at += following in "+-"
            if re.match("[0-9]{7}", text[at + 1 : at + 8]):
                raise FunctionError("exponent too large")
        elif each not in "0123456789.+-":
            break
        at += 1
    return text[:at], text[at:]


def _read_amount(text: str) -> tuple[Decimal, str]:
    if " " in text:
        raise FunctionError("spaces not allowed in resource strings")
    number, unit = _split_unit(text)
    if not number:
        raise FunctionError("no amount provided")
    # An exponent of six digits is a number with a million digits.
    if not _AMOUNT.fullmatch(number) or abs(Decimal(number).adjusted()) > 5000:
        raise FunctionError("could not parse amount to a number")
    return Decimal(number), unit


def _parse_units(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    amount, unit = _read_amount(take_text(arguments[0]).replace('"', ""))
    if unit == "m":
        factor = Fraction(0.001)
    else:
        lowered = unit.lower()
        binary = len(lowered) == 2 and lowered[1] == "i"
        letter = lowered[:1] if binary else lowered
        if letter not in _POWERS or (binary and not letter):
            raise FunctionError(f"unit {unit} not recognized")
        factor = Fraction(1024 if binary else 1000) ** _POWERS[letter]
    total = Fraction(amount) * factor
    if total.denominator == 1:
        return total.numerator
    scaled = total * 10**10
    rounded, rest = divmod(abs(scaled.numerator), scaled.denominator)
    rounded += rest * 2 >= scaled.denominator
    whole, fraction = divmod(rounded, 10**10)
    return RegoFloat(f"{'-' if total < 0 else ''}{whole}.{fraction:010d}")


def _parse_bytes(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    amount, unit = _read_amount(take_text(arguments[0]).lower().replace('"', ""))
    short = unit[:-1] if len(unit) > 1 and unit.endswith("b") else unit
    binary = len(short) == 2 and short[1] == "i"
    letter = short[0] if binary else short
    if letter not in _POWERS:
        raise FunctionError(f"byte unit {unit} not recognized")
    return int(Fraction(amount) * (1024 if binary else 1000) ** _POWERS[letter])


NUMBER_BUILTINS: Functions = {
    "numbers.range_step": _range_step,
    "rand.intn": _random,
    "uuid.rfc4122": _make_uuid,
    "uuid.parse": _parse_uuid,
    "semver.compare": _compare_semver,
    "semver.is_valid": _is_semver,
    "units.parse": _parse_units,
    "units.parse_bytes": _parse_bytes,
}
