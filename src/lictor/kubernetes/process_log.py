"""Logging of a process: levels, and records of requests and policies."""

import logging
import time
from collections.abc import Sequence
from typing import Final

from lictor.core.ports import GuestLogLine
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.settings import LOG_LEVELS, Settings, SettingsWatch

log = logging.getLogger(__name__)

# Libraries that log each request: only at the most verbose level.
_CHATTY: Final = ("httpx2", "httpcore2", "asyncio", "hpack")
_EVERYTHING: Final = "trace"
_DEBUG_FROM: Final = 4
_EVERYTHING_FROM: Final = 8
_GUEST_LEVELS: Final = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
}
_BLANK: Final = vars(logging.makeLogRecord({}))


def choose_level(verbosity: int) -> str:
    """The level for a number of `--v`."""
    if verbosity >= _EVERYTHING_FROM:
        return _EVERYTHING
    return "debug" if verbosity >= _DEBUG_FROM else "info"


def set_level(level: str) -> None:
    """Set the level of this process: one of LOG_LEVELS."""
    number = logging.DEBUG
    if level != _EVERYTHING:
        number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(number)
    for name in _CHATTY:
        chatty = logging.getLogger(name)
        chatty.setLevel(logging.NOTSET if level == _EVERYTHING else logging.WARNING)


def read_level() -> str:
    """The current level of this process."""
    number = logging.getLogger().level
    if number <= logging.DEBUG:
        is_all = logging.getLogger(_CHATTY[0]).level == logging.NOTSET
        return _EVERYTHING if is_all else "debug"
    return logging.getLevelName(number).lower()


def follow_log_level(settings: SettingsWatch) -> None:
    """Use the level of the settings; if they have none, the current one."""
    usual = now = read_level()

    def change(current: Settings) -> None:
        nonlocal now
        wanted = current.log_level or usual
        if wanted == now:
            return
        facts = {"before": now, "level": wanted}
        # Logged while one of the two levels allows it.
        if LOG_LEVELS.index(wanted) > LOG_LEVELS.index(now):
            set_level(wanted)
            log.info("log level changed", extra=facts)
        else:
            log.info("log level changed", extra=facts)
            set_level(wanted)
        now = wanted

    settings.listen(change)


class FactRecord(logging.LogRecord):
    """A record built once per request, for `Logger.handle`: a constant message, and facts.

    `logging` would determine the line of code, the thread and the process, and mix the facts with
    its own thirty fields, from which the formatter had to separate them again.
    """

    facts: JsonObject

    def __init__(self, name: str, level: int, message: str, facts: JsonObject) -> None:
        now = time.time()
        # Other formatters read this dictionary.
        fields = self.__dict__
        fields.update(_BLANK)
        fields.update(facts)
        fields["name"] = name
        fields["levelno"] = level
        fields["levelname"] = logging.getLevelName(level)
        fields["msg"] = message
        fields["created"] = now
        fields["facts"] = facts


class FactLine:
    """A message and the names of its facts: what is the same in many lines."""

    __slots__ = ("message", "names", "spaces", "text")

    def __init__(self, message: str, *names: str) -> None:
        self.message = message
        self.names = names
        # As text, with placeholders for the values.
        self.text = "".join((message.replace("%", "%%"), *[f" {name}=%s" for name in names]))
        self.spaces = self.text.count(" ")

    def list_facts(self, values: Sequence[Json]) -> JsonObject:
        return dict(zip(self.names, values, strict=True))


class FactHandler(logging.Handler):
    """A handler that can write a line without a record."""

    def write_facts(self, name: str, level: int, line: FactLine, values: tuple[Json, ...]) -> None:
        """Write a line of the logger with this name."""
        raise NotImplementedError


def log_facts(logger: logging.Logger, level: int, line: FactLine, *values: Json) -> None:
    """Like `logger.log(level, message, extra=facts)`, but fast enough for requests.

    A record, its formatter and the search for handlers are a dozen functions, which cost more than
    three rules. They are skipped if one handler gets every line. The caller has checked
    `isEnabledFor`.
    """
    handlers = logging.root.handlers
    if len(handlers) == 1 and isinstance(handlers[0], FactHandler):
        handlers[0].write_facts(logger.name, level, line, values)
    else:
        facts = line.list_facts(values)
        logger.handle(FactRecord(logger.name, level, line.message, facts))


def log_guest_line(line: GuestLogLine) -> None:
    """Write a line of a policy to the log; unknown levels are logged as debug."""
    level = _GUEST_LEVELS.get(line.level, logging.DEBUG)
    # Nested, so that none of the policy's fields overrides one of lictor's.
    fields = {"fields": dict(line.data)} if line.data else {}
    log.log(level, "policy log", extra={"policy": line.policy, "said": line.message, **fields})
