"""Formats texts as Go's fmt.Sprintf does for texts and numbers."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from lictor.core.lang.go_number import quote_go
from lictor.core.lang.rego.go_floats import FLOAT_FORMS, write_float

Argument: TypeAlias = str | int | float

_LARGEST = 1_000_000
_LONGEST_TEXT = 8 * 1024 * 1024
_INT64 = 1 << 63
_MAX_RUNE = 0x10FFFF
# Python's names for the digits of a verb.
_BASES = {"b": "b", "o": "o", "O": "o", "d": "d", "v": "d", "x": "x", "X": "X"}
_PREFIXES = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}


class _Flags(msgspec.Struct):
    """The part between the percent sign and the verb."""

    sharp: bool = False
    zero: bool = False
    plus: bool = False
    minus: bool = False
    space: bool = False
    sharp_v: bool = False
    plus_v: bool = False
    width: int | None = None
    precision: int | None = None

    def pad(self, text: str, *, zero: bool = True) -> str:
        missing = (self.width or 0) - len(text)
        if missing <= 0:
            return text
        if self.minus:
            return text + " " * missing
        return ("0" if self.zero and zero else " ") * missing + text


def sprintf(text: str, arguments: Sequence[Argument], limit: int = _LONGEST_TEXT) -> str:
    """The text with its verbs replaced; errors are written into the text, as in Go.

    Raises ValueError if it would be longer than `limit`.
    """
    pieces = _cut_simple(text) if len(text) < _LONGEST_KNOWN else None
    if pieces is not None and len(pieces) == 2 * len(arguments) + 1:
        made = _fill_simple(pieces, arguments)
        if made is not None:
            return made
    return _Printer(text, arguments, limit).print_all()


_LONGEST_KNOWN = 1024


@lru_cache(maxsize=1024)
def _cut_simple(text: str) -> tuple[str, ...] | None:
    """Literals and verbs alternately; None if there is more than %v, %s and %d."""
    pieces: list[str] = []
    literal, at = "", 0
    while True:
        found = text.find("%", at)
        if found < 0:
            return (*pieces, literal + text[at:])
        literal += text[at:found]
        verb = text[found + 1 : found + 2]
        at = found + 2
        if verb == "%":
            literal += "%"
        elif verb and verb in "vsd":
            pieces += [literal, verb]
            literal = ""
        else:
            return None


def _fill_simple(pieces: tuple[str, ...], arguments: Sequence[Argument]) -> str | None:
    made = [pieces[0]]
    for position, argument in enumerate(arguments):
        verb = pieces[2 * position + 1]
        if type(argument) is str and verb != "d":
            made.append(argument)
        elif type(argument) is int and (verb != "s" or not _is_small(argument)):
            made.append(str(argument))
        else:
            return None
        made.append(pieces[2 * position + 2])
    return "".join(made)


def _is_small(number: int) -> bool:
    return -_INT64 <= number < _INT64


class _Printer:
    """Formats one text."""

    def __init__(self, text: str, arguments: Sequence[Argument], limit: int) -> None:
        self._text = text
        self._left = limit
        self._arguments = arguments
        self._at = 0
        self._number = 0
        self._reordered = False
        self._good = True
        self._after_index = False
        self._parts: list[str] = []
        self._flags = _Flags()

    def print_all(self) -> str:
        text = self._text
        while self._at < len(text):
            found = text.find("%", self._at)
            if found < 0:
                self._parts.append(text[self._at :])
                break
            self._parts.append(text[self._at : found])
            self._at = found + 1
            self._good = True
            if not self._print_directive():
                break
        if not self._reordered and self._number < len(self._arguments):
            self._append_extra()
        return "".join(self._parts)

    def _append_extra(self) -> None:
        extra = self._arguments[self._number :]
        extra = ", ".join(
            [f"{type_name(each)}={print_argument(each, 'v', _Flags())}" for each in extra]
        )
        self._parts.append(f"%!(EXTRA {extra})")

    def _print_directive(self) -> bool:
        self._flags = flags = _Flags()
        self._read_flags()
        self._after_index = self._read_index()
        self._read_width()
        self._read_precision()
        if not self._after_index:
            self._after_index = self._read_index()
        if self._at >= len(self._text):
            self._parts.append("%!(NOVERB)")
            return False
        verb = self._text[self._at]
        self._at += 1
        made = self._print_verb(verb, flags)
        # Widths can make a long text of a short one.
        self._left -= len(made)
        if self._left < 0:
            raise ValueError("the text would be too long")
        self._parts.append(made)
        return True

    def _print_verb(self, verb: str, flags: _Flags) -> str:
        if verb == "%":
            return "%"
        if not self._good:
            return f"%!{verb}(BADINDEX)"
        if self._number >= len(self._arguments):
            return f"%!{verb}(MISSING)"
        if verb in "vw":
            flags.sharp_v, flags.sharp = flags.sharp, False
            flags.plus_v, flags.plus = flags.plus, False
        argument = self._arguments[self._number]
        self._number += 1
        return print_argument(argument, verb, flags)

    def _read_flags(self) -> None:
        names = {"#": "sharp", "0": "zero", "+": "plus", "-": "minus", " ": "space"}
        while self._at < len(self._text) and self._text[self._at] in names:
            setattr(self._flags, names[self._text[self._at]], True)
            self._at += 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _read_index(self) -> bool:
        """Read an explicit index such as [3]; returns whether there was a valid one."""
        if self._peek() != "[":
            return False
        self._reordered = True
        end = self._text.find("]", self._at + 1)
        if end < 0 or len(self._text) - self._at < 3:
            self._good = False
            self._at += 1
            return False
        digits = self._text[self._at + 1 : end]
        self._at = end + 1
        readable = digits.isascii() and digits.isdecimal() and int(digits[:9]) <= _LARGEST
        if readable and 1 <= int(digits) <= len(self._arguments):
            self._number = int(digits) - 1
            return True
        self._good = False
        return readable

    def _read_number(self) -> int | None:
        start = self._at
        while self._peek().isascii() and self._peek().isdecimal():
            self._at += 1
            if int(self._text[start : self._at]) > _LARGEST:
                # Go stops here, and treats the rest as the verb.
                return None
        return int(self._text[start : self._at]) if self._at > start else None

    def _take_argument(self) -> int | None:
        """The width or precision for a star."""
        if self._number >= len(self._arguments):
            return None
        value = self._arguments[self._number]
        self._number += 1
        return value if type(value) is int and abs(value) <= _LARGEST else None

    def _read_width(self) -> None:
        flags = self._flags
        if self._peek() == "*":
            self._at += 1
            flags.width = self._take_argument()
            if flags.width is None:
                self._parts.append("%!(BADWIDTH)")
            elif flags.width < 0:
                flags.width, flags.minus, flags.zero = -flags.width, True, False
            self._after_index = False
            return
        flags.width = self._read_number()
        if self._after_index and flags.width is not None:
            self._good = False

    def _read_precision(self) -> None:
        flags = self._flags
        if self._peek() != "." or self._at + 1 >= len(self._text):
            return
        self._at += 1
        if self._after_index:
            self._good = False
        self._after_index = self._read_index()
        if self._peek() == "*":
            self._at += 1
            value = self._take_argument()
            flags.precision = value if value is not None and value >= 0 else None
            if flags.precision is None:
                self._parts.append("%!(BADPREC)")
            self._after_index = False
        else:
            flags.precision = self._read_number() or 0


def type_name(argument: Argument) -> str:
    """Go's name of the type."""
    if isinstance(argument, str):
        return "string"
    if isinstance(argument, int):
        return "int" if _is_small(argument) else "*big.Int"
    return "float64"


