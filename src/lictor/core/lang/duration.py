"""Durations such as `1h30m`, parsed and formatted as in Go: signed 64-bit nanoseconds."""

import re

NANOSECONDS = 1_000_000_000
_LIMIT = 1 << 63
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": NANOSECONDS,
    "m": 60 * NANOSECONDS,
    "h": 3600 * NANOSECONDS,
}
_PART = re.compile(r"([0-9]{0,64})(?:\.([0-9]*))?([^0-9.]+)")
_MAX_TEXT = 4096


def parse_duration(text: str) -> int:
    """Parse a duration to nanoseconds; raises ValueError if Go would reject it."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest or len(text) > _MAX_TEXT:
        raise ValueError(f'time: invalid duration "{text[:64]}"')
    total, position = 0, 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            raise ValueError(f'time: invalid duration "{text}"')
        total += _read_part(part, text)
        position = part.end()
        if total > _LIMIT:
            raise ValueError(f'time: invalid duration "{text}"')
    if text[0] == "-":
        return -total
    if total == _LIMIT:
        raise ValueError(f'time: invalid duration "{text}"')
    return total


def _read_part(part: re.Match[str], text: str) -> int:
    whole, fraction, name = part.groups()
    if not whole and not fraction:
        raise ValueError(f'time: invalid duration "{text}"')
    unit = _UNITS.get(name)
    if unit is None:
        raise ValueError(f'time: unknown unit "{name}" in duration "{text}"')
    amount = int(whole or "0") * unit
    if fraction:
        amount += _read_fraction(fraction, unit)
    if amount > _LIMIT:
        raise ValueError(f'time: invalid duration "{text}"')
    return amount


def _read_fraction(digits: str, unit: int) -> int:
    """Go computes this part in floating point and drops digits beyond 64 bits."""
    value, scale = 0, 1.0
    for digit in digits:
        longer = value * 10 + int(digit)
        if value > (_LIMIT - 1) // 10 or longer > _LIMIT:
            break
        value, scale = longer, scale * 10
    return int(float(value) * (float(unit) / scale))


def format_duration(nanoseconds: int) -> str:
    """Write nanoseconds as Go's time.Duration does: `1h30m0s`, `1.5s`, `20ms`, `0s`."""
    if nanoseconds == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    amount = abs(nanoseconds)
    if amount < NANOSECONDS:
        return sign + _format_small(amount)
    seconds, fraction = divmod(amount, NANOSECONDS)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = _format_decimal(seconds, fraction, 9) + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def _format_small(amount: int) -> str:
    if amount < 1_000:
        return f"{amount}ns"
    if amount < 1_000_000:
        return _format_decimal(*divmod(amount, 1_000), 3) + "\u00b5s"
    return _format_decimal(*divmod(amount, 1_000_000), 6) + "ms"


def _format_decimal(whole: int, fraction: int, digits: int) -> str:
    if not fraction:
        return str(whole)
    return f"{whole}.{fraction:0{digits}d}".rstrip("0")
