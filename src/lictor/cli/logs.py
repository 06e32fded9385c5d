"""The format of log lines of long-running commands: a constant message, and facts as fields."""

import logging
import os
import sys
import time
from functools import lru_cache
from typing import TextIO, TypeAlias

import orjson

from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.process_log import FactHandler, FactLine, FactRecord, choose_level, set_level

# When, how loud, and the name of the logger.
LogPlace: TypeAlias = tuple[float, str, str]

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def set_up_logging(flags: Flags) -> None:
    """Log to standard error, in the format and with the level of the flags."""
    handler = _Lines(sys.stderr, _JsonLines() if flags.logging_format == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(choose_level(flags.v))


class _Lines(FactHandler):
    """Each line in one write: nothing waits in a buffer that a kill would lose."""

    def __init__(self, stream: TextIO, lines: "_LineFormatter") -> None:
        super().__init__()
        self._stream = stream
        self._lines = lines
        self.setFormatter(lines)
        try:
            self._file: int | None = stream.fileno()
        except (OSError, ValueError):
            self._file = None

    def write_facts(self, name: str, level: int, line: FactLine, values: tuple[Json, ...]) -> None:
        if self._file is None or self.filters:
            self.handle(FactRecord(name, level, line.message, line.list_facts(values)))
            return
        try:
            place = (time.time(), logging.getLevelName(level), name)
            text = self._lines.write_known(place, line, values)
            # Each admission writes a line: text streams would double its cost.
            os.write(self._file, text.encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001  (as handlers of logging do)
            self.handleError(FactRecord(name, level, line.message, line.list_facts(values)))

    def handle(self, record: logging.LogRecord) -> bool:
        # A line is one write, so that threads need no lock.
        if self._file is None or self.filters:
            return bool(super().handle(record))
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            if self._file is None:
                self._stream.write(line)
            else:
                os.write(self._file, line.encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001  (as handlers of logging do)
            self.handleError(record)


class _LineFormatter(logging.Formatter):
    """Records into lines, by the facts that they hold."""

    def write(self, place: LogPlace, message: str, facts: JsonObject, error: str = "") -> str:
        """A line, and what went wrong."""
        raise NotImplementedError

    def write_known(self, place: LogPlace, line: FactLine, values: tuple[Json, ...]) -> str:
        """The same with the end of the line, for facts whose names are known beforehand."""
        return f"{self.write(place, line.message, line.list_facts(values))}\n"

    def format(self, record: logging.LogRecord) -> str:
        place = (record.created, record.levelname, record.name)
        facts = record.facts if isinstance(record, FactRecord) else _read_fields(record)
        error = self.formatException(record.exc_info) if record.exc_info else ""
        return self.write(place, record.getMessage(), facts, error)


def _read_fields(record: logging.LogRecord) -> JsonObject:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


@lru_cache(maxsize=2)
def _format_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _format_time(at: float) -> str:
    second = int(at)
    return f"{_format_second(second)}.{int((at - second) * 1000):03}Z"


class _TextLines(_LineFormatter):
    """`2024-01-31T12:00:00.000Z INFO controllers.run message name=value`"""

    def write(self, place: LogPlace, message: str, facts: JsonObject, error: str = "") -> str:
        at, level, name = place
        where = name.removeprefix("lictor.")
        line = f"{_format_time(at)} {level} {where} {message}{_write_facts(facts)}"
        return f"{line}\n{error}" if error else line

    def write_known(self, place: LogPlace, line: FactLine, values: tuple[Json, ...]) -> str:
        text = line.text % values
        if text.count(" ") != line.spaces or not _is_plain(text):
            return super().write_known(place, line, values)
        at, level, name = place
        second = int(at)
        part = int((at - second) * 1000)
        return (
            f"{_format_second(second)}.{part:03}Z {level} {name.removeprefix('lictor.')} {text}\n"
        )


class _JsonLines(_LineFormatter):
    """One JSON object a line."""

    def write(self, place: LogPlace, message: str, facts: JsonObject, error: str = "") -> str:
        at, level, name = place
        line: JsonObject = {
            "ts": _format_time(at),
            "level": level.lower(),
            "logger": name,
            "msg": message,
            **facts,
        }
        if error:
            line["error"] = error
        return orjson.dumps(line, default=str).decode()


def _write_facts(facts: JsonObject) -> str:
    written = "".join([f" {name}={value}" for name, value in facts.items()])
    if written.count(" ") == len(facts) and _is_plain(written):
        return written
    return "".join([f" {name}={_quote(value)}" for name, value in facts.items()])


def _is_plain(facts: str) -> bool:
    """Do facts need no quotes? They nearly never do: then one space is before each of them."""
    return "= " not in facts and not facts.endswith("=") and facts.isprintable()


def _quote(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)
