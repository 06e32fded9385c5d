"""Kubernetes' `semver("1.2.3")`: versions, in a form without build data so that `==` ignores it."""

from lictor.errors import FunctionError
from lictor.lang.cel.declaration import function, member
from lictor.lang.semver import Version, parse_version

_INT64_LIMIT = 1 << 63


def _read(text: str) -> Version:
    try:
        return parse_version(text)
    except ValueError as error:
        raise FunctionError(str(error)) from None


def _make(text: str, normalize: bool = False) -> str:  # noqa: FBT001, FBT002 - CEL has no keywords
    plain = _normalize(text) if normalize else text
    _read(plain)
    return plain.partition("+")[0]


def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002 - as above
    try:
        _make(text, normalize)
    except FunctionError:
        return False
    return True


def _normalize(text: str) -> str:
    parts = [_trim_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise FunctionError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][: max(3, len(parts))])


def _trim_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    trimmed = part.lstrip("0")
    starts_with_digit = trimmed[:1].isascii() and trimmed[:1].isdigit()
    return trimmed if starts_with_digit else f"0{trimmed}"


def _compare(left: str, right: str) -> int:
    one, other = _read(left), _read(right)
    return (one > other) - (one < other)


def _number(index: int, text: str) -> int:
    number: int = _read(text)[index]  # type: ignore[assignment]  # the first three are numbers
    # Go turns an unsigned into a signed number without looking.
    return number if number < _INT64_LIMIT else number - 2 * _INT64_LIMIT


OVERLOADS = (
    function("semver", "string -> Semver", _make),
    function("semver", "string, bool -> Semver", _make),
    function("isSemver", "string -> bool", _is_semver),
    function("isSemver", "string, bool -> bool", _is_semver),
    member("major", "Semver -> int", lambda version: _number(0, version)),
    member("minor", "Semver -> int", lambda version: _number(1, version)),
    member("patch", "Semver -> int", lambda version: _number(2, version)),
    member("isGreaterThan", "Semver, Semver -> bool", lambda a, b: _compare(a, b) > 0),
    member("isLessThan", "Semver, Semver -> bool", lambda a, b: _compare(a, b) < 0),
    member("compareTo", "Semver, Semver -> int", _compare),
)
