"""Points in time, parsed by Go's layouts (`2006-01-02`) and formatted in RFC 3339."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from lictor.core.lang.duration import NANOSECONDS
from lictor.core.lang.gotime_layout import Chunk, LayoutPart, split_layout

RFC3339 = "2006-01-02T15:04:05Z07:00"
_INT64_MAX = (1 << 63) - 1
_MAX_TEXT = 4096
_DAY = 86_400
# From the first of January of the year 1, where Go's rounding starts, to 1970.
_SECONDS_BEFORE_UNIX = 62_135_596_800
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class GoTime(msgspec.Struct, frozen=True):
    """Nanoseconds since 1970 in UTC, and the UTC offset for display."""

    nanoseconds: int
    offset: int = 0

    def add(self, duration: int) -> "GoTime":
        return GoTime(self.nanoseconds + duration, self.offset)

    def since(self, earlier: "GoTime") -> int:
        """The difference in nanoseconds, limited to 64 bits as in Go."""
        return max(-_INT64_MAX - 1, min(_INT64_MAX, self.nanoseconds - earlier.nanoseconds))

    def truncate(self, duration: int) -> "GoTime":
        if duration <= 0:
            return self
        since_year_one = self.nanoseconds + _SECONDS_BEFORE_UNIX * NANOSECONDS
        return GoTime(self.nanoseconds - since_year_one % duration, self.offset)

    def utc(self) -> "GoTime":
        return GoTime(self.nanoseconds)

    def civil(self) -> tuple[int, int, int, int, int, int]:
        """Year, month, day, hour, minute, second in local time."""
        days, second = divmod(self.nanoseconds // NANOSECONDS + self.offset, _DAY)
        return (*_civil_date(days), second // 3600, second // 60 % 60, second % 60)

    def weekday(self) -> int:
        """The weekday; Sunday is 0."""
        return ((self.nanoseconds // NANOSECONDS + self.offset) // _DAY + 4) % 7

    def __str__(self) -> str:
        year, month, day, hour, minute, second = self.civil()
        sign = "-" if year < 0 else ""
        text = f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}"
        if self.offset == 0:
            return text + "Z"
        minutes = abs(self.offset) // 60
        return f"{text}{'-' if self.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def from_datetime(moment: datetime) -> GoTime:
    """Convert a datetime; UTC if it has no zone."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    span = aware - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = (span.days * _DAY + span.seconds) * NANOSECONDS + span.microseconds * 1000
    offset = aware.utcoffset()
    return GoTime(nanoseconds, int(offset.total_seconds()) if offset else 0)


def parse_rfc3339(text: str) -> GoTime:
    """Read `2006-01-02T15:04:05Z` and the like; ValueError for anything else."""
    return parse_time(RFC3339, text)


@lru_cache(maxsize=1024)
def parse_time(layout: str, text: str) -> GoTime:
    """Parse `text` by a Go layout; raises ValueError if it does not match."""
    if len(layout) > _MAX_TEXT or len(text) > _MAX_TEXT:
        raise ValueError(f'parsing time "{text[:64]}": too long to be a time')
    reader = _Reader(text)
    for chunk in split_layout(layout):
        reader.skip(chunk.prefix)
        _READERS[chunk.part](reader, chunk)
    if reader.rest:
        raise ValueError(f'parsing time "{text}": extra text: "{reader.rest}"')
    return reader.finish()


def days_from_civil(year: int, month: int, day: int) -> int:
    """Count days since 1970 in the proleptic Gregorian calendar, for any year."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return (
        era * 146_097
        + year_of_era * 365
        + year_of_era // 4
        - year_of_era // 100
        + (day_of_year - 719_468)
    )


def _civil_date(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    return year_of_era + era * 400 + (month <= 2), month, day


def days_in(month: int, year: int) -> int:
    """How many days a month has."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _MONTH_DAYS[month - 1]


