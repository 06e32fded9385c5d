"""Lengths of time as kubectl shows them: the largest two units, and only where they matter."""

from datetime import UTC, datetime

from lictor.raw import Json

UNKNOWN = "<unknown>"

_MINUTE = 60
_HOUR = 60
_DAY = 24
_YEAR = 365


def tell_age(moment: Json, now: datetime) -> str:
    """How long ago a moment was."""
    read = read_moment(moment)
    return UNKNOWN if read is None else tell_length((now - read).total_seconds())


def read_moment(text: Json) -> datetime | None:
    """A moment as objects tell it; None for what is none."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def tell_length(total: float) -> str:
    """So many seconds, in the units that people use for them."""
    seconds = int(total)
    if seconds < -1:
        return "<invalid>"
    if seconds < 2 * _MINUTE:
        return f"{max(seconds, 0)}s"
    minutes, rest = divmod(seconds, _MINUTE)
    if minutes < 10:
        return _join(minutes, "m", rest, "s")
    if minutes < 3 * _HOUR:
        return f"{minutes}m"
    hours, rest = divmod(minutes, _HOUR)
    if hours < 8:
        return _join(hours, "h", rest, "m")
    if hours < 2 * _DAY:
        return f"{hours}h"
    return _tell_days(hours)


def _tell_days(hours: int) -> str:
    days, rest = divmod(hours, _DAY)
    if days < 8:
        return _join(days, "d", rest, "h")
    if days < 2 * _YEAR:
        return f"{days}d"
    years, rest = divmod(days, _YEAR)
    return _join(years, "y", rest, "d") if years < 8 else f"{years}y"


def _join(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
