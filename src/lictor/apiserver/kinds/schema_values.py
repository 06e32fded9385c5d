"""Values as rules in CEL see them: numbers, times and names of fields by the schema."""

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta

from lictor.apiserver.kinds.structural import Schema
from lictor.errors import FunctionError
from lictor.lang.cel.native import Duration, Timestamp
from lictor.lang.cel.values import admit
from lictor.lang.duration import parse_duration
from lictor.raw import Json

_RESERVED = frozenset((
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
    "if", "import", "let", "loop", "package", "namespace", "return",
))  # fmt: skip
_ODD = re.compile(r"__|[.\-/]")
_NAMES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def to_cel(schema: Schema, value: Json) -> Json:
    """The value as the engine takes it."""
    if isinstance(value, dict):
        return {
            _escape(key) if key in schema.names else key: _convert(schema, key, inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        items = schema.items
        return [admit(each) if items is None else to_cel(items, each) for each in value]
    if isinstance(value, str):
        return _convert_text(schema, value)
    if schema.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return admit(value)


def _convert(schema: Schema, key: str, value: Json) -> Json:
    known = schema.find(key)
    return admit(value) if known is None else to_cel(known, value)


def _escape(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    return _ODD.sub(lambda match: _NAMES[match.group()], name)


def _convert_text(schema: Schema, text: str) -> Json:
    try:
        match schema.raw.get("format"):
            case "date-time":
                moment = datetime.fromisoformat(text.upper())
                return Timestamp(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
            case "date":
                return Timestamp(datetime.fromisoformat(text).replace(tzinfo=UTC))
            case "duration":
                return Duration(timedelta(microseconds=parse_duration(text) / 1000))
            case "byte":
                return bytearray(base64.b64decode(text))
    except (ValueError, OverflowError, binascii.Error, FunctionError):
        # The format was checked before: what cannot be read here is odd, and stays a text.
        pass
    return admit(text)