class _Reader:
    """The rest of a text, and the parts of a time found so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rest = text
        self.parts: dict[str, int] = {}

    def fault(self, what: str = "does not fit the layout") -> ValueError:
        return ValueError(f'parsing time "{self.text}": {what}')

    def skip(self, prefix: str) -> None:
        """Skip literal text; a run of spaces matches any other, or none at the end."""
        while prefix:
            if prefix[0] == " ":
                if self.rest and self.rest[0] != " ":
                    raise self.fault()
                prefix, self.rest = prefix.lstrip(" "), self.rest.lstrip(" ")
                continue
            if self.rest[:1] != prefix[0]:
                raise self.fault()
            prefix, self.rest = prefix[1:], self.rest[1:]

    def take(self, count: int) -> str:
        if len(self.rest) < count:
            raise self.fault()
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def digits(self, least: int, most: int) -> int:
        count = self.count_digits(0, most)
        if count < least:
            raise self.fault()
        return int(self.take(count))

    def count_digits(self, start: int, most: int = 4096) -> int:
        end = start
        while end - start < most and self.rest[end : end + 1] in _DIGITS:
            end += 1
        return end - start

    def at_fraction(self) -> bool:
        return self.rest[:1] in (".", ",") and self.count_digits(1, 1) == 1

    def take_fraction(self, digits: int) -> None:
        if self.rest[:1] not in (".", ",") or self.count_digits(1, digits) != digits:
            raise self.fault()
        text = self.take(digits + 1)[1:10]
        self.parts["nanosecond"] = int(text.ljust(9, "0"))

    def set(self, name: str, value: int, low: int, high: int) -> None:
        if not low <= value <= high:
            raise self.fault(f"{name} out of range")
        self.parts[name] = value

    def finish(self) -> GoTime:
        parts = self.parts
        year = parts.get("year", 0)
        month, day = self._date(year)
        hour = parts.get("hour", 0)
        if "afternoon" in parts:
            if parts["afternoon"] and hour < 12:
                hour += 12
            elif not parts["afternoon"] and hour == 12:
                hour = 0
        seconds = days_from_civil(year, month, day) * _DAY + hour * 3600
        seconds += parts.get("minute", 0) * 60 + parts.get("second", 0)
        offset = parts.get("offset", 0)
        nanoseconds = (seconds - offset) * NANOSECONDS + parts.get("nanosecond", 0)
        # A zone that is only named changes the display, not the time.
        return GoTime(nanoseconds, parts.get("shown offset", offset))

    def _date(self, year: int) -> tuple[int, int]:
        month, day = self.parts.get("month"), self.parts.get("day")
        ordinal = self.parts.get("day of year")
        if ordinal is not None:
            start = days_from_civil(year, 1, 1)
            found, found_month, found_day = _civil_date(start + ordinal - 1)
            if ordinal < 1 or found != year:
                raise self.fault("day-of-year out of range")
            if (month or found_month) != found_month or (day or found_day) != found_day:
                raise self.fault("day-of-year does not match month")
            return found_month, found_day
        month = month if month is not None else 1
        day = day if day is not None else 1
        if not 1 <= day <= days_in(month, year):
            raise self.fault("day out of range")
        return month, day


_DIGITS = frozenset("0123456789")


def _read_name(reader: _Reader, names: tuple[str, ...], length: int | None) -> int:
    for index, name in enumerate(names):
        wanted = name[:length] if length else name
        if reader.rest[: len(wanted)].lower() == wanted.lower():
            reader.take(len(wanted))
            return index
    raise reader.fault()


def _read_year(reader: _Reader, chunk: Chunk) -> None:
    if chunk.width == 4:
        reader.parts["year"] = reader.digits(4, 4)
        return
    year = reader.digits(2, 2)
    reader.parts["year"] = year + (1900 if year >= 69 else 2000)


def _read_month(reader: _Reader, chunk: Chunk) -> None:
    reader.set("month", reader.digits(chunk.width, 2), 1, 12)


def _read_month_name(reader: _Reader, chunk: Chunk) -> None:
    reader.parts["month"] = 1 + _read_name(reader, MONTHS, chunk.width)


def _read_weekday(reader: _Reader, chunk: Chunk) -> None:
    _read_name(reader, WEEKDAYS, chunk.width)


def _read_day(reader: _Reader, chunk: Chunk) -> None:
    if chunk.padded and reader.rest[:1] == " ":
        reader.take(1)
    reader.parts["day"] = reader.digits(chunk.width, 2)


def _read_day_of_year(reader: _Reader, chunk: Chunk) -> None:
    skipped = 0
    while chunk.padded and skipped < 2 and reader.rest[:1] == " ":
        reader.take(1)
        skipped += 1
    reader.parts["day of year"] = reader.digits(1 if chunk.padded else 3, 3)


def _read_hour(reader: _Reader, chunk: Chunk) -> None:
    reader.set("hour", reader.digits(chunk.width, 2), 0, 23)


def _read_hour12(reader: _Reader, chunk: Chunk) -> None:
    reader.set("hour", reader.digits(chunk.width, 2), 0, 12)


def _read_minute(reader: _Reader, chunk: Chunk) -> None:
    reader.set("minute", reader.digits(chunk.width, 2), 0, 59)


def _read_second(reader: _Reader, chunk: Chunk) -> None:
    reader.set("second", reader.digits(chunk.width, 2), 0, 59)
    # A fraction may follow even if the layout has none.
    if not chunk.before_fraction and reader.at_fraction():
        reader.take_fraction(reader.count_digits(1))


def _read_fraction(reader: _Reader, chunk: Chunk) -> None:
    if not chunk.padded:
        reader.take_fraction(chunk.width)
    elif reader.at_fraction():
        reader.take_fraction(reader.count_digits(1))


def _read_half(reader: _Reader, chunk: Chunk) -> None:
    text = reader.take(2)
    names = ("pm", "am") if chunk.padded else ("PM", "AM")
    if text not in names:
        raise reader.fault()
    reader.parts["afternoon"] = int(text == names[0])


def _read_offset(reader: _Reader, chunk: Chunk) -> None:
    if chunk.padded and reader.rest[:1] == "Z":
        reader.take(1)
        reader.parts["offset"] = 0
        return
    sign = reader.take(1)
    if sign not in ("+", "-"):
        raise reader.fault()
    fields = [reader.digits(2, 2)]
    for _ in range(chunk.width - 1):
        if chunk.colons and reader.take(1) != ":":
            raise reader.fault()
        fields.append(reader.digits(2, 2))
    hours, minutes, seconds = (*fields, 0, 0)[:3]
    if hours > 24 or minutes > 60 or seconds > 60:
        raise reader.fault("time zone offset out of range")
    total = hours * 3600 + minutes * 60 + seconds
    reader.parts["offset"] = -total if sign == "-" else total


def _read_zone_name(reader: _Reader, _: Chunk) -> None:
    if reader.rest.startswith("UTC"):
        reader.take(3)
        reader.parts["offset"] = 0
        return
    # Zone names are ambiguous without a location; Go treats them as UTC, except for `GMT+3`.
    length = _measure_zone(reader.rest)
    if not length:
        raise reader.fault()
    name = reader.take(length)
    hours = name[3:] if name.startswith("GMT") else ""
    reader.parts["shown offset"] = int(hours) * 3600 if hours else 0


def _measure_zone(text: str) -> int:
    if text[:4] in ("ChST", "MeST"):
        return 4
    if text.startswith("GMT"):
        return 3 + _measure_signed_offset(text[3:])
    if text[:1] in ("+", "-"):
        return _measure_signed_offset(text)
    count = 0
    while count < 6 and "A" <= text[count : count + 1] <= "Z":
        count += 1
    if count == 3 or (count == 5 and text[4] == "T"):
        return count
    return 4 if count == 4 and (text[3] == "T" or text[:4] == "WITA") else 0


def _measure_signed_offset(text: str) -> int:
    if text[:1] not in ("+", "-"):
        return 0
    end = 1
    while text[end : end + 1] in _DIGITS:
        end += 1
    return end if 1 < end <= 4 and int(text[1:end]) < 24 else 0


def _read_nothing(_: _Reader, __: Chunk) -> None:
    return


_READERS: dict[LayoutPart, Callable[[_Reader, Chunk], None]] = {
    LayoutPart.YEAR: _read_year,
    LayoutPart.MONTH: _read_month,
    LayoutPart.MONTH_NAME: _read_month_name,
    LayoutPart.WEEKDAY: _read_weekday,
    LayoutPart.DAY: _read_day,
    LayoutPart.DAY_OF_YEAR: _read_day_of_year,
    LayoutPart.HOUR: _read_hour,
    LayoutPart.HOUR12: _read_hour12,
    LayoutPart.MINUTE: _read_minute,
    LayoutPart.SECOND: _read_second,
    LayoutPart.FRACTION: _read_fraction,
    LayoutPart.HALF: _read_half,
    LayoutPart.OFFSET: _read_offset,
    LayoutPart.ZONE_NAME: _read_zone_name,
    LayoutPart.END: _read_nothing,
}