def print_argument(argument: Argument, verb: str, flags: _Flags) -> str:
    """One value formatted by its verb."""
    if verb == "T":
        return _print_text(type_name(argument), "s", flags)
    if isinstance(argument, str):
        return _print_text(argument, verb, flags)
    if isinstance(argument, int):
        return (_print_int if _is_small(argument) else _print_big)(argument, verb, flags)
    return _print_float(float(argument), verb, flags)


def _bad(argument: Argument, verb: str, flags: _Flags) -> str:
    return f"%!{verb}({type_name(argument)}={print_argument(argument, 'v', flags)})"


def _print_text(text: str, verb: str, flags: _Flags) -> str:
    if verb == "q" or (verb == "v" and flags.sharp_v):
        return _quote(text, flags)
    if verb in "vs":
        return flags.pad(text[: flags.precision])
    if verb in "xX":
        return _print_bytes(text.encode(), verb, flags)
    return _bad(text, verb, flags)


def _quote(text: str, flags: _Flags) -> str:
    text = text[: flags.precision]
    can_backquote = "`" not in text and "\ufeff" not in text
    if flags.sharp and can_backquote and all(c == "\t" or (c >= " " and c != "\x7f") for c in text):
        return flags.pad(f"`{text}`")
    quoted = quote_go(text)
    return flags.pad(_to_ascii(quoted) if flags.plus else quoted)


