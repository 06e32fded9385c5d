"""The format of log lines of long-running commands: a constant message, and facts as fields."""

import logging
import os
import sys
import time
from functools import lru_cache
from typing import TextIO

import orjson

from lictor.cluster.flags import Flags
from lictor.cluster.process_log import FactRecord, choose_level, set_level
from lictor.raw import JsonObject

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def set_up_logging(flags: Flags) -> None:
    """Log to standard error, in the format and as much as the flags say."""
    handler = _Lines(sys.stderr)
    handler.setFormatter(_JsonLines() if flags.logging_format == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(choose_level(flags.v))


def _read_fields(record: logging.LogRecord) -> JsonObject:
    if isinstance(record, FactRecord):
        return record.facts
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class _Lines(logging.Handler):
    """Each line in one write: nothing waits in a buffer that a kill would lose."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        try:
            self._file: int | None = stream.fileno()
        except (OSError, ValueError):
            self._file = None

    def handle(self, record: logging.LogRecord) -> bool:
        # A line is one write: nobody has to wait for another one's.
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
                # An admission has a line of its own: text streams would double what it costs.
                os.write(self._file, line.encode(errors="backslashreplace"))
        except Exception:  # noqa: BLE001  (as handlers of logging do)
            self.handleError(record)


@lru_cache(maxsize=2)
def _format_second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _format_time(record: logging.LogRecord) -> str:
    second = int(record.created)
    return f"{_format_second(second)}.{int((record.created - second) * 1000):03}Z"


class _TextLines(logging.Formatter):
    """`2024-01-31T12:00:00.000Z INFO control.run message name=value`"""

    def format(self, record: logging.LogRecord) -> str:
        place = record.name.removeprefix("lictor.")
        facts = _write_facts(_read_fields(record))
        line = f"{_format_time(record)} {record.levelname} {place} {record.getMessage()}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: JsonObject = {
            "ts": _format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_read_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


@lru_cache(maxsize=256)
def _prepare_names(names: tuple[str, ...]) -> str:
    """A line of these facts, without their values: the same few are written again and again."""
    return "".join([f" {name.replace('%', '%%')}=%s" for name in names])


def _write_facts(facts: JsonObject) -> str:
    written = _prepare_names(tuple(facts)) % tuple(facts.values())
    # Nearly never needs any of them quotes: then there is one space before each, and nothing odd.
    if (
        written.count(" ") == len(facts)
        and "= " not in written
        and not written.endswith("=")
        and written.isprintable()
    ):
        return written
    return "".join([f" {name}={_quote(value)}" for name, value in facts.items()])


def _quote(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)