def _to_ascii(text: str) -> str:
    codes = [(each, ord(each)) for each in text]
    return "".join(
        each if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        for each, code in codes
    )


def _print_bytes(content: bytes, verb: str, flags: _Flags) -> str:
    digits = content[: flags.precision].hex()
    if verb == "X":
        digits = digits.upper()
    if not digits:
        return flags.pad("")
    prefix = f"0{verb}" if flags.sharp else ""
    if flags.space:
        pairs = [prefix + digits[at : at + 2] for at in range(0, len(digits), 2)]
        return flags.pad(" ".join(pairs))
    return flags.pad(prefix + digits)


def _print_int(number: int, verb: str, flags: _Flags) -> str:
    if verb in _BASES:
        return _print_digits(number, verb, flags)
    if verb == "c":
        return flags.pad(_rune(number))
    if verb == "q":
        return flags.pad(_quote_rune(_rune(number), flags))
    if verb == "U":
        return _print_unicode(number, flags)
    return _bad(number, verb, flags)


def _rune(number: int) -> str:
    if not 0 <= number <= _MAX_RUNE or 0xD800 <= number < 0xE000:
        return "\ufffd"
    return chr(number)


def _quote_rune(rune: str, flags: _Flags) -> str:
    inside = "\\'" if rune == "'" else '"' if rune == '"' else quote_go(rune)[1:-1]
    return f"'{_to_ascii(inside) if flags.plus else inside}'"


def _print_unicode(number: int, flags: _Flags) -> str:
    code = number % (1 << 64)
    text = f"U+{code:0{max(flags.precision or 0, 4)}X}"
    if flags.sharp and code <= _MAX_RUNE and chr(code).isprintable():
        text += f" '{chr(code)}'"
    return flags.pad(text, zero=False)


def _sign(number: float, flags: _Flags) -> str:
    return "-" if number < 0 else "+" if flags.plus else " " if flags.space else ""


def _print_digits(number: int, verb: str, flags: _Flags) -> str:
    digits = format(abs(number), _BASES[verb])
    sign = _sign(number, flags)
    least = 0
    if flags.precision is not None:
        least = flags.precision
        if least == 0 and number == 0:
            return flags.pad("", zero=False)
    elif flags.zero and not flags.minus and flags.width is not None:
        least = flags.width - len(sign)
    digits = digits.rjust(least, "0")
    if flags.sharp and not (verb == "o" and digits[0] == "0"):
        digits = _PREFIXES.get(verb, "0" if verb == "O" and digits[0] != "0" else "") + digits
    if verb == "O":
        digits = f"0o{digits}"
    return flags.pad(sign + digits, zero=False)


def _print_big(number: int, verb: str, flags: _Flags) -> str:
    base = "d" if verb == "s" else _BASES.get(verb)
    if base is None:
        return f"%!{verb}(big.Int={number})"
    if verb in "vw":
        flags.plus, flags.sharp = flags.plus_v, flags.sharp_v
    digits = format(abs(number), base)
    prefix = "0o" if verb == "O" else _PREFIXES.get(verb, "") if flags.sharp else ""
    sign = _sign(number, flags)
    digits = digits.rjust(flags.precision or 0, "0")
    missing = (flags.width or 0) - len(sign + prefix + digits)
    if missing > 0 and flags.zero and not flags.minus and flags.precision is None:
        digits = digits.rjust(len(digits) + missing, "0")
    return flags.pad(sign + prefix + digits, zero=False)


def _print_float(number: float, verb: str, flags: _Flags) -> str:
    form = {"v": "g", "F": "f"}.get(verb, verb)
    if form not in FLOAT_FORMS:
        return _bad(number, verb, flags)
    if not math.isfinite(number):
        sign = "-" if number < 0 else "+" if flags.plus or number > 0 else ""
        return flags.pad(f"{sign}{'NaN' if math.isnan(number) else 'Inf'}", zero=False)
    digits = write_float(abs(number), form, flags.precision, sharp=flags.sharp)
    sign = _sign(math.copysign(1, number), flags)
    if flags.zero and not flags.minus and flags.width is not None:
        return sign + digits.rjust(flags.width - len(sign), "0")
    return flags.pad(sign + digits)
